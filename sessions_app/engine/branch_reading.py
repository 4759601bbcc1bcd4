"""Reading a branch that is more than one short log: forked, rewound, or very long.

It is read from its head back, in chunks, and the reading stops as early as it can: at what the newest
checkpoint covers (nobody needs that any more), or when more text was read than any model takes. So a session
of any length is resumed with bounded memory; what was left unread stays in the log, and a line in its place
says so.
"""

import json
from collections.abc import Sequence
from uuid import UUID

from sessions_app import branches
from sessions_app.engine.context import EntryRow
from sessions_app.models import Entry

MOST_TEXT = 16 << 20
"""Characters of entries as JSON that are read at most: about four million tokens."""

SHORT = 1000
"""Entries. A longer log is read from its end, as far as it is needed."""

LEFT_OUT = "(The beginning of this conversation is too long to be shown. It is kept in the session's log.)"

_WINDOW = 100  # entries; small, because a window is in memory before the limit is looked at
_PLAYED = ("assistant_message", "checkpoint", "model_call_failed")


def read_branch(segments: Sequence[branches.Segment], *, kinds: Sequence[str]) -> list[EntryRow]:
    """The entries to build on, oldest first, each under its position on the branch."""
    rows: list[EntryRow] = []
    floor: int | None = None  # what a checkpoint covers
    size = 0
    for row in branches.newest_first(segments, kinds=kinds, window=_WINDOW):
        if floor is not None and row.position <= floor:
            break
        size += len(row.data)
        if size > MOST_TEXT and rows:
            rows.append(_left_out(rows[-1].seq - 1))
            break
        data = json.loads(row.data)
        if row.kind == "checkpoint":
            data = branches.shifted(data, row.segment.shift)
            covers: int = data["covers_seq"]
            floor = covers if floor is None else max(covers, floor)
        rows.append(EntryRow(row.position, None, row.kind, data))
    rows.reverse()
    return rows


def script_position(segments: Sequence[branches.Segment], read: Sequence[EntryRow]) -> int:
    """How far a script had been played in front of what is read: each step that was played says so itself."""
    if any("script_next" in row.data for row in read):
        return 0  # told by those
    for segment in reversed(segments):
        last = min(segment.last, read[0].seq - 1 + segment.shift) if read else segment.last
        played = Entry.objects.filter(
            session_id=segment.session,
            seq__range=(segment.first, last),
            kind__in=_PLAYED,
            data__has_key="script_next",
        )
        found = played.order_by("-seq").values_list("data", flat=True).first()
        if found is not None:
            position: int = found["script_next"]
            return position
    return 0


def is_plain(head_seq: int, forked_from: UUID | None, *, rewound: bool) -> bool:
    """Whether the branch is one short log, which is read like any other, together with those of other sessions."""
    return head_seq <= SHORT and forked_from is None and not rewound


def _left_out(covers: int) -> EntryRow:
    return EntryRow(covers, None, "checkpoint", {"summary": LEFT_OUT, "covers_seq": covers})
