"""How apps register tools, and what is said about one that can't be offered."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps

from tools_app import registry
from tools_app.models import ToolClass
from tools_app.registry import InvalidTool, ToolDefinition
from tools_app.tool import tool


def nothing(arguments: dict[str, Any], context: Any) -> None:
    pass


async def nothing_async(arguments: dict[str, Any], context: Any, session: Any) -> None:
    pass


def probe(a: int) -> int:
    """A probe."""
    return a


def definition(**parts: Any) -> ToolDefinition:
    values = {"name": "probe", "description": "A probe.", "input_schema": {"type": "object"}, "run": nothing}
    return ToolDefinition(**values | parts)


@pytest.fixture
def module() -> Iterator[Callable[..., str]]:
    """An importable module with these attributes; what it registered is forgotten after the test."""
    known = dict(registry._tools)
    made: list[str] = []

    def build(name: str, **attributes: Any) -> str:
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(attributes)
        made.append(name)
        return name

    yield build
    for name in made:
        del sys.modules[name]
    registry._tools.clear()
    registry._tools.update(known)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"name": "with space"}, "a name starts with a letter"),
        ({"name": "9lives"}, "a name starts with a letter"),
        ({"name": "x" * 65}, "at most 64"),
        ({"name": "mcp__linear__get"}, "belong to MCP servers"),
        ({"name": "set_label"}, "another tool has this name"),
        ({"description": "  "}, "needs a description"),
        ({"tool_class": "custom"}, "internal or outside, not custom"),
        ({"tool_class": "psychic"}, "internal or outside, not psychic"),
        ({"time_limit": 0}, "more than 0 seconds"),
        ({"tool_class": "internal", "rerun_safe": True}, "for outside tools"),
        ({"tool_class": "internal", "time_limit": 5}, "for outside tools"),
        ({"tool_class": "internal"}, r"must take \(arguments, context, session\)"),
        ({"tool_class": "internal", "run": nothing_async}, "can't be async"),
        ({"run": lambda arguments: None}, r"must take \(arguments, context\)"),
        ({"run": None}, "must be a function"),
        ({"input_schema": {"type": "string"}}, "must describe an object"),
        ({"input_schema": {}}, "must describe an object"),
        (
            {"input_schema": {"type": "object", "properties": {"a": {"type": "text"}}}},
            "not a valid JSON Schema: at /properties/a/type",
        ),
    ],
)
def test_a_tool_that_can_not_be_offered_is_refused_by_name(parts: dict[str, Any], words: str) -> None:
    """Said at start, not when a model calls it."""
    with pytest.raises(InvalidTool, match=words) as refused:
        registry.register_tool(definition(**parts))
    assert repr(parts.get("name", "probe")) in str(refused.value)


def test_registering_the_same_definition_again_changes_nothing() -> None:
    """`ready()` may run twice."""
    tool = registry.get("set_label")
    assert tool is not None
    registry.register_tool(tool)
    assert registry.get("set_label") is tool


def test_tools_are_listed_by_name() -> None:
    """For the list of what this deployment offers."""
    names = [tool.name for tool in registry.all_tools()]
    assert names == sorted(names)
    assert "set_label" in names


def test_modules_of_the_settings_bring_their_tools(
    module: Callable[..., str], tenure: Callable[..., None]
) -> None:
    """TENURE_TOOL_MODULES."""
    tenure(tool_modules=(module("team_tools", TOOLS=[definition()]),))
    registry.register_configured_modules()
    assert registry.get("probe") is not None


def test_marked_functions_of_a_module_are_its_tools(
    module: Callable[..., str], tenure: Callable[..., None]
) -> None:
    """TENURE_TOOL_MODULES: without a list, and under two names once; a list beside them counts too."""
    listed = definition(name="listed")
    marked = tool(probe)
    tenure(tool_modules=(module("team_tools", probe=marked, alias=marked, other=nothing, TOOLS=[listed]),))
    registry.register_configured_modules()
    found = registry.get("probe")
    assert found is not None
    assert found.run({"a": 5}, None) == 5
    assert registry.get("listed") is listed
    assert registry.get("nothing") is None


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({}, "no function marked with @tool and no list of ToolDefinition named TOOLS"),
        (
            {"probe": tool(cls="internal")(nothing_async)},
            "tool 'nothing_async' .* the model needs a description",
        ),
        ({"probe": tool(probe), "TOOLS": nothing}, "no list of ToolDefinition named TOOLS"),
        ({"TOOLS": [nothing]}, "no list of ToolDefinition named TOOLS"),
        ({"TOOLS": [definition(name="bad name")]}, "tool 'bad name': a name starts"),
    ],
)
def test_a_bad_module_of_the_settings_is_named(
    module: Callable[..., str], tenure: Callable[..., None], attributes: dict[str, Any], words: str
) -> None:
    """TENURE_TOOL_MODULES: the operator reads which setting and which module."""
    tenure(tool_modules=(module("team_tools", **attributes),))
    with pytest.raises(InvalidTool, match=words) as refused:
        registry.register_configured_modules()
    assert str(refused.value).startswith("TENURE_TOOL_MODULES: ")


def test_a_module_of_the_settings_that_does_not_exist_is_named(tenure: Callable[..., None]) -> None:
    """TENURE_TOOL_MODULES."""
    tenure(tool_modules=("no.such.module",))
    with pytest.raises(
        InvalidTool, match=r"TENURE_TOOL_MODULES: the tool module no\.such\.module cannot be imported"
    ):
        registry.register_configured_modules()


def test_an_app_registers_the_tools_of_its_tools_module(module: Callable[..., str]) -> None:
    """An app without that module registers nothing, and that is no error."""
    package = module("team_app", __path__=[])
    registry.register_app_tools(package)
    assert registry.get("probe") is None
    found = module("team_app.tools", TOOLS=[definition()])
    sys.modules[found].__spec__ = __import__("importlib.machinery").machinery.ModuleSpec(found, None)
    registry.register_app_tools(package)
    assert registry.get("probe") is not None


def test_machines_hold_their_registration_hook() -> None:
    """The app above tools registers through the same function; it has no tools yet."""
    before = registry.all_tools()
    apps.get_app_config("machines_app").ready()
    assert registry.all_tools() == before


def test_development_tools_are_registered_in_development() -> None:
    """Tests run with TENURE_DEBUG."""
    tool = registry.get("dev_lookup")
    assert tool is not None
    assert (tool.tool_class, tool.rerun_safe) == (ToolClass.OUTSIDE, True)
