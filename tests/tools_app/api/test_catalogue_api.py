"""What this deployment offers: its tools."""

import pytest

from tests.sessions_app.api.conftest import Api, ok, problem
from tools_app.definitions import ToolDefinition
from tools_app.registry import all_tools


def test_the_tools_are_listed_with_all_that_a_config_has_to_know(api: Api) -> None:
    found = {tool["name"]: tool for tool in ok(api.get("/tools"))["data"]}
    assert list(found) == [tool.name for tool in all_tools()]
    label, lookup = found["set_label"], found["dev_lookup"]
    assert (label["class"], label["rerun_safe"], label["time_limit"], label["permission"]) == (
        "internal",
        False,
        None,
        "allow",
    )
    assert label["description"].startswith("Set a label of this session")
    assert label["input_schema"]["required"] == ["key", "value"]
    assert (lookup["class"], lookup["rerun_safe"], lookup["time_limit"]) == ("outside", True, 600)
    assert found["create_skill"]["permission"] == "ask"
    assert found["ask_user"]["class"] == "human"


@pytest.mark.parametrize(
    ("tool", "permission"),
    [
        (ToolDefinition(name="a", description="A.", input_schema={}), "ask"),
        (ToolDefinition(name="a", description="A.", input_schema={}, rerun_safe=True), "allow"),
        (ToolDefinition(name="a", description="A.", input_schema={}, permission="deny"), "deny"),
    ],
)
def test_what_holds_without_a_rule_is_shown(
    api: Api, monkeypatch: pytest.MonkeyPatch, tool: ToolDefinition, permission: str
) -> None:
    """T7: of the team's own tools, those that may change something outside ask."""
    monkeypatch.setattr("tools_app.registry.all_tools", lambda: [tool])
    (found,) = ok(api.get("/tools"))["data"]
    assert found["permission"] == permission


def test_nobody_reads_the_catalogue_without_a_key(anybody: Api) -> None:
    problem(anybody.get("/tools"), 401, "unauthenticated")
    problem(anybody.get("/models"), 401, "unauthenticated")
