"""What happens without a rule."""

import pytest

from tools_app.permissions import default_for


@pytest.mark.parametrize(
    ("tool", "tool_class", "more", "decision"),
    [
        ("set_label", "internal", {}, "allow"),
        ("ask_user", "human", {}, "allow"),
        ("create_ticket", "custom", {}, "allow"),
        ("web_search", "outside", {}, "allow"),
        ("web_fetch", "outside", {}, "allow"),
        ("price_lookup", "outside", {"method": "GET"}, "allow"),
        ("price_lookup", "outside", {"method": "HEAD"}, "ask"),
        ("place_order", "outside", {"method": "POST"}, "ask"),
        ("place_order", "outside", {"method": "POST", "rerun_safe": True}, "ask"),
        ("web_fetch", "outside", {"method": "DELETE"}, "ask"),
        ("send_mail", "outside", {}, "ask"),
        ("look_up", "outside", {"rerun_safe": True}, "allow"),
        ("run_command", "command", {}, "ask"),
        ("read_process", "command", {}, "ask"),
        ("mcp__linear__get_issue", "outside", {}, "ask"),
        ("mcp__linear__get_issue", "outside", {"rerun_safe": True}, "ask"),
        ("anything", "of_a_new_class", {}, "ask"),
        ("send_mail", "outside", {"declared": "allow"}, "allow"),
        ("look_up", "outside", {"rerun_safe": True, "declared": "ask"}, "ask"),
        ("set_label", "internal", {"declared": "deny"}, "deny"),
    ],
)
def test_the_default_of_a_class(tool, tool_class, more, decision):
    """T7: reading and what stays inside is allowed; what may change something outside asks."""
    assert default_for(tool=tool, tool_class=tool_class, **more) == decision
