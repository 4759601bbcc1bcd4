"""How apps register tools.

An app lists `ToolDefinition`s under the name `TOOLS` in its `tools.py` and calls `register_app_tools` from
`AppConfig.ready()`; a deployment adds modules of its own with `TENURE_TOOL_MODULES`. What is wrong with a
tool is said at start, by name, not when a model calls it. The registry is filled once and only read afterwards.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from jsonschema.exceptions import SchemaError

from tools_app.arguments import Validator, validator_for_schema
from tools_app.models import ToolClass

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_RUNNABLE = {ToolClass.INTERNAL, ToolClass.OUTSIDE}


class InvalidTool(ImproperlyConfigured):
    """A tool that can't be offered as it is registered."""


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool of this deployment.

    `run` of an outside tool is `run(arguments, context)`, plain or async; a plain one runs in a thread of its
    own and should not use the database. `run` of an internal tool is `run(arguments, context, session)` with
    the locked session row, plain, and touches nothing but the database. It returns text, JSON, None or
    `results.Content`, and raises `results.ToolFailed` with a sentence for the model. `time_limit` is in
    seconds; None is the deployment's default.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    run: Callable[..., Any] = field(repr=False)
    tool_class: str = ToolClass.OUTSIDE
    rerun_safe: bool = False
    time_limit: float | None = None

    @cached_property
    def validator(self) -> Validator:
        return validator_for_schema(self.input_schema)


_tools: dict[str, ToolDefinition] = {}


def register_tool(tool: ToolDefinition) -> None:
    """Offer a tool from now on. Raises `InvalidTool`; the same definition twice is registered once."""
    if _tools.get(tool.name) is tool:
        return
    problem = _problem(tool)
    if problem:
        raise InvalidTool(f"tool {tool.name!r}: {problem}")
    _tools[tool.name] = tool


def register_module(name: str) -> None:
    """Import a module and register its `TOOLS`."""
    try:
        module = import_module(name)
    except ImportError as error:
        raise InvalidTool(f"the tool module {name} cannot be imported: {error}") from error
    for tool in _tools_of(module):
        register_tool(tool)


def register_app_tools(app: str) -> None:
    """Register the `TOOLS` of `<app>.tools`, if the app has that module; for `AppConfig.ready()`."""
    if find_spec(f"{app}.tools") is not None:
        register_module(f"{app}.tools")


def register_configured_modules() -> None:
    """Register what `TENURE_TOOL_MODULES` names."""
    for name in settings.TENURE.tool_modules:
        try:
            register_module(name)
        except InvalidTool as error:
            raise InvalidTool(f"TENURE_TOOL_MODULES: {error}") from error


def get(name: str) -> ToolDefinition | None:
    return _tools.get(name)


def all_tools() -> Sequence[ToolDefinition]:
    """Every tool of this deployment, by name."""
    return [_tools[name] for name in sorted(_tools)]


def time_limit_of(name: str) -> float:
    """Seconds that an outside tool may run, where the config says nothing (T5)."""
    tool = _tools.get(name)
    limit: float = settings.TENURE.tool_time_limit
    return tool.time_limit or limit if tool else limit


def _tools_of(module: ModuleType) -> Sequence[ToolDefinition]:
    tools = getattr(module, "TOOLS", None)
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, ToolDefinition) for tool in tools):
        raise InvalidTool(f"the tool module {module.__name__} has no list of ToolDefinition named TOOLS")
    return tools


def _problem(tool: ToolDefinition) -> str | None:
    if not _NAME.fullmatch(tool.name):
        return "a name starts with a letter and has at most 64 letters, digits, _ and -"
    if tool.name.startswith("mcp__"):
        return "names that start with mcp__ belong to MCP servers"
    if tool.name in _tools:
        return "another tool has this name"
    if not tool.description.strip():
        return "the model needs a description"
    if tool.tool_class not in _RUNNABLE:
        return f"the class must be internal or outside, not {tool.tool_class}"
    if tool.tool_class == ToolClass.INTERNAL and (tool.rerun_safe or tool.time_limit is not None):
        return "rerun_safe and time_limit are for outside tools"
    if tool.time_limit is not None and tool.time_limit <= 0:
        return "time_limit must be more than 0 seconds"
    return _schema_problem(tool) or _run_problem(tool)


def _schema_problem(tool: ToolDefinition) -> str | None:
    if tool.input_schema.get("type") != "object":
        return "input_schema must describe an object"
    try:
        tool.validator.check_schema(tool.input_schema)
    except SchemaError as error:
        return (
            f"input_schema is not a valid JSON Schema: at /{'/'.join(map(str, error.path))}: {error.message}"
        )
    return None


def _run_problem(tool: ToolDefinition) -> str | None:
    internal = tool.tool_class == ToolClass.INTERNAL
    if not callable(tool.run):
        return "run must be a function"
    if internal and inspect.iscoroutinefunction(tool.run):
        return "run of an internal tool can't be async: it works inside a transaction"
    wanted = ("arguments", "context", "session") if internal else ("arguments", "context")
    try:
        inspect.signature(tool.run).bind(*wanted)
    except TypeError:
        return f"run must take ({', '.join(wanted)})"
    return None
