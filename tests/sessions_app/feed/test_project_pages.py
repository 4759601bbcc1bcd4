"""Pages of a project's feed against staged transactions: nothing skipped, nothing twice, each session in order."""

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from sessions_app.feed import filters, paging, reading
from sessions_app.feed.cursors import InvalidCursor, ProjectCursor
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.reading import Batch
from sessions_app.feed.snapshots import START, Snapshot
from sessions_app.models import Entry, Session
from tests import factories
from tests.staging import another_connection

pytestmark = pytest.mark.django_db(transaction=True)


def shape(row: Entry) -> Any:
    return {"session": str(row.session_id), "seq": row.seq, "text": row.data["text"]}


def note(wire: Any, session: Session, seq: int, text: str = "") -> None:
    """An entry of a transaction that somebody else has open."""
    wire.execute(
        "INSERT INTO sessions_app_entry (id, session_id, project_id, seq, parent_seq, kind, actor, data)"
        " VALUES (%s, %s, %s, %s, %s, 'note', '{}', %s)",
        [uuid4(), session.pk, session.project_id, seq, seq - 1, json.dumps({"text": text})],
    )


def read(
    session: Session, at: Snapshot = START, *, limit: int = 100, only: Filter = EVERYTHING
) -> Batch[Snapshot]:
    return reading.project_page(session.project_id, at=at, until=None, limit=limit, shape=shape, only=only)


def seqs(batch: Batch[Snapshot], session: Session) -> list[int]:
    found = [json.loads(frame.body) for frame in batch.frames]
    return [entry["seq"] for entry in found if entry["session"] == str(session.pk)]


@pytest.fixture
def wires() -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(another_connection())


@pytest.fixture
def session() -> Session:
    return factories.session()


def test_what_commits_late_comes_once_and_delays_nobody(session: Session, wires: Any) -> None:
    """C131, F2: the later transaction is read first; an idle one somewhere holds nothing back."""
    other = factories.session(config=session.config)
    idle, late, quick = wires(), wires(), wires()
    idle.execute("SELECT pg_current_xact_id()")
    note(late, session, 1)
    note(quick, other, 1)
    quick.commit()
    first = read(session)
    assert (seqs(first, session), seqs(first, other)) == ([], [1])
    assert read(session, first.end).frames == []
    late.commit()
    second = read(session, first.end)
    assert (seqs(second, session), seqs(second, other)) == ([1], [])
    note(quick, other, 2)
    quick.commit()
    third = read(session, second.end)
    assert (seqs(third, session), seqs(third, other)) == ([], [2])


def test_what_was_rolled_back_is_no_gap(session: Session, wires: Any) -> None:
    undone, kept = wires(), wires()
    note(undone, session, 1)
    before = read(session)
    undone.rollback()
    note(kept, session, 1)
    kept.commit()
    assert seqs(read(session, before.end), session) == [1]


def test_a_session_keeps_its_order_where_its_transactions_do_not(session: Session, wires: Any) -> None:
    """F2: seq 1 from the later transaction, seq 2 from the earlier one, in pages of one entry."""
    other = factories.session(config=session.config)
    earlier, later, last = wires(), wires(), wires()
    earlier.execute("SELECT pg_current_xact_id()")  # has its number, then waits for the session's lock
    note(later, session, 1)
    later.commit()
    note(earlier, session, 2)
    earlier.commit()
    note(last, other, 1)
    last.commit()
    first = read(session, limit=1)
    assert first.more
    assert seqs(first, session) == [1, 2]  # longer than asked for, because the order wants it
    second = read(session, first.end, limit=1)
    assert (seqs(second, other), second.more) == ([1], False)


def test_every_cursor_goes_on_behind_its_entry(session: Session, wires: Any) -> None:
    """F1: also in the middle of a page, of a transaction with several entries, and after a late commit."""
    other = factories.session(config=session.config)
    late, quick = wires(), wires()
    note(late, other, 1, "late")
    for start in (1, 4, 7):
        for seq in range(start, start + 3):
            note(quick, session, seq, str(seq))
        quick.commit()
    page = read(session)
    assert [json.loads(frame.body)["text"] for frame in page.frames] == list("123456789")
    late.commit()
    for place, frame in enumerate(page.frames, start=1):
        for limit in (1, 2, 100):
            found = _all_after(session, frame.cursor, limit)
            assert sorted(found) == sorted([*"123456789"[place:], "late"]), (place, limit)
            assert [text for text in found if text != "late"] == list("123456789"[place:])


def _all_after(session: Session, cursor: str, limit: int) -> list[str]:
    found: list[str] = []
    while True:
        page = paging.page(session.project_id, cursor=cursor, limit=limit, only=EVERYTHING, shape=shape)
        assert len(page.entries) <= limit
        found += [entry["text"] for entry in page.entries]
        cursor = page.cursor
        if not page.more:
            return found


def test_a_transaction_larger_than_a_page_is_read_as_a_whole(session: Session, wires: Any) -> None:
    big = wires()
    for seq in range(1, 8):
        note(big, session, seq)
    big.commit()
    note(big, session, 8)
    big.commit()
    first = read(session, limit=3)
    assert (seqs(first, session), first.more) == ([1, 2, 3, 4, 5, 6, 7], True)
    assert seqs(read(session, first.end, limit=3), session) == [8]


@pytest.mark.parametrize("seed", range(4))
def test_any_interleaving_gives_everything_once_and_in_order(session: Session, wires: Any, seed: int) -> None:
    """F2: transactions of several sessions open and commit at random while a reader reads in small pages."""
    chance = random.Random(seed)
    sessions = [session, *(factories.session(config=session.config) for _ in range(3))]
    free = [wires() for _ in range(6)]
    following = dict.fromkeys(sessions, 1)
    held: dict[Session, tuple[Any, int]] = {}
    idle = chance.choice(free)
    free.remove(idle)
    idle.execute("SELECT pg_current_xact_id()")
    at, got = START, []
    for _ in range(120):
        act = chance.random()
        some = chance.choice(sessions)
        if act < 0.2 and free:
            early = free[chance.randrange(len(free))]
            early.execute("SELECT pg_current_xact_id()")  # gets its number long before it writes
        if act < 0.5 and some not in held and free:
            wire = free.pop(chance.randrange(len(free)))
            count = chance.choice([1, 1, 1, 4])
            for seq in range(following[some], following[some] + count):
                note(wire, some, seq)
            held[some] = wire, count
        elif act < 0.75 and some in held:
            wire, count = held.pop(some)
            if chance.random() < 0.2:
                wire.rollback()
            else:
                wire.commit()
                following[some] += count
            free.append(wire)
        else:
            batch = read(session, at, limit=chance.choice([1, 2, 5]))
            got += batch.frames
            at = batch.end
    for wire, _ in held.values():
        wire.rollback()
    more = True
    while more:
        batch = read(session, at, limit=3)
        got, at, more = got + list(batch.frames), batch.end, batch.more
    for some in sessions:
        of_it = [json.loads(frame.body)["seq"] for frame in got if frame.session == some.pk]
        assert of_it == list(range(1, following[some]))


def test_a_page_up_to_a_snapshot_ends_exactly_there(session: Session, wires: Any) -> None:
    """By this a follower that caught up by itself knows that it may go along with its channel."""
    wire = wires()
    for seq in (1, 2):
        note(wire, session, seq)
        wire.commit()
    until = reading.snapshot_now()
    note(wire, session, 3)
    wire.commit()
    page = reading.project_page(session.project_id, at=START, until=until, limit=100, shape=shape)
    assert (seqs(page, session), page.end) == ([1, 2], until)


def test_a_position_that_the_database_has_not_reached_is_refused(session: Session) -> None:
    """F1"""
    future = ProjectCursor(Snapshot(1 << 60)).text(session.project_id)
    with pytest.raises(InvalidCursor, match="ahead"):
        paging.page(session.project_id, cursor=future, limit=5, only=EVERYTHING, shape=shape)
    with pytest.raises(InvalidCursor, match="ahead"):
        read(session, Snapshot(1 << 60))


def test_a_filter_leaves_out_and_the_place_goes_on_all_the_same(session: Session, wires: Any) -> None:
    """F2"""
    blue = factories.session(config=session.config, labels={"team": "blue", "tier": "1"})
    wire = wires()
    note(wire, session, 1)
    note(wire, blue, 1)
    wire.commit()
    for only, wanted in [
        (filters.parse(kinds=["note"], sessions=[], labels=[]), {session.pk, blue.pk}),
        (filters.parse(kinds=["turn_ended,turn_started"], sessions=[], labels=[]), set()),
        (filters.parse(kinds=[], sessions=[], labels=["team:blue", "tier:1"]), {blue.pk}),
        (filters.parse(kinds=[], sessions=[], labels=["team:blue", "tier:2"]), set()),
    ]:
        batch = read(session, only=only)
        assert {frame.session for frame in batch.frames} == wanted
        assert read(session, batch.end).frames == []
        source_says = {
            frame.session
            for frame in read(session).frames
            if only.wants(frame.kind, frame.session, frame.labels)
        }
        assert source_says == wanted


def test_another_projects_entries_are_never_among_them(session: Session, wires: Any) -> None:
    foreign = factories.session()
    wire = wires()
    note(wire, foreign, 1)
    wire.commit()
    assert read(session).frames == []


def test_a_place_is_found_by_the_index_however_long_somebody_idles(session: Session, wires: Any) -> None:
    """F2: the cost of reading on is that of what is new, not of what was written since the idle one began."""
    idle, wire = wires(), wires()
    idle.execute("SELECT pg_current_xact_id()")
    for seq in range(1, 400):
        note(wire, session, seq)
        wire.commit()
    at = read(session, limit=1000).end
    assert len(at.running) >= 1
    note(wire, session, 400)
    wire.commit()
    wire.execute("ANALYZE sessions_app_entry")
    wire.commit()
    wire.execute("SET enable_seqscan = off")
    plan = wire.execute(
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT FROM sessions_app_entry WHERE project_id = %s AND xid >= %s::xid8"
        " ORDER BY xid LIMIT 100",
        [session.project_id, str(at.xmax)],
    ).fetchone()[0][0]["Plan"]
    assert _of_index(plan)["Index Name"] == "entry_of_project"
    assert _of_index(plan)["Actual Rows"] == 1


def _of_index(plan: dict[str, Any]) -> dict[str, Any]:
    return plan if "Index Name" in plan else _of_index(plan["Plans"][0])


def test_wrong_filters_are_refused_with_their_parameter() -> None:
    from sessions_app.errors import Invalid

    for given, path in [
        ({"kinds": ["nonsense"]}, "/kinds"),
        ({"sessions": ["ses_1"]}, "/session"),
        ({"labels": ["nocolon"]}, "/label"),
        ({"labels": ["a:1", "a:2"]}, "/label"),
        ({"sessions": [",".join(["x"] * 60)]}, "/session"),
    ]:
        with pytest.raises(Invalid) as wrong:
            filters.parse(**({"kinds": [], "sessions": [], "labels": []} | given))
        assert wrong.value.errors[0]["path"] == path
    assert filters.parse(kinds=[], sessions=[], labels=[]) == Filter()
    assert UUID(int=0) not in filters.parse(kinds=[], sessions=[], labels=[]).sessions
