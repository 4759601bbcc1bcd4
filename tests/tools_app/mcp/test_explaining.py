"""What would become of a call of an MCP tool, by what its server says of it now."""

from typing import Any

import pytest

from sessions_app import configs
from sessions_app.models import AgentConfig
from tests import factories
from tests.tools_app.mcp.conftest import Peer
from tools_app.explanation import Explanation, explain

RULES = [
    {"tool": "mcp__*", "annotations": {"destructive": True}, "then": "deny"},
    {"tool": "mcp__*", "annotations": {"read_only": True}, "then": "allow"},
]

pytestmark = pytest.mark.django_db


def config_of(url: str) -> AgentConfig:
    document = {
        "instructions": "Be brief.",
        "model": "scripted:x",
        "mcp": {"peer": {"url": url}},
        "permissions": RULES,
    }
    return configs.create_config(project=factories.project().pk, document=document).row


def explained(url: str, tool: str, **arguments: Any) -> Explanation:
    return explain(config=config_of(url), tool=tool, arguments=arguments)


def test_rules_on_annotations_see_what_the_server_says(peer: Peer) -> None:
    """T7: read-only is allowed, destructive denied, and what says nothing may be destructive."""
    said = explained(f"{peer.url}/new", "mcp__peer__echo", text="hi")
    assert (said.then, said.rule, said.tool_class) == ("allow", 1, "outside")
    assert explained(f"{peer.url}/new", "mcp__peer__append", file="x").rule == 0
    silent = explained(f"{peer.url}/new", "mcp__peer__weather", city="Bern")
    assert (silent.then, silent.rule) == ("deny", 0)
    assert "may match" in silent.why
    assert peer.times("x") == 0


def test_a_server_that_is_down_is_told(peer: Peer) -> None:
    """T3, T7"""
    said = explained(f"{peer.url}/nowhere", "mcp__peer__echo", text="hi")
    assert (said.then, said.source) == ("fail", "call")
    assert "can't be called now" in said.why


def test_arguments_that_do_not_fit_are_told(peer: Peer) -> None:
    """T3"""
    said = explained(f"{peer.url}/new", "mcp__peer__echo", text=7)
    assert (said.then, said.source) == ("fail", "call")
    assert "do not fit" in said.why
