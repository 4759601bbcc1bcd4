"""MCP servers in an agent config."""

from typing import Any

import pytest

from sessions_app.agent_config.document import parse
from sessions_app.agent_config.shape import InvalidConfig
from sessions_app.agent_config.warnings import warnings

MINIMAL = {"instructions": "Be brief.", "model": "openai:gpt"}
URL = "https://mcp.example"


def document(**server: Any) -> dict[str, Any]:
    return MINIMAL | {"mcp": {"linear": server}}


@pytest.mark.parametrize(
    "server",
    [
        {"url": URL},
        {"url": URL, "auth": {"bearer": "token"}},
        {"url": URL, "auth": {"oauth": "token"}},
        {"url": URL, "headers": {"X-Key": {"secret": "key"}, "X-Team": "blue"}},
        {"url": URL, "tools": ["get_issue", "issues.list", "a/b", "n" * 128], "time_limit": "90s"},
    ],
)
def test_a_server_is_stored_as_it_was_written(server: dict[str, Any]) -> None:
    assert parse(document(**server)).canonical_form()["mcp"] == {"linear": server}


@pytest.mark.parametrize(
    "server",
    [
        {"command": "npx", "args": ["-y", "linear-mcp"]},
        {"type": "stdio", "url": URL},
        {"transport": "stdio", "command": "linear"},
    ],
)
def test_a_server_that_is_started_as_a_program_is_refused_in_words(server: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(document(**server))
    (error,) = caught.value.errors
    assert (error["path"], error["code"]) == ("/mcp/linear", "not_allowed")
    assert "stdio" in error["message"]
    assert "streamable HTTP" in error["message"]


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ({"url": URL, "auth": {}}, "/mcp/linear/auth"),
        ({"url": URL, "auth": {"bearer": "a", "oauth": "b"}}, "/mcp/linear/auth"),
        ({"url": "https://user:word@mcp.example"}, "/mcp/linear/url"),
        ({"url": URL, "headers": {"Host": "else.example"}}, "/mcp/linear/headers/Host"),
        ({"url": URL, "type": "http"}, "/mcp/linear/type"),
    ],
)
def test_a_mistake_is_told_with_its_place(server: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(document(**server))
    assert [error["path"] for error in caught.value.errors] == [path]


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ({"auth": {"bearer": "gone"}}, "/mcp/linear/auth/bearer"),
        ({"auth": {"oauth": "gone"}}, "/mcp/linear/auth/oauth"),
        ({"headers": {"X-Key": {"secret": "gone"}}}, "/mcp/linear/headers/X-Key/secret"),
    ],
)
def test_secrets_that_are_not_there_are_warnings(server: dict[str, Any], path: str) -> None:
    found = warnings(
        parse(document(url=URL, **server)),
        known_tools=(),
        known_secrets={"there"},
        known_machines=(),
        known_skills={},
    )
    assert [(warning["path"], warning["code"]) for warning in found] == [(path, "unknown_secret")]
