"""Between our blocks and the library's parts nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from sessions_app.engine.context import EntryRow, message_of
from sessions_app.providers.library.messages import from_library, to_library, unique_calls, usage_of


def back(blocks):
    entry = EntryRow(1, None, "assistant_message", {"content": blocks, "stop": "tool_calls"})
    messages = [{"role": "user", "content": "go"}, message_of(entry), {"role": "user", "content": "on"}]
    return to_library(messages, provider="openai", system="lib", instructions="")[1].parts


WORDS = st.text(min_size=1, max_size=20)
DETAILS = st.none() | st.dictionaries(WORDS, WORDS | st.integers() | st.booleans(), min_size=1, max_size=2)


@st.composite
def parts(draw):
    own = {"id": draw(st.none() | WORDS), "provider_details": draw(DETAILS)}
    own["provider_name"] = "lib" if any(own.values()) else None
    match draw(st.sampled_from(["text", "thinking", "call"])):
        case "text":
            return TextPart(draw(WORDS), **own)
        case "thinking":
            return ThinkingPart(
                draw(WORDS), signature=draw(st.none() | WORDS), **{**own, "provider_name": "lib"}
            )
        case _:
            arguments = draw(st.dictionaries(WORDS, WORDS, max_size=2))
            return ToolCallPart(draw(WORDS), arguments, draw(st.uuids()).hex, **own)


@given(original=st.lists(parts(), min_size=1, max_size=4))
def test_parts_come_back_as_they_were(original):
    blocks = from_library(ModelResponse(parts=original), "openai")
    assert list(back(blocks)) == original


def test_details_of_another_provider_stay_out():
    text = {"type": "text", "text": "x", "provider": "anthropic", "details": {"id": "msg_1"}}
    thought = {"type": "reasoning", "text": "x", "provider": "anthropic", "signature": "s"}
    assert list(back([thought, text])) == [TextPart("x")]


@pytest.mark.parametrize(
    ("args", "stored"),
    [
        ('{"a": 1}', {"arguments": {"a": 1}}),
        ({"a": 1}, {"arguments": {"a": 1}}),
        ("", {"arguments": {}}),
        (None, {"arguments": {}}),
        ("{broken", {"arguments": {}, "arguments_raw": "{broken"}),
        ("[1]", {"arguments": {}, "arguments_raw": "[1]"}),
    ],
)
def test_arguments_are_an_object_or_kept_raw(args, stored):
    """T3: an empty argument string means {}."""
    (block,) = from_library(ModelResponse(parts=[ToolCallPart("t", args, "c1")]), "openai")
    assert block == {"type": "tool_call", "id": "c1", "name": "t", **stored}


def test_only_blocks_with_neither_text_nor_signature_are_dropped():
    """C15."""
    parts = [ThinkingPart("", signature="s", provider_name="lib"), ThinkingPart(""), TextPart("")]
    blocks = from_library(ModelResponse(parts=parts), "anthropic")
    assert blocks == [{"type": "reasoning", "text": "", "provider": "anthropic", "signature": "s"}]


def test_a_renamed_call_takes_no_id_that_is_in_use():
    """C06."""
    calls = [
        {"type": "tool_call", "id": call_id, "name": "t", "arguments": {"n": number}}
        for number, call_id in enumerate(["a", "a", "a_2", "a"])
    ]
    assert [call["id"] for call in unique_calls(calls)] == ["a", "a_3", "a_2", "a_4"]


def test_usage_keeps_all_four_counts():
    """R7."""
    usage = RequestUsage(
        input_tokens=9, output_tokens=7, cache_read_tokens=3, details={"reasoning_tokens": 5}
    )
    counted = usage_of(ModelResponse(parts=[], usage=usage))
    assert (counted.input_tokens, counted.output_tokens) == (9, 7)
    assert (counted.cached_tokens, counted.reasoning_tokens) == (3, 5)
