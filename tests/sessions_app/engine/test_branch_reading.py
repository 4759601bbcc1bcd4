"""What a held session reads of its branch: the same as entry by entry, and no more than it needs."""

import random
import time
import tracemalloc
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions_app import branches, leases, log, rewinding
from sessions_app.engine import branch_reading, state
from sessions_app.engine.context import EntryRow, messages_of
from sessions_app.entry_kinds import SYSTEM
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Session
from tests import factories

pytestmark = pytest.mark.django_db


def write(session: UUID, *entries: NewEntry) -> None:
    with transaction.atomic():
        row = leases.lock_session(session)
        assert row is not None
        log.append(row, *entries)
        row.save()


def said(text: str) -> NewEntry:
    content = [{"type": "text", "text": text}]
    return NewEntry(kind="user_message", data={"input": None, "delivery": "queued", "content": content})


def replied(text: str, position: int | None = None) -> NewEntry:
    data = {"model_call": "mcl_x", "content": [{"type": "text", "text": text}], "stop": "done"}
    return NewEntry(kind="assistant_message", data=data | ({"script_next": position} if position else {}))


def summary(text: str, covers: int) -> NewEntry:
    return NewEntry(kind="checkpoint", data={"summary": text, "covers_seq": covers})


def texts(held: state.SessionState) -> list[str]:
    found = []
    for message in held.context.messages:
        content = message["content"]
        found.append(content.split("\n")[-1] if isinstance(content, str) else content[0]["text"])
    return found


def scripted() -> Session:
    document = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "long"},
        "script": {"replies": []},
    }
    return factories.session(config=factories.config(document=document))


def held(session: Session) -> state.SessionState:
    return state.load({session.pk: 1})[session.pk]


def forked(parent: Session, seq: int) -> Session:
    return factories.session(config=parent.config, forked_from=parent, forked_from_seq=seq)


def test_a_held_session_reads_its_branch_as_walking_along_the_parents_does() -> None:
    """S1: random histories of rewinds and forks, summaries included."""
    draw = random.Random(3)
    known = [scripted()]
    write(known[0].pk, said("start"))
    for number in range(60):
        chosen = factories.reread(draw.choice(known))
        match draw.randrange(5):
            case 0 | 1:
                write(chosen.pk, said(f"u{number}"), replied(f"a{number}", number + 1))
            case 2:
                write(chosen.pk, summary(f"s{number}", draw.randrange(0, chosen.next_seq)))
            case 3:
                rewinding.rewind(session=chosen.pk, to_seq=draw.randrange(0, chosen.next_seq), actor=SYSTEM)
            case _ if chosen.next_seq > 1:
                known.append(forked(chosen, draw.randrange(1, chosen.next_seq)))
    for session in known:
        segments = branches.of_session(session.pk)
        shifts = {part.session: part.shift for part in segments}
        rows = []
        for _, entry in branches.between(segments, 0, branches.length(segments)):
            shift = shifts[entry.session_id]
            data = branches.shifted(entry.data, shift) if entry.kind == "checkpoint" else entry.data
            rows.append(EntryRow(entry.seq - shift, None, entry.kind, data))
        found = held(session)
        assert found.context.messages == messages_of(rows)
        played = [row.data["script_next"] for row in rows if "script_next" in row.data]
        assert found.script_position == (played[-1] if played else 0)


def test_what_a_checkpoint_covers_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """C41: from the newest checkpoint on the branch on; a script still knows how far it was played."""
    monkeypatch.setattr(branch_reading, "SHORT", 0)
    session = scripted()
    write(session.pk, *(entry for n in range(200) for entry in (said(f"u{n}"), replied(f"a{n}", n + 1))))
    write(session.pk, summary("so far", 398), said("next"))
    with CaptureQueriesContext(
        connection,
    ) as queries:
        found = held(session)
    assert texts(found) == ["so far", "u199", "a199", "next"]
    assert found.script_position == 200
    assert len(queries) < 12
    write(session.pk, summary("all of it", 402), said("last"))
    found = held(session)
    assert (texts(found), found.script_position) == (["all of it", "last"], 200)


def test_a_fork_behind_a_checkpoint_of_its_parent_reads_that_one() -> None:
    """What the parent's summary covers is counted in the parent's log and means the same in the fork."""
    parent = scripted()
    write(parent.pk, said("a"), replied("b"), said("c"), summary("a and b", 2), replied("d"))
    child = forked(parent, 5)
    write(child.pk, said("e"))
    assert texts(held(child)) == ["a and b", "c", "d", "e"]
    # A summary in the fork covers inherited entries by their position: 0 is the entry that was forked from.
    write(child.pk, summary("up to d", 0), said("f"))
    assert texts(held(child)) == ["up to d", "e", "f"]
    before = forked(parent, 3)
    assert texts(held(before)) == ["a", "b", "c"]


def test_a_reload_takes_only_what_came_since() -> None:
    parent = scripted()
    write(parent.pk, said("a"))
    child = forked(parent, 1)
    write(child.pk, said("b"))
    found = held(child)
    write(child.pk, said("c"))
    state.reload(found)
    assert texts(found) == ["a", "b", "c"]


def test_sessions_that_never_branched_are_read_together_in_one_query() -> None:
    sessions = [scripted() for _ in range(5)]
    for session in sessions:
        write(session.pk, said("a"))
    state.load({sessions[0].pk: 1})  # the config's document is known from here on
    with CaptureQueriesContext(connection) as alone:
        state.load({sessions[0].pk: 1})
    for session in sessions:
        state.document_of(session.config_id)
    with CaptureQueriesContext(connection) as together:
        state.load({session.pk: 1 for session in sessions})
    assert len(together) == len(alone)


def test_a_very_long_session_is_resumed_with_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """C41: 20,000 entries of a kilobyte, without a checkpoint; the newest ones are read, and a line says so."""
    monkeypatch.setattr(branch_reading, "MOST_TEXT", 1 << 20)
    session = scripted()
    fill(session, entries=20_000, size=1000)
    tracemalloc.start()
    began = time.monotonic()
    found = held(session)
    took = time.monotonic() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    messages = found.context.messages
    assert messages[0]["content"].endswith(branch_reading.LEFT_OUT)
    assert 800 < len(messages) < 1050
    assert messages[-1]["content"][0]["text"].startswith("20000 ")
    assert peak < 8 << 20, peak
    assert took < 10


def fill(session: Session, *, entries: int, size: int) -> None:
    """That many messages of about that many bytes, written by the database itself."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO sessions_app_entry (id, session_id, project_id, seq, parent_seq, kind, actor, data)
            SELECT gen_random_uuid(), %(session)s, %(project)s, n, n - 1,
                CASE n %% 2 WHEN 1 THEN 'user_message' ELSE 'assistant_message' END, '{}',
                jsonb_build_object('input', NULL, 'delivery', 'queued', 'model_call', 'mcl_x', 'stop', 'done',
                    'content', jsonb_build_array(jsonb_build_object('type', 'text', 'text',
                        n || ' ' || repeat(md5(n::text), %(size)s / 32))))
            FROM generate_series(1, %(entries)s) n
            """,
            {"session": session.pk, "project": session.project_id, "entries": entries, "size": size},
        )
    Session.objects.filter(pk=session.pk).update(next_seq=entries + 1, head_seq=entries)
    assert Entry.objects.filter(session=session).count() == entries
