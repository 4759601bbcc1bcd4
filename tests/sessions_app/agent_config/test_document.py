"""The agent config document: the whole shape is checked, and every mistake is told with its place."""

import copy
from pathlib import Path

import pytest

from sessions_app.agent_config.document import MAX_BYTES, MAX_DEPTH, parse
from sessions_app.agent_config.patterns import compile_pattern
from sessions_app.agent_config.shape import InvalidConfig
from sessions_app.agent_config.values import seconds
from sessions_app.agent_config.warnings import KnownSkill, warnings
from sessions_app.agent_config.yaml import load_yaml

FULL = load_yaml((Path(__file__).parent / "full.yaml").read_bytes())
MINIMAL = {"instructions": "Help.", "model": "openai:gpt-5"}
SCRIPTED = {"instructions": "Help.", "model": "scripted:demo"}


def errors_of(document) -> list[tuple[str, str]]:
    with pytest.raises(InvalidConfig) as refused:
        parse(document)
    assert all(set(error) == {"path", "code", "message"} for error in refused.value.errors)
    assert all(error["message"] for error in refused.value.errors)
    return [(error["path"], error["code"]) for error in refused.value.errors]


def test_the_whole_shape_is_accepted_and_kept():
    document = parse(FULL)
    assert document.model.base_url == "https://llm.example.com/v1"
    assert document.tools["create_ticket"].deadline == "1h"
    assert document.tools["price_lookup"].rerun_safe is True
    assert document.skills[0].version == 3
    assert document.permissions[0].arguments["command"].starts_with == ["git status", "ls"]
    assert document.limits.turn.cost_usd == "2.00"


def test_parsing_leaves_the_document_alone():
    before = copy.deepcopy(FULL)
    parse(FULL)
    assert before == FULL


def test_only_instructions_and_model_are_required():
    assert errors_of({}) == [("/instructions", "required"), ("/model", "required")]
    parse(MINIMAL)


def test_a_null_says_the_same_as_leaving_the_field_out():
    assert parse(MINIMAL | {"tools": None, "limits": {"turn": None}}).tools is None
    assert errors_of(MINIMAL | {"instructions": None}) == [("/instructions", "wrong_type")]


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_a_document_is_an_object(document):
    assert errors_of(document) == [("", "wrong_type")]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/model",
        "/model/settings",
        "/tools/run_command",
        "/tools/create_ticket",
        "/tools/price_lookup",
        "/tools/price_lookup/headers/X-Key",
        "/permissions/0",
        "/permissions/0/arguments/command",
        "/mcp/linear",
        "/mcp/linear/auth",
        "/subagents",
        "/machines/0",
        "/limits",
        "/limits/turn",
        "/limits/session",
        "/compaction",
    ],
)
def test_unknown_fields_are_errors_with_their_path(path):
    document = copy.deepcopy(FULL)
    part = document
    for step in path.split("/")[1:]:
        part = part[int(step) if isinstance(part, list) else step]
    part["surprise"] = 1
    assert errors_of(document) == [(f"{path}/surprise", "unknown_field")]


def test_unknown_fields_of_a_script_are_errors_with_their_path():
    reply = {"tool_calls": [{"name": "a", "x": 1}], "error": None, "when": {"contains": "y", "x": 1}, "x": 1}
    found = errors_of(SCRIPTED | {"script": {"replies": [reply, {"error": {"status": 500, "x": 1}}], "x": 1}})
    assert sorted(path for path, _code in found) == [
        "/script/replies/0/tool_calls/0/x",
        "/script/replies/0/when/x",
        "/script/replies/0/x",
        "/script/replies/1/error/x",
        "/script/x",
    ]


OBJECT = {"type": "object"}
CUSTOM = {"class": "custom", "description": "x", "input_schema": OBJECT}
HTTP = {"class": "outside", "method": "GET", "url": "https://x.example/{a}"}
RULE = {"tool": "x", "then": "ask"}


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"version": 2}, "/version", "out_of_range"),
        ({"version": True}, "/version", "wrong_type"),
        ({"version": "1"}, "/version", "wrong_type"),
        ({"instructions": ""}, "/instructions", "too_short"),
        ({"instructions": 1}, "/instructions", "wrong_type"),
        ({"model": "gpt-5"}, "/model", "malformed"),
        ({"model": ":gpt"}, "/model", "malformed"),
        ({"model": 1}, "/model", "wrong_type"),
        ({"model": "Open AI:x"}, "/model/provider", "malformed"),
        ({"model": {"provider": "openai"}}, "/model/name", "required"),
        ({"model": {"provider": "a", "name": "b", "base_url": "ftp://x"}}, "/model/base_url", "malformed"),
        (
            {"model": {"provider": "a", "name": "b", "base_url": "https://u:p@x/"}},
            "/model/base_url",
            "malformed",
        ),
        ({"model": {"provider": "a", "name": "b", "base_url": "https://"}}, "/model/base_url", "malformed"),
        (
            {"model": {"provider": "a", "name": "b", "base_url": "https://x:99999"}},
            "/model/base_url",
            "malformed",
        ),
        (
            {"model": {"provider": "a", "name": "b", "base_url": "https://x y"}},
            "/model/base_url",
            "malformed",
        ),
        ({"model": {"provider": "a", "name": "b", "credential": "a b"}}, "/model/credential", "malformed"),
        (
            {"model": {"provider": "a", "name": "b", "settings": {"max_tokens": 2.5}}},
            "/model/settings/max_tokens",
            "wrong_type",
        ),
        (
            {"model": {"provider": "a", "name": "b", "settings": {"temperature": True}}},
            "/model/settings/temperature",
            "wrong_type",
        ),
        (
            {"model": {"provider": "a", "name": "b", "settings": {"reasoning": "very"}}},
            "/model/settings/reasoning",
            "not_allowed",
        ),
        ({"output_schema": {"type": "array"}}, "/output_schema", "invalid_schema"),
        ({"output_schema": {"type": "objct"}}, "/output_schema", "invalid_schema"),
        ({"output_schema": {"properties": {"a": {"pattern": "("}}}}, "/output_schema", "invalid_schema"),
        ({"output_schema": {"properties": {"a": {"$ref": "http://x/"}}}}, "/output_schema", "invalid_schema"),
        ({"output_schema": {"properties": {"a": {"$ref": "#/$defs/a"}}}}, "/output_schema", "invalid_schema"),
        ({"output_schema": {"$schema": "http://x/"}}, "/output_schema", "invalid_schema"),
        ({"output_schema": True}, "/output_schema", "wrong_type"),
        ({"tools": []}, "/tools", "wrong_type"),
        ({"tools": {"a b": {}}}, "/tools/a b", "malformed"),
        ({"tools": {"mcp__x__y": {}}}, "/tools/mcp__x__y", "not_allowed"),
        ({"tools": {"x": []}}, "/tools/x", "wrong_type"),
        ({"tools": {"x": {"time_limit": "10"}}}, "/tools/x/time_limit", "malformed"),
        ({"tools": {"x": {"time_limit": 10}}}, "/tools/x/time_limit", "wrong_type"),
        ({"tools": {"x": {"time_limit": "0s"}}}, "/tools/x/time_limit", "out_of_range"),
        ({"tools": {"x": {"time_limit": "400d"}}}, "/tools/x/time_limit", "out_of_range"),
        ({"tools": {"x": {"class": "internal"}}}, "/tools/x/class", "unknown_class"),
        ({"tools": {"x": {"class": 1}}}, "/tools/x/class", "unknown_class"),
        ({"tools": {"x": {"class": "custom", "description": "d"}}}, "/tools/x/input_schema", "required"),
        ({"tools": {"x": CUSTOM | {"on_deadline": "fail"}}}, "/tools/x", "required"),
        (
            {"tools": {"x": CUSTOM | {"deadline": "1h", "on_deadline": "retry"}}},
            "/tools/x/on_deadline",
            "not_allowed",
        ),
        (
            {"tools": {"x": CUSTOM | {"input_schema": {"type": "string"}}}},
            "/tools/x/input_schema",
            "invalid_schema",
        ),
        ({"tools": {"x": HTTP | {"method": "get"}}}, "/tools/x/method", "not_allowed"),
        ({"tools": {"x": HTTP | {"url": "https://{host}/"}}}, "/tools/x/url", "malformed"),
        ({"tools": {"x": HTTP | {"url": "{scheme}://x/"}}}, "/tools/x/url", "malformed"),
        ({"tools": {"x": HTTP | {"url": "https://x/{a"}}}, "/tools/x/url", "malformed"),
        ({"tools": {"x": HTTP | {"url": "https://x?{a b}"}}}, "/tools/x/url", "malformed"),
        ({"tools": {"x": HTTP | {"rerun_safe": "yes"}}}, "/tools/x/rerun_safe", "wrong_type"),
        ({"tools": {"x": HTTP | {"input_schema": OBJECT}}}, "/tools/x", "required"),
        ({"tools": {"x": HTTP | {"headers": {"Host": "a"}}}}, "/tools/x/headers/Host", "not_allowed"),
        ({"tools": {"x": HTTP | {"headers": {"A": "b\r\nC: d"}}}}, "/tools/x/headers/A", "malformed"),
        ({"tools": {"x": HTTP | {"headers": {"A": {}}}}}, "/tools/x/headers/A/secret", "required"),
        ({"permissions": [{"tool": "x"}]}, "/permissions/0/then", "required"),
        ({"permissions": [RULE | {"then": "maybe"}]}, "/permissions/0/then", "not_allowed"),
        ({"permissions": [RULE | {"tool": "x y"}]}, "/permissions/0/tool", "malformed"),
        ({"permissions": [RULE | {"arguments": {"a": {}}}]}, "/permissions/0/arguments/a", "required"),
        ({"permissions": [RULE | {"arguments": {"a": "b"}}]}, "/permissions/0/arguments/a", "wrong_type"),
        (
            {"permissions": [RULE | {"arguments": {"a": {"in": 1}}}]},
            "/permissions/0/arguments/a/in",
            "wrong_type",
        ),
        (
            {"permissions": [RULE | {"arguments": {"a": {"in": []}}}]},
            "/permissions/0/arguments/a/in",
            "too_short",
        ),
        (
            {"permissions": [RULE | {"arguments": {"a": {"under": "/srv/../etc"}}}]},
            "/permissions/0/arguments/a/under/0",
            "malformed",
        ),
        (
            {"permissions": [RULE | {"arguments": {"a": {"host": ["https://x"]}}}]},
            "/permissions/0/arguments/a/host/0",
            "malformed",
        ),
        ({"permissions": [RULE | {"annotations": {}}]}, "/permissions/0/annotations", "required"),
        (
            {"permissions": [RULE | {"annotations": {"read_only": "yes"}}]},
            "/permissions/0/annotations/read_only",
            "wrong_type",
        ),
        (
            {"permissions": [RULE | {"annotations": {"open_world": True}}]},
            "/permissions/0/annotations/open_world",
            "unknown_field",
        ),
        ({"permissions": [RULE | {"then": "allow", "expires_after": "2d"}]}, "/permissions/0", "not_allowed"),
        ({"permissions": [RULE | {"on_expiry": "deny"}]}, "/permissions/0", "required"),
        (
            {"permissions": [RULE | {"expires_after": "1d", "on_expiry": "allow"}]},
            "/permissions/0/on_expiry",
            "not_allowed",
        ),
        ({"mcp": {"a_b": {"url": "https://x"}}}, "/mcp/a_b", "malformed"),
        ({"mcp": {"a": {}}}, "/mcp/a/url", "required"),
        ({"subagents": {"max_depth": -1}}, "/subagents/max_depth", "out_of_range"),
        ({"machines": [{}]}, "/machines/0/machine", "required"),
        ({"machines": [{"machine": "a", "env": {"A": 1}}]}, "/machines/0/env/A", "wrong_type"),
        ({"machines": [{"machine": "a", "env": {"A=": "1"}}]}, "/machines/0/env/A=", "malformed"),
        ({"machines": [{"machine": "a"}, {"machine": "a"}]}, "/machines/1", "duplicate"),
        ({"skills": ["a@x"]}, "/skills/0", "malformed"),
        ({"skills": ["a@0"]}, "/skills/0", "malformed"),
        ({"skills": ["a@1", "a@2"]}, "/skills/1", "duplicate"),
        ({"limits": {"turn": {"cost_usd": 2.0}}}, "/limits/turn/cost_usd", "malformed"),
        ({"limits": {"turn": {"cost_usd": "2,00"}}}, "/limits/turn/cost_usd", "malformed"),
        ({"limits": {"turn": {"cost_usd": "0.00"}}}, "/limits/turn/cost_usd", "out_of_range"),
        ({"limits": {"turn": {"model_calls": 0}}}, "/limits/turn/model_calls", "out_of_range"),
        ({"limits": {"on_limit": "ignore"}}, "/limits/on_limit", "not_allowed"),
        ({"compaction": {"at": 1}}, "/compaction/at", "out_of_range"),
        ({"compaction": {"at": 0.5, "keep_recent": 0.5}}, "/compaction", "out_of_range"),
        ({"script": {"replies": []}}, "/script", "not_allowed"),
        ({"output_schema": {"minimum": 2**60}}, "/output_schema/minimum", "out_of_range"),
        ({"output_schema": {"minimum": float("nan")}}, "/output_schema/minimum", "nan"),
    ],
)
def test_a_mistake_is_told_with_its_path_and_code(change, path, code):
    assert errors_of(MINIMAL | change) == [(path, code)]


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?=a)b", "(?<!a)b", "(?>a)", "a++", "(", "a{2000}", "x" * 1001]
)
def test_patterns_beyond_re2_are_refused(pattern):
    rule = RULE | {"arguments": {"a": {"matches": pattern}}}
    path = "/permissions/0/arguments/a/matches"
    assert errors_of(MINIMAL | {"permissions": [rule]}) == [(path, "invalid_pattern")]


def test_patterns_are_anchored_and_take_linear_time():
    """A pattern that hangs a backtracking engine for ages; here the test's own time limit would notice."""
    assert compile_pattern("(a+)+$").fullmatch("a" * 50_000 + "b") is None
    assert compile_pattern("git (status|log)").fullmatch("git status")
    assert compile_pattern("git (status|log)").fullmatch("git status; rm") is None
    assert compile_pattern("é+").fullmatch("ééé")


@pytest.mark.parametrize(
    ("reply", "path", "code"),
    [
        ({"text": 1}, "/text", "wrong_type"),
        ({"tool_calls": [{"arguments": {}}]}, "/tool_calls/0/name", "required"),
        ({"tool_calls": [{"name": "a", "arguments": []}]}, "/tool_calls/0/arguments", "wrong_type"),
        ({"delay": "soon"}, "/delay", "malformed"),
        ({"delay": -1}, "/delay", "out_of_range"),
        ({"delay": True}, "/delay", "wrong_type"),
        ({"tokens_per_second": 0}, "/tokens_per_second", "out_of_range"),
        ({"error": {"status": 200}}, "/error/status", "out_of_range"),
        ({"error": {}}, "/error/status", "required"),
        ({"error": {"status": 500, "retry_after": []}}, "/error/retry_after", "wrong_type"),
        ({"error": {"status": 500}, "text": "x"}, "", "not_allowed"),
        ({"cut": "yes"}, "/cut", "wrong_type"),
        ({"when": {}}, "/when/contains", "required"),
    ],
)
def test_a_script_is_checked_reply_by_reply(reply, path, code):
    document = SCRIPTED | {"script": {"replies": [{"text": "ok"}, reply]}}
    assert errors_of(document) == [(f"/script/replies/1{path}", code)]


def test_a_script_of_every_kind_of_reply_is_accepted():
    replies = [
        {"text": "hi", "reasoning": "hm", "delay": "1.5s", "tokens_per_second": 40},
        {
            "tool_calls": [{"name": "set_label", "arguments": {"key": "a", "value": "b"}, "id": "c1"}],
            "delay": 0,
        },
        {"error": {"status": 529, "retry_after": 2, "code": "overloaded"}},
        {"error": {"status": 429, "retry_after": "Wed, 21 Oct 2065 07:28:00 GMT"}},
        {"text": "half", "cut": True},
        {"text": "matched", "when": {"contains": "error"}},
    ]
    script = parse(SCRIPTED | {"script": {"replies": replies, "loop": True}}).canonical_form()["script"]
    assert script == {"replies": replies, "loop": True}


def test_several_mistakes_are_told_at_once():
    found = errors_of({"model": "x", "tools": {"a": {"b": 1}}, "extra": 1})
    assert {path for path, _code in found} == {"/instructions", "/model", "/tools/a/b", "/extra"}


def test_text_is_made_storable():
    """S8."""
    assert parse(MINIMAL | {"instructions": "a\0b\ud800"}).instructions == "a\ufffdb\ufffd"


def test_size_and_nesting_are_bounded():
    assert errors_of(MINIMAL | {"instructions": "x" * (MAX_BYTES + 1)}) == [("", "too_large")]
    assert errors_of(MINIMAL | {"instructions": "ü" * (MAX_BYTES - 100)}) == [("", "too_large")]
    deep: object = 1
    for _ in range(MAX_DEPTH):
        deep = {"properties": deep}
    [(path, code)] = errors_of(MINIMAL | {"output_schema": deep})
    assert code == "too_deep"
    assert path.startswith("/output_schema/properties/")


@pytest.mark.parametrize(
    ("text", "length"), [("200ms", 0.2), ("30s", 30), ("10m", 600), ("1.5h", 5400), ("2d", 172800)]
)
def test_durations_are_seconds(text, length):
    assert seconds(text) == pytest.approx(length)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1 s", "1m30s", "١s", "1S"])
def test_other_text_is_no_duration(text):
    with pytest.raises(ValueError, match="not a duration"):
        seconds(text)


def found_warnings(document, **known):
    names = {"known_tools": (), "known_secrets": (), "known_machines": (), "known_skills": {}} | known
    return [(found["path"], found["code"]) for found in warnings(parse(document), **names)]


def test_names_that_this_deployment_lacks_are_warnings():
    assert found_warnings(FULL, known_providers=["anthropic"]) == [
        ("/model/provider", "unknown_provider"),
        ("/tools/web_fetch", "unknown_tool"),
        ("/tools/ask_user", "unknown_tool"),
        ("/tools/run_command", "unknown_tool"),
        ("/model/credential", "unknown_secret"),
        ("/tools/price_lookup/headers/X-Key/secret", "unknown_secret"),
        ("/mcp/linear/auth/bearer", "unknown_secret"),
        ("/machines/0/machine", "unknown_machine"),
        ("/skills/0", "unknown_skill"),
    ]


def test_known_names_are_no_warnings():
    assert not found_warnings(
        FULL,
        known_providers=["openai"],
        known_tools={"web_fetch", "ask_user", "run_command"},
        known_secrets={"openai-prod", "linear-token", "price-key"},
        known_machines={"build-1"},
        known_skills={"release-notes": KnownSkill(newest=3)},
    )


@pytest.mark.parametrize(
    ("there", "warned"),
    [
        ({}, ["/skills/0", "/skills/1"]),
        ({"notes": KnownSkill(newest=2)}, []),
        ({"notes": KnownSkill(newest=1)}, ["/skills/1"]),
        ({"notes": KnownSkill(newest=2, is_deleted=True)}, ["/skills/0"]),
    ],
)
def test_skills_are_looked_for_with_their_versions(there, warned):
    for index, skill in enumerate(["notes", "notes@2"]):
        found = found_warnings(MINIMAL | {"skills": [skill]}, known_skills=there)
        assert found == ([("/skills/0", "unknown_skill")] if f"/skills/{index}" in warned else [])


def test_rules_for_tools_that_nobody_has_are_warnings():
    rules = [
        {"tool": name, "then": "deny"}
        for name in ("run_comand", "mcp__linear__x", "mcp__nobody__*", "mcp__*", "git_*", "mine", "known")
    ]
    document = MINIMAL | {
        "permissions": rules,
        "mcp": {"linear": {"url": "https://mcp.example"}},
        "tools": {"mine": CUSTOM},
    }
    assert found_warnings(document, known_tools={"known"}) == [
        ("/permissions/0/tool", "unknown_tool"),
        ("/permissions/2/tool", "unknown_mcp_server"),
    ]
