"""Own tools: `@tool` makes a tool of a typed function. Everything that such a module imports is here.

    @tool(rerun_safe=True)
    async def ticket_status(number: int, context: ToolContext) -> str:
        \"""Look up a ticket of our tracker.

        Args:
            number: The ticket's number.
        \"""

The function stays what it is and can be called in a test. What the model reads follows from it: the name, the
description (the first paragraph of the docstring) and a JSON Schema (the annotations, with what the docstring
says of each parameter). What the model writes is held against both the schema and the annotations before the
call is accepted, so the function gets values of the types that it asks for. See `typed_functions`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

from sessions_app.tool_port import ToolContext
from tools_app.definitions import InvalidTool, Permission
from tools_app.results import Content, ToolFailed

__all__ = ["Content", "Mark", "ToolContext", "ToolFailed", "mark_of", "tool"]

_MARK = "tenure_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the decorator was given."""

    cls: str
    name: str | None
    rerun_safe: bool
    time_limit: float | None
    permission: Permission | None


@overload
def tool[F: Callable[..., Any]](function: F, /) -> F: ...


@overload
def tool[F: Callable[..., Any]](
    *,
    cls: Literal["internal", "outside"] = ...,
    name: str | None = ...,
    rerun_safe: bool = ...,
    time_limit: float | None = ...,
    permission: Permission | None = ...,
) -> Callable[[F], F]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    cls: Literal["internal", "outside"] = "outside",
    name: str | None = None,
    rerun_safe: bool = False,
    time_limit: float | None = None,
    permission: Permission | None = None,
) -> Any:
    """Mark a function as a tool; a module that `TENURE_TOOL_MODULES` names brings all that it holds.

    `cls` is outside (everything beyond this database) or internal (effect and result in one transaction).
    `rerun_safe` says that a second run does no harm, so a crash in the middle runs it again. `time_limit` is
    in seconds. `permission` (allow, ask or deny) holds where no rule of a config decides. `name` is the
    function's own unless given.
    """
    mark = Mark(cls=cls, name=name, rerun_safe=rerun_safe, time_limit=time_limit, permission=permission)

    def marked(function: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isfunction(function):
            raise InvalidTool(f"@tool goes on a plain or async function, not on {function!r}")
        setattr(function, _MARK, mark)
        return function

    return marked if function is None else marked(function)


def mark_of(value: Any) -> Mark | None:
    """The mark of a function; None for anything else."""
    mark = vars(value).get(_MARK) if inspect.isfunction(value) else None
    return mark if isinstance(mark, Mark) else None
