"""The branch a session is on: which entries of which sessions, oldest first.

Entries are never copied. An entry follows the one before it, unless a rewind stands between them: a
`branch_moved` entry follows the entry it went back to. A forked session's first entry follows its parent's
log at the seq it was forked from. So a branch is a short list of *segments*, runs of one session's log, and
finding it costs two queries however long the log is: the chain of sessions it was forked from, and their
`branch_moved` entries. A session that was never rewound or forked is one segment, without a query.

Two ways to number the entries of a branch. A *place* counts from its root, 1, 2, 3, without a gap: pages of a
branch are cut by place. A *position* is the seq for a session's own entries and zero or less for inherited
ones (the entry that was forked from is 0): it is what `covers_seq` of a checkpoint counts in, and it grows
along the branch whatever becomes of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from sessions_app.database import hot_cursor
from sessions_app.models import Entry

_MOVES = 500  # ranges in one statement


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries `first` to `last` of one session's log. A position is the seq less `shift`."""

    session: UUID
    first: int
    last: int
    shift: int = 0

    def __len__(self) -> int:
        return self.last - self.first + 1


class Row(NamedTuple):
    """An entry of a branch, as text: `data` is JSON that nobody has decoded yet."""

    segment: Segment
    seq: int
    kind: str
    data: str

    @property
    def position(self) -> int:
        return self.seq - self.segment.shift


def runs(head_seq: int, moves: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs of seqs from the root to `head_seq`, oldest first. Pure.

    `moves` are (seq, parent_seq) of the log's `branch_moved` entries, in any order.
    """
    found = []
    at = head_seq
    for seq, parent_seq in sorted(moves, reverse=True):
        if seq <= at:
            found.append((seq, at))
            at = parent_seq
    if at > 0:
        found.append((1, at))
    found.reverse()
    return found


# The session itself and what it was forked from, each with the seq up to which the branch goes through it.
_CHAIN = """
WITH RECURSIVE chain AS (
    SELECT id, head_seq AS until, forked_from_id, forked_from_seq, rewound, 0 AS level
    FROM sessions_app_session WHERE id = %s
    UNION ALL
    SELECT s.id, chain.forked_from_seq, s.forked_from_id, s.forked_from_seq, s.rewound, chain.level + 1
    FROM chain JOIN sessions_app_session s ON s.id = chain.forked_from_id
)
SELECT id, until, rewound FROM chain ORDER BY level
"""


def of_session(session: UUID, *, head_seq: int | None = None) -> list[Segment]:
    """The current branch, oldest segment first; with `head_seq` the path to that entry instead."""
    with hot_cursor() as cursor:
        cursor.execute(_CHAIN, (session,))
        chain = cursor.fetchall()
    moves = _moves([id_ for id_, _, rewound in chain if rewound])
    segments: list[Segment] = []
    shift = 0
    for level, (id_, until, _) in enumerate(chain):
        if level == 0 and head_seq is not None:
            until = head_seq  # noqa: PLW2901 - the caller's own end
        if level > 0:
            shift += until
        own = [Segment(id_, first, last, shift) for first, last in runs(until, moves.get(id_, ()))]
        segments[:0] = own
    return segments


def _moves(sessions: Sequence[UUID]) -> Mapping[UUID, list[tuple[int, int]]]:
    found: dict[UUID, list[tuple[int, int]]] = {}
    if sessions:
        rows = Entry.objects.filter(session_id__in=sessions, kind="branch_moved")
        for session, seq, parent_seq in rows.values_list("session_id", "seq", "parent_seq"):
            found.setdefault(session, []).append((seq, parent_seq))
    return found


def newest_first(segments: Sequence[Segment], *, kinds: Sequence[str], window: int) -> Iterator[Row]:
    """The branch's entries of these kinds from its head back, `window` seqs at a time: a reader may stop early.

    Windows, not limits: each read is bounded whatever the planner knows about a log that grew fast.
    """
    for segment in reversed(segments):
        for last in range(segment.last, segment.first - 1, -window):
            rows = (
                Entry.objects.filter(
                    session_id=segment.session,
                    seq__range=(max(segment.first, last - window + 1), last),
                    kind__in=kinds,
                )
                .order_by("-seq")
                .annotate(text=Cast("data", TextField()))
                .values_list("seq", "kind", "text")
            )
            for seq, kind, text in rows:
                yield Row(segment, seq, kind, text)


def length(segments: Iterable[Segment]) -> int:
    """How many entries the branch has; the place of its newest one."""
    return sum(len(segment) for segment in segments)


def between(segments: Sequence[Segment], after: int, until: int) -> list[tuple[int, Entry]]:
    """The entries at the places behind `after` up to `until`, each with its place, in order."""
    wanted: list[tuple[int, Segment]] = []
    place = 0
    for segment in segments:
        first = segment.first + max(0, after - place)
        last = segment.last - max(0, place + len(segment) - until)
        if first <= last:
            wanted.append((place - segment.first + 1, Segment(segment.session, first, last)))
        place += len(segment)
    found: dict[tuple[UUID, int], Entry] = {}
    for group in batched(wanted, _MOVES):
        ranges = Q()
        for _, part in group:
            ranges |= Q(session_id=part.session, seq__range=(part.first, part.last))
        found |= {(row.session_id, row.seq): row for row in Entry.objects.filter(ranges)}
    return [
        (offset + seq, found[part.session, seq])
        for offset, part in wanted
        for seq in range(part.first, part.last + 1)
    ]


def newest(segments: Sequence[Segment], kind: str, *, session: UUID) -> Entry | None:
    """The newest entry of a kind that the session itself wrote on its branch."""
    for segment in reversed(segments):
        if segment.session == session:
            rows = Entry.objects.filter(
                session_id=session, seq__range=(segment.first, segment.last), kind=kind
            )
            found = rows.order_by("-seq").first()
            if found is not None:
                return found
    return None


def holds(segments: Iterable[Segment], session: UUID, seq: int) -> bool:
    """Whether the branch goes through this entry."""
    return any(part.session == session and part.first <= seq <= part.last for part in segments)


def shifted(data: dict[str, Any], shift: int) -> dict[str, Any]:
    """A checkpoint's data with what it covers as a position of the branch that inherits it."""
    return {**data, "covers_seq": (data.get("covers_seq") or 0) - shift} if shift else data
