"""The rules checker itself: requests that a provider would refuse are refused here, each for its reason."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.providers.request_rules import check_request
from tests.sessions_app.engine.generated import JUNK

Body = dict[str, Any]


def anthropic() -> Body:
    return {
        "model": "m",
        "max_tokens": 1024,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "c2ln"},
                    {"type": "text", "text": "on it"},
                    {"type": "tool_use", "id": "a1", "name": "find", "input": {"q": "x"}},
                    {"type": "tool_use", "id": "a2", "name": "find", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a1", "content": "found", "is_error": False},
                    {
                        "type": "tool_result",
                        "tool_use_id": "a2",
                        "content": [{"type": "text", "text": "nothing"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "and now?"},
                ],
            },
        ],
    }


def chat() -> Body:
    def call(call_id: str) -> Body:
        return {"id": call_id, "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}

    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "assistant", "content": None, "tool_calls": [call("a1"), call("a2")]},
            {"role": "tool", "tool_call_id": "a1", "content": "found"},
            {"role": "tool", "tool_call_id": "a2", "content": "nothing"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "more"},
        ],
    }


def responses() -> Body:
    def call(call_id: str, item: str) -> Body:
        return {
            "type": "function_call",
            "id": item,
            "call_id": call_id,
            "name": "find",
            "arguments": "{}",
        }

    return {
        "model": "m",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "content": [{"type": "output_text", "text": "on it"}],
            },
            call("a1", "fc_1"),
            call("a2", "fc_2"),
            {"type": "function_call_output", "call_id": "a1", "output": "found"},
            {
                "type": "function_call_output",
                "call_id": "a2",
                "output": [{"type": "input_text", "text": "nothing"}],
            },
            {"role": "user", "content": "more"},
        ],
    }


VALID: list[tuple[str, Body]] = [
    ("anthropic", anthropic()),
    ("openai-chat", chat()),
    ("openai", responses()),
    ("openai", {"model": "m", "input": "go"}),
    ("openai", responses() | {"input": responses()["input"][:-1]}),
    ("openai-chat", chat() | {"messages": chat()["messages"][:5]}),
    ("anthropic", anthropic() | {"messages": anthropic()["messages"][:1]}),
    ("anthropic", anthropic() | {"system": [{"type": "text", "text": "Be brief."}]}),
]


@pytest.mark.parametrize(("protocol", "body"), VALID, ids=range(len(VALID)))
def test_a_valid_request_passes(protocol: str, body: Body) -> None:
    before = copy.deepcopy(body)
    assert check_request(protocol, body) == []
    assert body == before


# Names for the parts of the bodies above that the bad requests spoil.
def said(body: Body) -> list[Body]:
    """The messages or items."""
    return body.get("messages") or body["input"]  # type: ignore[no-any-return]


def swap(items: list[Any], one: int, other: int) -> None:
    items[one], items[other] = items[other], items[one]


def put(place: Callable[[Body], Any], key: Any, value: Any) -> Callable[[Body], None]:
    return lambda body: place(body).__setitem__(key, value)


def take(place: Callable[[Body], Any], key: Any) -> Callable[[Body], None]:
    return lambda body: place(body).__delitem__(key)


def message(index: int) -> Callable[[Body], Any]:
    return lambda body: said(body)[index]


def block(index: int, inner: int) -> Callable[[Body], Any]:
    return lambda body: said(body)[index]["content"][inner]


def chat_call(inner: int) -> Callable[[Body], Any]:
    return lambda body: said(body)[2]["tool_calls"][inner]


def rename(*pairs: tuple[Callable[[Body], Any], str], to: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        for place, key in pairs:
            place(body)[key] = to

    return change


LONG = "x" * 65
FIRST_OF_ANTHROPIC = ((block(1, 3), "id"), (block(2, 0), "tool_use_id"))
FIRST_OF_CHAT = ((chat_call(0), "id"), (message(3), "tool_call_id"))
FIRST_OF_RESPONSES = ((message(4), "call_id"), (message(6), "call_id"))

ANTHROPIC: list[tuple[str, Callable[[Body], Any], str]] = [
    ("no model", take(lambda b: b, "model"), "model is missing"),
    ("no max_tokens", take(lambda b: b, "max_tokens"), "max_tokens is missing"),
    ("no messages", put(lambda b: b, "messages", []), "messages is empty"),
    ("empty system", put(lambda b: b, "system", ""), "text is empty"),
    ("starts with the model", lambda b: said(b).pop(0), "the first message is not the user's"),
    ("ends with the model", lambda b: said(b).append({"role": "assistant", "content": "so"}), "last message"),
    ("a system message", put(message(0), "role", "system"), "role 'system' is not allowed"),
    ("dotted id", rename(*FIRST_OF_ANTHROPIC, to="a.1"), "illegal characters"),
    ("long id", rename(*FIRST_OF_ANTHROPIC, to=LONG), "longer than 64"),
    ("empty id", put(block(1, 3), "id", ""), "illegal characters"),
    ("id used twice", rename(*FIRST_OF_ANTHROPIC, to="a2"), "used twice"),
    ("tool name with a space", put(block(1, 3), "name", "to find"), "tool name"),
    ("call not answered", lambda b: said(b)[2]["content"].pop(1), "not answered directly behind"),
    ("call answered twice", put(block(2, 1), "tool_use_id", "a1"), "answered twice"),
    ("result of no call", put(block(2, 0), "tool_use_id", "zz"), "has no call before it"),
    (
        "text between call and results",
        lambda b: said(b).insert(2, {"role": "user", "content": "wait"}),
        "not answered directly behind",
    ),
    ("results out of order", lambda b: swap(said(b)[2]["content"], 0, 1), "not in call order"),
    ("results behind text", lambda b: swap(said(b)[2]["content"], 1, 2), "stands behind other content"),
    ("empty text", put(block(1, 2), "text", ""), "text is empty"),
    ("blank user text", put(message(0), "content", " \n"), "text is empty"),
    ("empty result", put(block(2, 0), "content", ""), "text is empty"),
    ("result without content", take(block(2, 0), "content"), "text is empty"),
    ("message without content", put(message(0), "content", []), "messages[0] is empty"),
    ("arguments as text", put(block(1, 3), "input", "{}"), "arguments are not a JSON object"),
    ("thinking without signature", take(block(1, 0), "signature"), "thinking is not signed"),
    ("redacted thinking without data", put(block(1, 1), "data", ""), "no data"),
    ("reasoning as text", put(block(1, 2), "text", "<thinking>hm</thinking>"), "reasoning is sent as text"),
    (
        "thinking last",
        lambda b: said(b)[1]["content"].append({"type": "thinking", "thinking": "x", "signature": "y"}),
        "thinking is the last block",
    ),
    ("call by the user", put(block(2, 2), "type", "tool_use"), "block type 'tool_use' is not allowed"),
    ("unknown block", put(block(1, 2), "type", "input_text"), "block type 'input_text' is not allowed"),
    ("is_error as text", put(block(2, 0), "is_error", "no"), "is_error is not a boolean"),
    ("half an emoji", put(block(1, 2), "text", "ok \ud83d"), "lone surrogate"),
    ("half an emoji in a key", put(block(1, 3), "input", {"\ud83d": 1}), "lone surrogate"),
    ("not a number", put(block(1, 3), "input", {"n": float("nan")}), "not finite"),
]
CHAT: list[tuple[str, Callable[[Body], Any], str]] = [
    ("id over 40", rename(*FIRST_OF_CHAT, to="x" * 41), "longer than 40"),
    ("id with a pipe", rename(*FIRST_OF_CHAT, to="a|1"), "illegal characters"),
    ("id used twice", rename(*FIRST_OF_CHAT, to="a2"), "used twice"),
    ("call not answered", lambda b: said(b).pop(4), "not answered directly behind"),
    ("call answered twice", put(message(4), "tool_call_id", "a1"), "answered twice"),
    ("result of no call", put(message(3), "tool_call_id", "zz"), "has no call before it"),
    ("result without an id", take(message(3), "tool_call_id"), "names no call"),
    ("results out of order", lambda b: swap(said(b), 3, 4), "not in call order"),
    ("user between call and result", lambda b: swap(said(b), 4, 6), "not answered directly behind"),
    ("late result", lambda b: swap(said(b), 4, 5), "not directly behind its call"),
    ("arguments cut off", put(lambda b: chat_call(0)(b)["function"], "arguments", '{"q":'), "JSON object"),
    ("arguments a list", put(lambda b: chat_call(0)(b)["function"], "arguments", "[1]"), "JSON object"),
    ("arguments with NaN", put(lambda b: chat_call(0)(b)["function"], "arguments", '{"n": NaN}'), "JSON"),
    ("arguments an object", put(lambda b: chat_call(0)(b)["function"], "arguments", {}), "JSON object"),
    (
        "arguments with half an emoji",
        put(lambda b: chat_call(0)(b)["function"], "arguments", '{"s": "\\ud83d"}'),
        "not valid UTF-8",
    ),
    ("no function", take(chat_call(0), "function"), "no function call"),
    ("no calls in the list", put(message(5), "tool_calls", []), "tool_calls is empty"),
    ("reasoning field", put(message(5), "reasoning_content", "hm"), "reasoning is sent as reasoning_content"),
    ("reasoning as text", put(message(5), "content", "<think>hm</think> done"), "reasoning is sent as text"),
    ("empty result", put(message(3), "content", ""), "text is empty"),
    ("empty answer", put(message(5), "content", ""), "text is empty"),
    ("an answer that holds nothing", put(message(5), "content", None), "holds nothing"),
    (
        "picture in a result",
        put(message(3), "content", [{"type": "image_url"}]),
        "'image_url' is not allowed",
    ),
    ("function role", put(message(6), "role", "function"), "role 'function' is not allowed"),
    ("ends with the model", lambda b: said(b).pop(), "neither a user message nor a result"),
]
RESPONSES: list[tuple[str, Callable[[Body], Any], str]] = [
    ("empty input", put(lambda b: b, "input", " "), "text is empty"),
    ("long id", rename(*FIRST_OF_RESPONSES, to=LONG), "longer than 64"),
    ("dotted id", rename(*FIRST_OF_RESPONSES, to="a.1"), "illegal characters"),
    ("id used twice", rename(*FIRST_OF_RESPONSES, to="a2"), "used twice"),
    ("item id used twice", put(message(5), "id", "fc_1"), "item id 'fc_1' is used twice"),
    ("made-up item id of a message", put(message(3), "id", "rs_1"), "item id 'rs_1' is used twice"),
    ("call not answered", lambda b: said(b).pop(7), "not answered directly behind"),
    ("call answered twice", put(message(7), "call_id", "a1"), "answered twice"),
    ("result of no call", put(message(6), "call_id", "zz"), "has no call before it"),
    ("results out of order", lambda b: swap(said(b), 6, 7), "not in call order"),
    ("user between call and result", lambda b: swap(said(b), 7, 8), "not answered directly behind"),
    (
        "reply between the results",
        lambda b: said(b).insert(6, said(b).pop(3)),
        "not answered directly behind",
    ),
    ("arguments cut off", put(message(4), "arguments", "{"), "JSON object"),
    ("reasoning not encrypted", take(message(2), "encrypted_content"), "not encrypted"),
    ("reasoning without its id", take(message(2), "id"), "item id None is not legal"),
    ("reasoning without summary", take(message(2), "summary"), "no summary"),
    ("reasoning with nothing behind it", lambda b: said(b).__delitem__(slice(3, 8)), "what it led to"),
    ("reasoning at the end", lambda b: said(b).append(said(b).pop(2)), "what it led to"),
    ("reasoning as text", put(block(3, 0), "text", "<think>hm</think>"), "reasoning is sent as text"),
    ("empty text", put(block(3, 0), "text", ""), "text is empty"),
    ("empty result", put(message(6), "output", ""), "text is empty"),
    ("user speaks as the model", put(block(1, 0), "type", "output_text"), "'output_text' is not allowed"),
    ("tool role", put(message(8), "role", "tool"), "role 'tool' is not allowed"),
    ("unknown item", put(message(8), "type", "from_the_future"), "'from_the_future' is not allowed"),
    ("ends with the model", lambda b: said(b).append({"role": "assistant", "content": "so"}), "last item"),
    ("half an emoji", put(message(8), "content", "\udc00"), "lone surrogate"),
]

BAD = [
    pytest.param(protocol, make, spoil, reason, id=f"{protocol}: {name}")
    for protocol, make, cases in (
        ("anthropic", anthropic, ANTHROPIC),
        ("openai-chat", chat, CHAT),
        ("openai", responses, RESPONSES),
    )
    for name, spoil, reason in cases
]


@pytest.mark.parametrize(("protocol", "make", "spoil", "reason"), BAD)
def test_a_request_that_a_provider_refuses_is_refused_for_its_reason(
    protocol: str, make: Callable[[], Body], spoil: Callable[[Body], Any], reason: str
) -> None:
    """C04, C05, C06, C10, C12, C13, C18, C20, C23, C31: one fault each."""
    body = make()
    spoil(body)
    found = check_request(protocol, body)
    assert any(reason in fault for fault in found), found


def test_what_is_no_request_at_all_is_refused() -> None:
    assert check_request("gopher", {}) == ["unknown protocol 'gopher'"]
    assert check_request("openai", [1]) == ["the body is not an object"]
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    assert check_request("openai", {"model": "m", "input": deep}) == ["nested too deeply"]
    assert check_request("openai", {"model": "m", "input": "go", 1: 2}) == ["a key is not text"]
    assert check_request("openai", {"model": "m", "input": {1, 2}}) == ["set is not JSON"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["openai", "openai-chat", "anthropic"]), JUNK)
def test_the_checker_never_raises(protocol: str, junk: Any) -> None:
    assert check_request(protocol, {"model": "m", "messages": junk, "input": junk}) is not None
    check_request(protocol, {"model": "m", "messages": [junk], "input": [junk, junk]})
