"""What a tool of this deployment is, however it was written down."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

from tools_app.arguments import Validator, validator_for_schema
from tools_app.models import ToolClass

type Permission = Literal["allow", "ask", "deny"]


class InvalidTool(ImproperlyConfigured):
    """A tool that can't be offered as it is registered."""


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool of this deployment; most are made of functions that are marked with `tools_app.tool.tool`.

    `run` of an outside tool is `run(arguments, context)`, plain or async; a plain one runs in a thread of its
    own and should not use the database. `run` of an internal tool is `run(arguments, context, session)` with
    the locked session row, plain, and touches nothing but the database. It returns text, JSON, None or
    `results.Content`, and raises `results.ToolFailed` with a sentence for the model. A human tool has no
    `run`: its result is what people answer. `time_limit` is in seconds; None is the deployment's default.
    `needs` tells from the arguments which other sessions' rows an internal tool changes; they are locked with its
    own and stand in `context.sessions`.
    `permission` is what holds where no rule of a config says anything else; None is the default of its class.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    run: Callable[..., Any] | None = field(default=None, repr=False)
    tool_class: str = ToolClass.OUTSIDE
    rerun_safe: bool = False
    time_limit: float | None = None
    permission: Permission | None = None
    needs: Callable[[dict[str, Any]], Collection[UUID]] | None = field(default=None, repr=False)

    @cached_property
    def validator(self) -> Validator:
        return validator_for_schema(self.input_schema)
