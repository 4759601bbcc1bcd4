"""What becomes of the calls in a reply: the good, the wrong, the doubled."""

import copy
import json
from typing import Any

import pytest

from sessions_app import ids
from sessions_app.tool_port import Call
from tools_app import arguments
from tools_app.preparation import MAX_NAME
from tools_app.toolkit import of_config

TITLE = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
CONFIG = {
    "tools": {
        "dev_append": {"time_limit": "30s"},
        "dev_lookup": {},
        "set_label": {},
        "create_ticket": {
            "class": "custom",
            "description": "File a ticket.",
            "input_schema": TITLE,
            "deadline": "1h",
        },
        "patient": {
            "class": "custom",
            "description": "Wait.",
            "input_schema": TITLE,
            "deadline": "1h",
            "on_deadline": "keep_waiting",
        },
        "not_here": {},
    }
}
APPEND = {"file": "a"}


def block(name: str = "dev_append", args: Any = APPEND, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": args} | more


def prepared(
    *blocks: dict[str, Any], config: dict[str, Any] = CONFIG
) -> tuple[list[dict[str, Any]], list[Call]]:
    return of_config(config).prepare(session=ids.new_id(), turn=ids.new_id(), blocks=list(blocks))


def only(*blocks: dict[str, Any], config: dict[str, Any] = CONFIG) -> Call:
    _, (call,) = prepared(*blocks, config=config)
    return call


def refusal(call: Call) -> str:
    assert (call.state, call.result and call.result.outcome) == ("completed", "failed")
    assert call.result
    return str(call.result.content[0]["text"])


# --- where a call starts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "state", "tool_class", "rerun_safe", "time_limit", "deadline"),
    [
        ("dev_append", APPEND, "running", "outside", False, 30.0, None),
        ("dev_lookup", {"key": "k"}, "running", "outside", True, 600.0, None),
        ("set_label", {"key": "k", "value": "v"}, "ready", "internal", False, None, None),
        ("create_ticket", {"title": "t"}, "waiting", "custom", False, None, 3600.0),
        ("patient", {"title": "t"}, "waiting", "custom", False, None, None),
    ],
)
def test_the_class_of_a_tool_says_where_its_calls_start(
    name: str,
    args: dict[str, Any],
    state: str,
    tool_class: str,
    rerun_safe: bool,
    time_limit: float | None,
    deadline: float | None,
) -> None:
    """S5, T1, T5: outside runs at once with a limit, internal is ready, custom waits (without end if so asked)."""
    call = only(block(name, args))
    assert (call.state, call.tool_class, call.rerun_safe) == (state, tool_class, rerun_safe)
    assert (call.time_limit, call.deadline, call.arguments, call.result) == (time_limit, deadline, args, None)


def test_calls_stand_in_the_order_of_the_reply_and_blocks_name_them() -> None:
    """T2: positions count calls, other blocks stay as they are and where they are."""
    reasoning = {"type": "reasoning", "text": "hm", "signature": "s", "provider": "anthropic"}
    blocks, calls = prepared(
        reasoning,
        block(call_id="a"),
        {"type": "text", "text": "and"},
        block("nix", {}, "b"),
        block(call_id="c"),
    )
    assert [call.position for call in calls] == [0, 1, 2]
    assert [item["type"] for item in blocks] == ["reasoning", "tool_call", "text", "tool_call", "tool_call"]
    assert blocks[0] is reasoning
    assert [item["tool_call"] for item in blocks if "tool_call" in item] == [
        ids.encode("tcl", call.id) for call in calls
    ]
    assert [call.call_id for call in calls] == ["a", "b", "c"]


def test_the_reply_itself_is_not_changed() -> None:
    """T3: the provider's reply may be looked at again."""
    reply = [block("nix", "{", "x"), block(args={"file": "a\x00"}), block(call_id="c1", args={"file": 1})]
    before = copy.deepcopy(reply)
    prepared(*reply)
    assert reply == before


def test_what_else_a_block_carries_goes_along() -> None:
    """Provider details have to go back unchanged."""
    blocks, _ = prepared(block(details={"item": "fc_1"}))
    assert blocks[0]["details"] == {"item": "fc_1"}


# --- what cannot be called -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("nix", CONFIG, "There is no tool named 'nix'"),
        ("not_here", CONFIG, "not available here"),
        ("dev_append", {"tools": {"dev_lookup": {}}}, "disabled for this agent"),
        ("dev_append", {}, "There are no tools you can call"),
        ("", CONFIG, "There is no tool named ''"),
    ],
)
def test_a_tool_that_is_not_there_is_a_failed_result_with_the_ones_that_are(
    name: str, config: dict[str, Any], words: str
) -> None:
    """T3, A83: unknown, disabled and missing tools end the call, not the turn."""
    text = refusal(only(block(name, {"a": 1}), config=config))
    assert words in text
    if config.get("tools"):
        assert "The tools you can call are: dev_" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "'file' is a required property"),
        ({"file": 5}, "at /file: 5 is not of type 'string'"),
        ({"file": "a", "more": 1}, "'more' was unexpected"),
        ({"file": "a", "delay": -1}, "at /delay: -1 is less than the minimum of 0"),
        ([1], "must be a JSON object, not an array"),
        ("7", "must be a JSON object, not a number"),
        ('"x"', "must be a JSON object, not a string"),
        (True, "must be a JSON object, not a boolean"),
        ('{"file": ', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_a_failed_result_that_says_where(args: Any, words: str) -> None:
    """T3, A83."""
    text = refusal(only(block(args=args)))
    assert text.startswith("dev_append was not called: ")
    assert words in text
    assert len(text) < 2000


def test_the_model_is_told_of_several_mistakes_but_not_of_a_thousand() -> None:
    """T3."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    config = {"tools": {"t": {"class": "custom", "description": "T.", "input_schema": schema}}}
    text = refusal(only(block("t", {f"k{i}": "x" * 5000 for i in range(1000)}), config=config))
    assert text.count("is not of type 'integer'") <= 5
    assert len(text) < 2000


@pytest.mark.parametrize("nothing", ["", "  \n", None, "null", "{}"])
def test_an_empty_argument_text_means_no_arguments(nothing: str | None) -> None:
    """T3."""
    config = {"tools": {"t": {"class": "custom", "description": "T.", "input_schema": {"type": "object"}}}}
    blocks, (call,) = prepared(block("t", nothing), config=config)
    assert (call.state, call.arguments) == ("waiting", {})
    assert blocks[0]["arguments"] == {}


def test_raw_arguments_of_the_provider_are_read_where_there_are_any() -> None:
    """T3: `arguments` is only a placeholder then."""
    assert only(block("create_ticket", {}, arguments_raw='{"title": "t"}')).arguments == {"title": "t"}
    call = only(block("create_ticket", {}, arguments_raw='{"title": "t'))
    assert "not valid JSON" in refusal(call)
    config = {"tools": {"t": {"class": "custom", "description": "T.", "input_schema": {"type": "object"}}}}
    assert only(block("t", {}, arguments_raw=""), config=config).state == "waiting"


def test_what_the_model_wrote_instead_of_an_object_is_kept_beside_it() -> None:
    """T3: requests hold an object, people can still see the text."""
    blocks, _ = prepared(block(args=[1, 2]))
    assert (blocks[0]["arguments"], blocks[0]["arguments_raw"]) == ({}, "[1, 2]")
    blocks, _ = prepared(block(args='{"file'))
    assert (blocks[0]["arguments"], blocks[0]["arguments_raw"]) == ({}, '{"file')


def test_arguments_are_stored_as_they_can_be_stored() -> None:
    """S8, T3: replaced and null where it can be, refused where it is too deep."""
    blocks, (call,) = prepared(block(args={"file": "a\x00\ud800", "delay": 0}))
    assert call.arguments["file"] == blocks[0]["arguments"]["file"] == "a\ufffd\ufffd"
    deep: Any = {}
    for _ in range(300):
        deep = {"file": deep}
    blocks, (call,) = prepared(block(args=deep))
    assert "nested" in refusal(call)
    assert blocks[0]["arguments"] == {}
    assert "delay: None" in refusal(only(block(args={"file": "a", "delay": float("nan")})))


def test_names_that_no_tool_can_have_still_fit_their_column() -> None:
    """T3: an invented name fails the call and nothing else."""
    blocks, (call,) = prepared(block("x\x00" * 500, {}))
    assert len(call.name) == MAX_NAME
    assert blocks[0]["name"] == call.name
    assert "\x00" not in call.name


# --- ids -------------------------------------------------------------------------------------------------


def test_the_same_call_said_twice_is_one_call() -> None:
    """C05: same id, name and arguments, in whatever key order."""
    first = block("dev_append", {"file": "x", "delay": 1}, "d2")
    twin = block("dev_append", {"delay": 1, "file": "x"}, "d2")
    blocks, calls = prepared(block("dev_append", {"file": "y"}, "d1"), first, twin)
    assert [call.call_id for call in calls] == ["d1", "d2"]
    assert [item["id"] for item in blocks] == ["d1", "d2"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (block(args={"file": "x"}), block(args={"file": "y"})),
        (block("dev_append", {}), block("dev_lookup", {})),
        (block(args={"delay": 1}), block(args={"delay": True})),
        (block(args={"delay": 1}), block(args={"delay": "1"})),
    ],
)
def test_two_calls_under_one_id_are_two_calls(one: dict[str, Any], two: dict[str, Any]) -> None:
    """C06: the second gets an id of its own, in its block too."""
    blocks, calls = prepared(one, two)
    assert [item["id"] for item in blocks] == [call.call_id for call in calls]
    assert calls[0].call_id == "c1"
    assert calls[1].call_id not in {"", "c1"}


def test_a_third_call_under_one_id_gets_yet_another() -> None:
    """C06."""
    _, calls = prepared(*(block(args={"file": str(number)}) for number in range(3)))
    assert len({call.call_id for call in calls}) == 3


@pytest.mark.parametrize("missing", ["", None])
def test_calls_without_an_id_get_one_each(missing: str | None) -> None:
    """C06: without ids nothing says that two are the same call."""
    _, calls = prepared(block(call_id=missing), block(call_id=missing))  # type: ignore[arg-type]
    assert len({call.call_id for call in calls} - {"", None}) == 2


# --- schemas ---------------------------------------------------------------------------------------------


def test_a_schema_is_compiled_once() -> None:
    """The hot path: a config's schema is not compiled for every call."""
    one = arguments.validator_for_schema(json.loads(json.dumps(TITLE)))
    assert arguments.validator_for_schema(json.loads(json.dumps(TITLE))) is one


def test_a_schema_speaks_the_dialect_it_names() -> None:
    """T3: draft 7 knows no prefixItems, so they hold nothing back there."""
    items = {"type": "object", "properties": {"a": {"prefixItems": [{"type": "string"}]}}}
    old = {"$schema": "http://json-schema.org/draft-07/schema#"} | items
    assert arguments.problem_with(arguments.validator_for_schema(items), {"a": [1]}) is not None
    assert arguments.problem_with(arguments.validator_for_schema(old), {"a": [1]}) is None


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"$ref": "https://example.com/schema.json"}])
def test_a_schema_that_can_not_be_applied_fails_the_call_only(schema: dict[str, Any]) -> None:
    """T3: and nothing is fetched for it."""
    problem = arguments.problem_with(arguments.validator_for_schema(schema), {"a": 1})
    assert problem is not None
    assert "can't be applied" in problem


def fits(schema: dict[str, Any], value: Any) -> bool:
    return arguments.problem_with(arguments.validator_for_schema(schema), value) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": False}},
        {"patternProperties": {"^(a+)+$": True}, "additionalProperties": False},
        {"patternProperties": {"^(a+)+$": True}, "unevaluatedProperties": False},
    ],
    ids=["pattern", "patternProperties", "additionalProperties", "unevaluatedProperties"],
)
@pytest.mark.timeout(10)
def test_a_hostile_pattern_does_not_hold_up_the_worker(schema: dict[str, Any]) -> None:
    """T3: it would take Python's regular expressions longer than anybody waits."""
    text = "a" * 5000 + "!"
    fits(schema, {"a": text, text: 1})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"a": {"pattern": "^x[0-9]+$"}}}, {"a": "x12"}, {"a": "y"}),
        ({"properties": {"a": {"pattern": "b"}}}, {"a": "abc"}, {"a": "ac"}),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": 1, "b": "x"}, {"n_a": "x"}),
        (
            {"properties": {"a": {}}, "patternProperties": {"^n_": {}}, "additionalProperties": False},
            {"a": 1, "n_b": 2},
            {"b": 1},
        ),
        (
            {"patternProperties": {"^n_": {}}, "additionalProperties": {"type": "integer"}},
            {"n_a": "x", "b": 1},
            {"b": "x"},
        ),
    ],
)
def test_patterns_still_mean_what_they_say(schema: dict[str, Any], good: Any, bad: Any) -> None:
    """T3: in the newest dialect and an old one."""
    for dialect in ({}, {"$schema": "http://json-schema.org/draft-07/schema#"}):
        assert fits(schema | dialect, good)
        assert not fits(schema | dialect, bad)


def test_a_pattern_beyond_linear_time_holds_nothing_back() -> None:
    """T3: look-around is not checked, the rest of the schema is."""
    schema = {"properties": {"a": {"type": "string", "pattern": "^(?!x)"}}}
    assert fits(schema, {"a": "x"})
    assert not fits(schema, {"a": 1})
