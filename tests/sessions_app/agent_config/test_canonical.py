"""One document, however it is written, is one config."""

import hashlib
import json

import pytest

from sessions_app.agent_config.canonical import canonical_json, identity
from sessions_app.agent_config.document import parse
from sessions_app.agent_config.yaml import load_json, load_yaml

SHORT_YAML = """
version: 1
instructions: Triage.          # a comment
model: "openai:gpt-5"
tools:
  web_fetch:
  run_command: {time_limit: 10m}
skills: [release-notes@3, house-style]
permissions:
  - {tool: run_command, arguments: {command: {starts_with: ls}, dir: {under: /srv}}, then: allow}
limits: {turn: {cost_usd: "2.00"}}
compaction: {at: 0.80}
"""
LONG_JSON = """{
  "compaction": {"at": 8e-1, "keep_recent": null}, "subagents": null,
  "limits": {"turn": {"cost_usd": "2.00"}},
  "permissions": [{"then": "allow", "tool": "run_command",
    "arguments": {"dir": {"under": ["/srv"]}, "command": {"starts_with": ["ls"]}}}],
  "skills": [{"version": 3, "name": "release-notes"}, {"name": "house-style"}],
  "tools": {"run_command": {"time_limit": "10m"}, "web_fetch": {}},
  "model": {"name": "gpt-5", "provider": "openai"},
  "instructions": "Triage\\u002e", "version": 1}"""


def test_short_yaml_and_long_json_are_one_config():
    short, long = parse(load_yaml(SHORT_YAML)), parse(load_json(LONG_JSON))
    assert canonical_json(short) == canonical_json(long)
    assert identity(short) == identity(long) == hashlib.sha256(canonical_json(long)).hexdigest()


def test_the_canonical_form_is_itself_a_document_with_the_same_identity():
    document = parse(load_yaml(SHORT_YAML))
    again = parse(json.loads(canonical_json(document)))
    assert again == document
    assert canonical_json(again) == canonical_json(document)


def test_the_canonical_json_is_pinned():
    """Stored identities depend on these bytes."""
    document = parse(
        {"model": "openai:gpt-5", "instructions": "ü", "tools": {"b": {}, "a": {}}, "compaction": {"at": 0.5}}
    )
    assert (
        canonical_json(document)
        == (
            '{"compaction":{"at":0.5},"instructions":"ü",'
            '"model":{"name":"gpt-5","provider":"openai"},"tools":{"a":{},"b":{}}}'
        ).encode()
    )
    assert identity(document) == hashlib.sha256(canonical_json(document)).hexdigest()


def test_defaults_are_not_filled_in():
    plain = parse({"model": "openai:gpt-5", "instructions": "x"})
    with_default = parse({"model": "openai:gpt-5", "instructions": "x", "version": 1})
    assert b"version" not in canonical_json(plain)
    assert identity(plain) != identity(with_default)


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": "y"},
        {"model": "openai:gpt-5-mini"},
        {"permissions": [{"tool": "a", "then": "allow", "arguments": {"x": {"equals": None}}}]},
        {"tools": {"web_fetch": {}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_other_document_is_another_config(change):
    base = {"model": "openai:gpt-5", "instructions": "x"}
    assert identity(parse(base | change)) != identity(parse(base))


def test_nulls_inside_free_values_are_kept():
    rule = {"tool": "a", "then": "allow", "arguments": {"x": {"equals": None}, "y": {"in": [None, 1]}}}
    document = parse(
        {
            "model": "scripted:s",
            "instructions": "x",
            "permissions": [rule],
            "script": {"replies": [{"tool_calls": [{"name": "t", "arguments": {"n": None}}]}]},
        }
    )
    form = document.canonical_form()
    assert form["permissions"] == [rule]
    assert form["script"]["replies"][0]["tool_calls"][0]["arguments"] == {"n": None}
