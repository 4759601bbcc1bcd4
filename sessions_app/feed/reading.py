"""The two queries of the feed: a page of a session's log, and a page of a project's.

A session's entries are committed in the order of their seq, so a page is what follows a seq. A project's are
not: transactions of different sessions run side by side. There a page is what is committed now and was not at
the snapshot where the reader stands. It is read in the order of transactions, in whole transactions; where it
does not hold everything, it ends at a transaction, and the snapshot at its end says so (`snapshots`).

In one session a later entry may come from an earlier transaction (one that had its number before it waited for
the session's lock). So a page that ends early is looked over: where it holds an entry without the one before,
it is made longer until it holds that too. A real snapshot needs no such look: whoever sees an entry sees those
before it, because they were committed before its writer got the lock.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sessions_app.database import Cursor, hot_cursor
from sessions_app.feed.cursors import InvalidCursor, ProjectCursor
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.snapshots import Snapshot
from sessions_app.models import Entry, Session

type Shape = Callable[[Entry], Any]
"""An entry as clients see it: plain data."""

_PAST_EVERYTHING = (1 << 63) - 1

_COLUMNS = "id, session_id, seq, parent_seq, kind, turn_id, attempt, actor, created_at, data, xid"

# Two arms instead of one condition with OR: each is a walk along the index on (project_id, xid), which costs what
# it returns, however many transactions have been running for however long.
_PAGE = f"""
SELECT now.snapshot::text, page.id, page.session_id, page.seq, page.parent_seq, page.kind, page.turn_id,
    page.attempt, page.actor, page.created_at, page.xid::text::bigint, page.labels,
    CASE WHEN (%(kinds)s::text[] = '{{}}' OR page.kind = ANY (%(kinds)s::text[]))
        AND (%(sessions)s::uuid[] = '{{}}' OR page.session_id = ANY (%(sessions)s::uuid[]))
        AND page.labels @> %(labels)s::jsonb THEN page.data END
FROM (SELECT pg_current_snapshot() AS snapshot) AS now LEFT JOIN (SELECT entry.*, session.labels FROM (
    (SELECT {_COLUMNS} FROM sessions_app_entry
    WHERE project_id = %(project)s AND xid = ANY (%(running)s::xid8[]) AND xid < %(below)s::xid8
        AND (%(until)s::pg_snapshot IS NULL OR pg_visible_in_snapshot(xid, %(until)s::pg_snapshot))
    ORDER BY xid LIMIT %(limit)s)
    UNION ALL
    (SELECT {_COLUMNS} FROM sessions_app_entry
    WHERE project_id = %(project)s AND xid >= %(xmax)s::xid8 AND xid < %(below)s::xid8
        AND (%(until)s::pg_snapshot IS NULL OR pg_visible_in_snapshot(xid, %(until)s::pg_snapshot))
    ORDER BY xid LIMIT %(limit)s)
) AS entry JOIN sessions_app_session session ON session.id = entry.session_id) AS page ON true
"""  # noqa: S608 - names of columns

_NOW = "SELECT pg_current_snapshot()::text"

# The last transaction behind the cut that wrote an entry in front of one of the page.
_LEFT_BEHIND = """
SELECT before.xid::text::bigint
FROM unnest(%(sessions)s::uuid[], %(seqs)s::bigint[]) AS wanted (session_id, seq)
    JOIN sessions_app_entry before USING (session_id, seq)
WHERE before.xid >= %(cut)s::xid8 ORDER BY before.xid DESC LIMIT 1
"""


@dataclass(slots=True)
class Frame:
    """One entry on its way: `body` is its JSON, `cursor` where a reader stands who has it."""

    session: UUID
    kind: str
    labels: Mapping[str, Any]
    body: str
    cursor: str
    _socket: str | None = None

    @property
    def socket(self) -> str:
        """As a socket's frame; made once for all that follow."""
        if self._socket is None:
            self._socket = f'{{"type":"entry","entry":{self.body},"cursor":"{self.cursor}"}}'
        return self._socket

    @property
    def event(self) -> str:
        """As a server-sent event."""
        return f"id: {self.cursor}\nevent: {self.kind}\ndata: {self.body}\n\n"


@dataclass(frozen=True, slots=True)
class Batch[Position]:
    """All entries between two positions."""

    start: Position
    end: Position
    frames: Sequence[Frame]
    more: bool = False
    """It ends early: there is more to be read at once."""

    @property
    def size(self) -> int:
        return sum(len(frame.body) for frame in self.frames)


def dumps(value: Any) -> str:
    """JSON without line separators of any kind: some clients take U+2028 and its like for the end of a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


# --- a session -------------------------------------------------------------------------------------------


def last_seqs(sessions: Iterable[UUID]) -> dict[UUID, int]:
    """The last seq of each session that exists."""
    rows = Session.objects.filter(pk__in=list(sessions)).values_list("pk", "next_seq")
    return {session: following - 1 for session, following in rows}


def projects_of(sessions: Iterable[UUID]) -> dict[UUID, UUID]:
    return dict(Session.objects.filter(pk__in=list(sessions)).values_list("pk", "project_id"))


def session_page(session: UUID, *, after: int, until: int | None, limit: int, shape: Shape) -> Batch[int]:
    """At most `limit` entries behind `after`."""
    rows = Entry.objects.filter(session_id=session, seq__gt=after)
    if until is not None:
        rows = rows.filter(seq__lte=until)
    frames = [
        Frame(session, row.kind, {}, dumps(shape(row)), str(row.seq)) for row in rows.order_by("seq")[:limit]
    ]
    end = int(frames[-1].cursor) if frames else after
    return Batch(after, end, frames, more=len(frames) == limit)


# --- a project -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    entry: Entry
    xid: int
    labels: Mapping[str, Any]
    wanted: bool


def snapshot_now() -> Snapshot:
    with hot_cursor() as cursor:
        return Snapshot.parse(_one(cursor.execute(_NOW).fetchone()))


def project_page(
    project: UUID,
    *,
    at: Snapshot,
    until: Snapshot | None,
    limit: int,
    shape: Shape,
    only: Filter = EVERYTHING,
) -> Batch[Snapshot]:
    """At least one transaction behind `at`, about `limit` entries; those that `only` does not want count too.

    Ends at `until` (now, unless said) where that is all there is. Raises `InvalidCursor` for a position that
    this database has not reached.
    """
    with hot_cursor() as cursor:
        now, rows = _select(cursor, project, at, until, limit=limit + 1, only=only)
        if until is None and at.xmax > now.xmax:
            raise InvalidCursor("future")
        whole = at.advanced(now, below=now.xmax)
        end = whole.bounded()
        cut = end.xmax if end != whole else _PAST_EVERYTHING
        more = len(rows) > limit and rows[limit].xid < cut
        if more:
            cut = rows[limit].xid
        rows = [row for row in rows if row.xid < cut]
        if more and not rows:
            # One transaction is larger than a page; it is read as a whole.
            cut += 1
            rows = _select(cursor, project, at, now, below=cut, only=only)[1]
        while cut < now.xmax and (left := _left_behind(cursor, rows, cut)) is not None:
            cut = left + 1
            rows = _select(cursor, project, at, now, below=cut, only=only)[1]
    return _batch(project, at, at.advanced(now, below=cut), rows, shape, more=more)


def rest_of_page(
    project: UUID, cursor: ProjectCursor, *, shape: Shape, only: Filter = EVERYTHING
) -> Batch[Snapshot]:
    """What is left of the page that a cursor is in the middle of; empty where it is in none.

    Raises `InvalidCursor` for a position that this database has not reached.
    """
    page = cursor.page or cursor.at
    with hot_cursor() as raw:
        now = Snapshot.parse(_one(raw.execute(_NOW).fetchone()))
        if max(page.xmax, cursor.at.xmax) > now.xmax:
            raise InvalidCursor("future")
        if cursor.page is None:
            return Batch(page, page, [])
        rows = _select(raw, project, cursor.at, page, only=only)[1]
    whole = _batch(project, cursor.at, page, rows, shape, skip=cursor.taken)
    return Batch(cursor.at, page, whole.frames)


def _select(
    cursor: Cursor,
    project: UUID,
    at: Snapshot,
    until: Snapshot | None,
    *,
    only: Filter,
    below: int = _PAST_EVERYTHING,
    limit: int | None = None,
) -> tuple[Snapshot, list[_Row]]:
    """Entries behind `at` in the order of transactions, and what counts as now."""
    values = {
        "project": project,
        "running": _array(at.running),
        "xmax": str(at.xmax),
        "below": str(below),
        "until": None if until is None else str(until),
        "limit": limit,
        "kinds": list(only.kinds),
        "sessions": list(only.sessions),
        "labels": json.dumps(dict(only.labels)),
    }
    rows: list[_Row] = []
    now = until
    for found in cursor.execute(_PAGE, values):
        snapshot, key, session, seq, parent, kind, turn, attempt, actor, created, xid, labels, data = found
        now = now or Snapshot.parse(snapshot)
        if key is None:
            continue  # nothing but the snapshot
        entry = Entry(
            id=key,
            session_id=session,
            project_id=project,
            seq=seq,
            parent_seq=parent,
            kind=kind,
            turn_id=turn,
            attempt=attempt,
            actor=json.loads(actor),
            created_at=created,
            data=None if data is None else json.loads(data),
        )
        rows.append(_Row(entry, xid, json.loads(labels), data is not None))
    if now is None:
        raise RuntimeError("a statement without a row")
    rows.sort(key=lambda row: row.xid)
    return now, rows


def _left_behind(cursor: Cursor, rows: Sequence[_Row], cut: int) -> int | None:
    """The last transaction from `cut` on without which a session's order would break."""
    there = {(row.entry.session_id, row.entry.seq) for row in rows}
    before = [(session, seq - 1) for session, seq in there if seq > 1 and (session, seq - 1) not in there]
    if not before:
        return None
    sessions, seqs = zip(*before, strict=True)
    found = cursor.execute(_LEFT_BEHIND, {"sessions": list(sessions), "seqs": list(seqs), "cut": str(cut)})
    row = found.fetchone()
    return None if row is None else int(row[0])


def _batch(
    project: UUID,
    at: Snapshot,
    end: Snapshot,
    rows: Sequence[_Row],
    shape: Shape,
    *,
    skip: int = 0,
    more: bool = False,
) -> Batch[Snapshot]:
    frames = []
    ordered = _in_order(rows)
    for taken, row in enumerate(ordered, start=1):
        if row.wanted and taken > skip:
            cursor = ProjectCursor(end) if taken == len(ordered) else ProjectCursor(at, end, taken)
            body = dumps(shape(row.entry))
            frames.append(Frame(row.entry.session_id, row.entry.kind, row.labels, body, cursor.text(project)))
    return Batch(at, end, frames, more)


def _in_order(rows: Iterable[_Row]) -> list[_Row]:
    """By time; but each session's in the order of seq, whatever the clock did. The same set, the same order."""
    by_time = sorted(rows, key=lambda row: (row.entry.created_at, row.entry.session_id, row.entry.seq))
    queues: dict[UUID, list[_Row]] = {}
    for row in sorted(by_time, key=lambda row: -row.entry.seq):
        queues.setdefault(row.entry.session_id, []).append(row)
    return [queues[row.entry.session_id].pop() for row in by_time]


def _array(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _one(row: tuple[Any, ...] | None) -> str:
    if row is None:
        raise RuntimeError("a statement without a row")
    return str(row[0])
