"""What becomes of a transcript when it is stored: whole, repaired, and the same to a model."""

from typing import Any

from hypothesis import given

from sessions_app import entry_kinds, tool_port
from sessions_app.engine.context import EntryRow, messages_of
from sessions_app.engine.resume import Start, plan_resume, repair_orphaned_tool_calls
from sessions_app.entry_kinds import SYSTEM
from sessions_app.history import storing
from tests.sessions_app.engine.transcripts import transcript
from tests.sessions_app.history.importable import importable

FIRST = 2


def stored(messages: list[dict[str, Any]]) -> storing.Stored:
    return storing.entries_of(messages, actor=SYSTEM, first_seq=FIRST)


def seen(result: storing.Stored) -> list[dict[str, Any]]:
    """The messages that a session reads from what was stored."""
    rows = (
        EntryRow(seq, seq - 1, entry.kind, entry.data)
        for seq, entry in enumerate(result.entries, start=FIRST)
    )
    return messages_of(rows)


def kinds(result: storing.Stored) -> list[str]:
    return [entry.kind for entry in result.entries]


def read_as(messages: str) -> list[dict[str, Any]]:
    """A row of the resume table with content as the importer's readers give it."""
    found = []
    for message in transcript(messages):
        content = message.get("content") or []
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        found.append({**message, "content": content})
    return found


def test_a_call_without_a_result_is_settled_behind_its_frame() -> None:
    """S9: an orphan in the middle gets its result where it belongs, and is named."""
    result = stored(read_as("U A[c1,c2] r(c2) U"))
    assert kinds(result) == [
        "user_message",
        "assistant_message",
        "tool_result",
        "tool_result",
        "user_message",
    ]
    calls = [block["tool_call"] for block in result.entries[1].data["content"]]
    assert result.repaired == [calls[0]]
    assert [entry.data["tool_call"] for entry in result.entries[2:4]] == calls
    assert result.entries[2].data["outcome"] == "interrupted"
    assert result.entries[2].data["content"] == [{"type": "text", "text": tool_port.INTERRUPTED}]
    assert result.left_out == 0


def test_a_reply_that_never_came_to_its_end_is_left_out_and_counted() -> None:
    result = stored(read_as("U T!aborted"))
    assert (kinds(result), result.left_out, result.repaired) == (["user_message"], 1, [])


def test_calls_get_ids_of_their_own() -> None:
    """Ids are unique, also where the transcript uses one again."""
    result = stored(read_as("U A[c1] r(c1) A[c1] r(c1)"))
    ids = [
        block["tool_call"]
        for entry in result.entries
        if entry.kind == "assistant_message"
        for block in entry.data["content"]
    ]
    assert len(set(ids)) == 2
    assert [e.data["tool_call"] for e in result.entries if e.kind == "tool_result"] == ids


def test_an_imported_summary_stands_for_what_comes_before_it() -> None:
    messages = [*read_as("U A[c1]"), {"role": "summary", "content": "so far"}, *read_as("r(c1) U")]
    result = stored(messages)
    assert [message["role"] for message in seen(result)] == ["checkpoint", "user"]
    assert result.repaired == []


def test_notes_without_a_conversation_are_kept() -> None:
    result = stored([{"role": "note", "content": "hello"}])
    assert (kinds(result), result.entries[0].data) == (["note"], {"text": "hello"})


@given(messages=importable())
def test_what_is_stored_is_whole_and_nothing_has_to_be_settled_again(messages: list[dict[str, Any]]) -> None:
    """S9: after an import there is nothing left for an attempt to repair, and no data of a wrong shape."""
    result = stored(messages)
    found = seen(result)
    assert repair_orphaned_tool_calls(found)[1] == []
    plan = plan_resume(found)
    if not isinstance(plan, Start):
        assert (plan.repaired, plan.keep) == ([], len(found))
    for entry in result.entries:
        shape: Any = entry_kinds.KINDS[entry.kind]
        assert shape.__required_keys__ <= set(entry.data) <= set(shape.__annotations__)
    assert result.left_out <= len(messages)


def without_own_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **message,
            "content": [
                {key: value for key, value in block.items() if key != "tool_call"}
                for block in message["content"]
            ],
        }
        if message["role"] == "assistant"
        else message
        for message in messages
    ]


@given(messages=importable())
def test_importing_what_was_exported_gives_the_same(messages: list[dict[str, Any]]) -> None:
    first = seen(stored(messages))
    again = seen(stored(first))
    assert without_own_ids(again) == without_own_ids(first)
