"""How apps register tools.

An app has functions marked with `@tool` (or `ToolDefinition`s under the name `TOOLS`) in its `tools.py` and calls
`register_app_tools` from `AppConfig.ready()`; a deployment adds modules of its own with `TENURE_TOOL_MODULES`.
What is wrong with a tool is said at start, by name, not when a model calls it. The registry is filled once and
only read afterwards.
"""

import inspect
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from django.conf import settings
from jsonschema.exceptions import SchemaError

from tools_app.definitions import InvalidTool, ToolDefinition
from tools_app.models import ToolClass
from tools_app.typed_functions import tools_in

__all__ = ["InvalidTool", "ToolDefinition", "all_tools", "get", "register_app_tools", "time_limit_of"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_CLASSES = {ToolClass.INTERNAL, ToolClass.OUTSIDE, ToolClass.HUMAN}
_PERMISSIONS = {None, "allow", "ask", "deny"}


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
    """Import a module and register its tools."""
    try:
        module = import_module(name)
    except ImportError as error:
        raise InvalidTool(f"the tool module {name} cannot be imported: {error}") from error
    for tool in _tools_of(module):
        register_tool(tool)


def register_app_tools(app: str) -> None:
    """Register the tools of `<app>.tools`, if the app has that module; for `AppConfig.ready()`."""
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
    marked = tools_in(module)
    listed = getattr(module, "TOOLS", None if not marked else ())
    if not isinstance(listed, list | tuple) or not all(isinstance(tool, ToolDefinition) for tool in listed):
        raise InvalidTool(
            f"the tool module {module.__name__} has no function marked with @tool "
            "and no list of ToolDefinition named TOOLS"
        )
    return [*marked, *listed]


def _problem(tool: ToolDefinition) -> str | None:
    if not _NAME.fullmatch(tool.name):
        return "a name starts with a letter and has at most 64 letters, digits, _ and -"
    if tool.name.startswith("mcp__"):
        return "names that start with mcp__ belong to MCP servers"
    if tool.name in _tools:
        return "another tool has this name"
    if not tool.description.strip():
        return "the model needs a description"
    if tool.tool_class not in _CLASSES:
        return f"the class must be internal or outside, not {tool.tool_class}"
    if tool.tool_class != ToolClass.OUTSIDE and (tool.rerun_safe or tool.time_limit is not None):
        return "rerun_safe and time_limit are for outside tools"
    if tool.time_limit is not None and tool.time_limit <= 0:
        return "time_limit must be more than 0 seconds"
    if tool.permission not in _PERMISSIONS:
        return f"permission is allow, ask or deny, not {tool.permission}"
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
    if tool.tool_class == ToolClass.HUMAN:
        return None if tool.run is None else "a human tool has no run: people answer it"
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
