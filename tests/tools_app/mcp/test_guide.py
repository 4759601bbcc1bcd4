"""What the guide shows is what the code takes."""

import json

import yaml

from sessions_app import ids
from sessions_app.agent_config.document import parse
from tests.guides import blocks
from tools_app.mcp import oauth
from tools_app.mcp.servers import server


def test_the_config_of_the_guide_is_valid() -> None:
    (text,) = blocks("mcp", "yaml")
    document = parse({"instructions": "Be brief.", "model": "openai:gpt"} | yaml.safe_load(text))
    assert document.canonical_form()["mcp"]["linear"]["auth"] == {"bearer": "linear-token"}


def test_the_token_of_the_guide_can_be_renewed() -> None:
    (text,) = blocks("mcp", "json")
    config = {"mcp": {"linear": {"url": "https://mcp.example.com", "auth": {"oauth": "token"}}}}
    linear = server(config, "linear", project=ids.new_id())
    assert linear is not None
    stored = oauth._parsed(linear, text.replace('"…"', '"x"'))
    assert stored == json.loads(text.replace('"…"', '"x"'))
    assert oauth._can_renew(stored)
