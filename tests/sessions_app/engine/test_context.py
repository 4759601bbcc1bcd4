"""From entries to what a model sees."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.engine.context import (
    HEADING,
    Context,
    EntryRow,
    artifacts_of,
    message_of,
    messages_of,
    with_media,
)

CALL = {"type": "tool_call", "id": "c1", "tool_call": "tcl_1", "name": "read", "arguments": {"f": "a"}}
TEXT = {"type": "text", "text": "Hello"}
THOUGHT = {
    "type": "reasoning",
    "text": "Hm",
    "signature": "s",
    "provider": "anthropic",
    "details": {"id": "x"},
}


def entry(seq: int, kind: str, **data) -> EntryRow:
    return EntryRow(seq, seq - 1 or None, kind, data)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            entry(1, "user_message", content="hi"),
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ),
        (
            entry(1, "tool_result", id="c1", name="read", outcome="succeeded", content=[TEXT], answered=True),
            {
                "role": "tool_result",
                "id": "c1",
                "name": "read",
                "error": False,
                "answered": True,
                "content": [TEXT],
            },
        ),
        (
            entry(1, "tool_result", id="c1", name="read", outcome="denied", content=[]),
            {
                "role": "tool_result",
                "id": "c1",
                "name": "read",
                "error": True,
                "answered": False,
                "content": [],
            },
        ),
        (
            entry(1, "checkpoint", summary="So far.", covers_seq=0),
            {"role": "checkpoint", "content": HEADING + "So far."},
        ),
        (entry(1, "note", text="n"), {"role": "note", "content": "n"}),
        (entry(1, "note", text="n", to_model=True), {"role": "user", "content": "n"}),
        (
            entry(
                1, "turn_ended", status="failed", reason="auth", error={"code": "auth", "detail": "no key"}
            ),
            {"role": "summary", "content": "(The turn before this ended with an error: no key)"},
        ),
        (entry(1, "turn_ended", status="succeeded", reason="done", error=None), None),
        (entry(1, "turn_ended", status="cancelled", reason="cancelled", error=None), None),
        (entry(1, "turn_started", number=1), None),
        (entry(1, "session_created"), None),
    ],
)
def test_entries_become_messages(row, message):
    assert message_of(row) == message


def test_an_assistant_message_keeps_everything_under_the_models_names():
    message = message_of(
        entry(1, "assistant_message", content=[THOUGHT, TEXT, CALL], stop="tool_calls", provider="anthropic")
    )
    assert message["stop"] == "tool_use"
    assert message["error"] is None
    assert message["content"] == [
        {
            "type": "thinking",
            "thinking": "Hm",
            "signature": "s",
            "provider": "anthropic",
            "details": {"id": "x"},
        },
        TEXT,
        {"type": "tool_call", "id": "c1", "tool_call": "tcl_1", "name": "read", "args": {"f": "a"}},
    ]


def test_arguments_that_were_no_object_are_passed_as_they_were():
    raw = {**CALL, "arguments": {}, "arguments_raw": "{broken"}
    message = message_of(entry(1, "assistant_message", content=[raw], stop="tool_calls"))
    assert message["content"][0]["args"] == "{broken"


@pytest.mark.parametrize("stop", ["length", "filtered", "unknown", "something from a newer version"])
def test_a_reply_that_ended_its_turn_is_passed_without_its_calls(stop):
    """R4, C18, C56: nor with the reasoning that led to them."""
    message = message_of(entry(1, "assistant_message", content=[THOUGHT, TEXT, THOUGHT, CALL], stop=stop))
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["stop"] == "stop"


@pytest.mark.parametrize(
    ("stop", "passed"), [("done", "stop"), ("tool_calls", "tool_use"), ("paused", "pause")]
)
def test_other_stops_keep_their_calls(stop, passed):
    message = message_of(entry(1, "assistant_message", content=[CALL], stop=stop))
    assert (message["stop"], len(message["content"])) == (passed, 1)


def test_a_checkpoint_takes_the_place_of_what_it_covers():
    """R5."""
    rows = [
        entry(1, "user_message", content="old"),
        entry(2, "assistant_message", content=[TEXT], stop="done"),
        entry(3, "user_message", content="recent"),
        entry(4, "checkpoint", summary="Said hello.", covers_seq=2),
        entry(5, "assistant_message", content=[TEXT], stop="done"),
    ]
    roles = [message["role"] for message in messages_of(rows)]
    assert roles == ["checkpoint", "user", "assistant"]
    second = [
        *rows,
        entry(6, "user_message", content="new"),
        entry(7, "checkpoint", summary="All.", covers_seq=5),
    ]
    assert [message["content"] for message in messages_of(second)] == [
        HEADING + "All.",
        [{"type": "text", "text": "new"}],
    ]


KINDS = st.sampled_from(["user_message", "assistant_message", "note", "checkpoint", "turn_started"])


@given(kinds=st.lists(KINDS, max_size=12), covers=st.integers(0, 12))
def test_one_entry_at_a_time_gives_the_same_and_changes_no_entry(kinds, covers):
    rows = [
        entry(
            seq,
            kind,
            content=[TEXT],
            stop="done",
            text="t",
            summary=f"s{seq}",
            covers_seq=min(covers, seq - 1),
        )
        for seq, kind in enumerate(kinds, start=1)
    ]
    before = copy.deepcopy(rows)
    context = Context()
    for row in rows:
        context.append(row)
    assert context.messages == messages_of(rows)
    assert rows == before


def test_media_are_listed_once_and_filled_in():
    image = {"type": "media", "artifact": "art_1", "media_type": "image/png"}
    gone = {"type": "media", "artifact": "art_2", "media_type": "image/png"}
    inline = {"type": "media", "data": "AAAA", "media_type": "image/png"}
    plain = {"role": "user", "content": [TEXT]}
    messages = [plain, {"role": "user", "content": [image, image, gone, inline]}]
    before = copy.deepcopy(messages)
    assert artifacts_of(messages) == ["art_1", "art_2"]
    loaded = with_media(messages, {"art_1": ("image/jpeg", "QUJD")})
    assert loaded[0] is plain
    assert loaded[1]["content"] == [
        {**image, "data": "QUJD"},
        {**image, "data": "QUJD"},
        {"type": "text", "text": "(the file art_2 is no longer available)"},
        inline,
    ]
    assert messages == before


def test_forgotten_reasoning_leaves_what_came_of_it():
    """A38: with nothing that names what the provider has stored; what comes later keeps its own."""
    said = {**TEXT, "provider": "openai", "details": {"id": "msg_1"}}
    rows = [
        entry(1, "user_message", content="hi"),
        entry(2, "assistant_message", content=[THOUGHT, said, CALL], stop="tool_calls", provider="openai"),
    ]
    before = copy.deepcopy(rows)
    context = Context.of(rows)
    estimate = context.tokens
    context.forget_reasoning()
    text, call = context.messages[1]["content"]
    assert text == TEXT
    assert call["id"] == "c1"
    assert rows == before
    assert context.tokens == sum(context.sizes) < estimate
    context.append(entry(3, "assistant_message", content=[THOUGHT], stop="done", provider="openai"))
    assert context.messages[2]["content"][0]["signature"] == "s"
