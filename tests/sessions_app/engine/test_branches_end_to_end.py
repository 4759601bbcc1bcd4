"""Forked, rewound, retried and imported sessions at work: a real worker, the scripted provider, the real tables."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sessions_app import branches, configs, ids, inputs, invariants, rewinding, session_service, tool_port
from sessions_app.entry_kinds import SYSTEM
from sessions_app.history import reading
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, Session, Turn
from sessions_app.providers.port import ModelRequest, Reply
from sessions_app.providers.scripted import ScriptedProvider
from sessions_app.session_service import Fork
from tests import factories
from tests.sessions_app.engine.in_process import working

pytestmark = pytest.mark.django_db(transaction=True)

CALLING = {"text": "looking", "tool_calls": [{"name": "dev_lookup", "arguments": {"key": "k"}}]}

SETTLED = f"t! {tool_port.INTERRUPTED}"[:30]

type Seen = list[list[dict[str, Any]]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The messages of each request, as roles with what they say."""
    requests: Seen = []
    original = ScriptedProvider.reply

    async def reply(self: ScriptedProvider, request: ModelRequest, on_delta: Any = None) -> Reply:
        requests.append([dict(message) for message in request.messages])
        return await original(self, request, on_delta)

    monkeypatch.setattr(ScriptedProvider, "reply", reply)
    return requests


@pytest.fixture
def rested(settings: Any, tmp_path: Path) -> Iterator[Callable[[UUID], Session]]:
    with working(settings, dev_tool_root=str(tmp_path)) as wait:
        yield wait


def config(*replies: dict[str, Any], loop: bool = False) -> UUID:
    document = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "branches"},
        "tools": {"dev_lookup": {}},
        "script": {"replies": list(replies), "loop": loop},
    }
    return configs.create_config(project=factories.project().pk, document=document).row.pk


def start(config: UUID, text: str | None = "one", **more: Any) -> UUID:
    project = configs.AgentConfig.objects.get(pk=config).project_id
    first = NewInput(content=said(text), actor=SYSTEM) if text is not None else None
    return session_service.start_session(project=project, actor=SYSTEM, config=config, input=first, **more).pk


def say(session: UUID, text: str) -> None:
    inputs.submit_input(session=session, content=said(text), actor=SYSTEM)


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def entries(session: UUID, kind: str) -> list[Entry]:
    return list(Entry.objects.filter(session_id=session, kind=kind).order_by("seq"))


def words(messages: list[dict[str, Any]]) -> list[str]:
    """Each message as its role's first letter and what it says, its calls or its error."""
    found = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [block.get("text") or f"[{block['name']}]" for block in blocks]
        mark = "!" if message.get("error") else ""
        found.append(f"{message['role'][0]}{mark} {' '.join(texts)}"[:30])
    return found


def check(*sessions: UUID) -> None:
    assert {session: found for session in sessions if (found := invariants.check_session(session))} == {}


def test_a_fork_goes_on_from_what_its_parent_had_said(rested: Any, seen: Seen) -> None:
    """S1, S9: the fork sees the parent's turn up to the seq and its script goes on; the parent is untouched."""
    script = config({"text": "r1"}, {"text": "r2"}, {"text": "r3"})
    parent = start(script)
    rested(parent)
    say(parent, "two")
    rested(parent)
    (first, _) = entries(parent, "assistant_message")
    before = Entry.objects.filter(session_id=parent).count()
    fork = start(script, "other", fork=Fork(session=parent, at_seq=first.seq))
    row = rested(fork)
    assert words(seen[-1]) == ["u one", "a r1", "u other"]
    assert [block["text"] for block in entries(fork, "assistant_message")[0].data["content"]] == ["r2"]
    assert (row.turn_count, row.model_calls, row.forked_from_id, row.lease_end) == (1, 1, parent, None)
    assert entries(fork, "session_resumed") == []
    assert Entry.objects.filter(session_id=parent).count() == before
    again = start(script, "third", fork=Fork(session=fork))
    rested(again)
    assert words(seen[-1]) == ["u one", "a r1", "u other", "a r2", "u third"]
    check(parent, fork, again)


def test_a_fork_between_a_call_and_its_result_settles_the_call_once(rested: Any, seen: Seen) -> None:
    """S9: the orphan is settled by the fork's first attempt, named in `session_resumed`, and never again."""
    script = config(CALLING, {"text": "found"}, {"text": "again"})
    parent = start(script)
    rested(parent)
    (asked, _) = entries(parent, "assistant_message")
    call = asked.data["content"][-1]["tool_call"]
    fork = start(script, "go on", fork=Fork(session=parent, at_seq=asked.seq))
    rested(fork)
    assert words(seen[-1]) == [
        "u one",
        "a looking [dev_lookup]",
        SETTLED,
        "u go on",
    ]
    (resumed,) = entries(fork, "session_resumed")
    assert resumed.data == {
        "attempt": resumed.attempt,
        "reason": "branch",
        "repaired_tool_calls": [call],
    }
    (result,) = entries(fork, "tool_result")
    assert (result.data["tool_call"], result.data["outcome"]) == (call, "interrupted")
    assert result.seq == resumed.seq + 1
    say(fork, "and on")
    rested(fork)
    assert len(entries(fork, "session_resumed")) == len(entries(fork, "tool_result")) == 1
    check(parent, fork)


def test_a_rewound_session_goes_on_behind_the_entry_it_went_back_to(rested: Any, seen: Seen) -> None:
    """S9: what was left behind is in the log and not in the request; going forth again brings it back."""
    script = config({"text": "r1"}, {"text": "r2"}, {"text": "r3"}, loop=True)
    session = start(script)
    rested(session)
    say(session, "two")
    head = rested(session).head_seq
    (first, _) = entries(session, "assistant_message")
    row = rewinding.rewind(session=session, to_seq=first.seq, actor=SYSTEM)
    assert (row.status, row.output_seq, row.head_seq) == ("idle", first.seq, row.next_seq - 1)
    say(session, "instead")
    rested(session)
    assert words(seen[-1]) == ["u one", "a r1", "u instead"]
    assert entries(session, "assistant_message")[-1].data["script_next"] == 2
    rewinding.rewind(session=session, to_seq=head, actor=SYSTEM)
    say(session, "three")
    rested(session)
    assert words(seen[-1]) == ["u one", "a r1", "u two", "a r2", "u three"]
    check(session)


def test_a_rewind_between_a_call_and_its_result_leaves_the_result_on_the_other_branch(
    rested: Any, seen: Seen
) -> None:
    """S9, T1: one result on each branch; the call's own row keeps its first one."""
    session = start(config(CALLING, {"text": "found"}, loop=True))
    rested(session)
    (asked, _) = entries(session, "assistant_message")
    rewinding.rewind(session=session, to_seq=asked.seq, actor=SYSTEM)
    say(session, "go on")
    rested(session)
    assert words(seen[-1])[2:] == [SETTLED, "u go on"]
    outcomes = [entry.data["outcome"] for entry in entries(session, "tool_result")]
    assert outcomes == ["succeeded", "interrupted"]
    check(session)


def test_a_session_rewound_to_its_start_begins_anew(rested: Any, seen: Seen) -> None:
    session = start(config({"text": "r1"}, loop=True))
    rested(session)
    rewinding.rewind(session=session, to_seq=0, actor=SYSTEM)
    say(session, "anew")
    rested(session)
    assert words(seen[-1]) == ["u anew"]
    check(session)


def test_a_retried_turn_says_the_same_again_on_the_branch_before_it(rested: Any, seen: Seen) -> None:
    """R9: a new turn with the same content; the one before stays in the log."""
    session = start(config({"text": "r1"}, {"error": {"status": 401}}, {"text": "r3"}))
    rested(session)
    say(session, "two")
    failed = rested(session)
    assert Turn.objects.get(pk=failed.last_turn_id).status == "failed"
    rewinding.retry(session=session, actor=SYSTEM)
    rested(session)
    # The failed step lies on the branch that was left, so the script plays it again; a real provider has none.
    assert words(seen[-1]) == ["u one", "a r1", "u two"]
    assert [turn.number for turn in Turn.objects.filter(session_id=session).order_by("number")] == [1, 2, 3]
    check(session)


def test_an_imported_session_goes_on_and_has_nothing_left_to_settle(rested: Any, seen: Seen) -> None:
    """S9: the orphan was settled when it was stored; no attempt names it again."""
    history = reading.parse(
        "openai",
        [
            {"role": "system", "content": "old instructions"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
                ],
            },
        ],
    )
    session = start(config({"text": "r1"}), "go on", history=history)
    rested(session)
    assert words(seen[-1]) == [
        "n system: old instructions",
        "u hi",
        "a [find]",
        SETTLED,
        "u go on",
    ]
    assert entries(session, "session_resumed") == []
    (created,) = entries(session, "session_created")
    (asked, _) = entries(session, "assistant_message")
    assert created.data["repaired_tool_calls"] == [asked.data["content"][0]["tool_call"]]
    assert created.data["imported"] == {"format": "openai", "messages": 3, "left_out": 0}
    check(session)


def test_a_fork_that_dies_at_once_still_tells_what_it_settled_once(rested: Any, seen: Seen) -> None:
    """S9: until the first step is saved the next attempt looks again; after it none does."""
    script = config(CALLING, {"text": "found"}, loop=True)
    parent = start(script)
    rested(parent)
    (asked, _) = entries(parent, "assistant_message")
    fork = start(script, None, fork=Fork(session=parent, at_seq=asked.seq))
    assert factories.reread(fork).status == "idle"  # it does not speak by itself
    again = start(script, "on", fork=Fork(session=fork))
    rested(again)
    (resumed,) = entries(again, "session_resumed")
    assert resumed.data["repaired_tool_calls"] == [asked.data["content"][-1]["tool_call"]]
    segments = branches.of_session(again)
    assert [part.session for part in segments] == [parent, fork, again]
    assert ids.encode("ses", fork) == entries(again, "session_created")[0].data["forked_from"]["session"]
    check(again)
