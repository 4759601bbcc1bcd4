"""A session as it is taken elsewhere: every entry, or the messages of its branch. Read in chunks.

Each chunk is one call, so that whoever sends it holds a database connection only while it is read, and never
more than a chunk in memory. Entries are final, so chunks that are read one after the other fit together; the
export ends with the entry that was the newest one when it began.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from sessions_app import branches
from sessions_app.engine.context import EntryRow, message_of
from sessions_app.entry_kinds import CONVERSATION
from sessions_app.models import Entry

CHUNK = 100  # entries

type Chunk = Callable[[], list[Any]]
"""The next chunk; an empty one is the end."""


def entries(session: UUID) -> Chunk:
    """The whole log, behind what a fork inherits from its parents."""
    segments = branches.of_session(session)
    inherited = [part for part in segments if part.session != session]
    newest = max((part.last for part in segments if part.session == session), default=0)
    own = [branches.Segment(session, 1, newest)] if newest else []
    return _by_chunks(_ranges([*inherited, *own]))


def messages(session: UUID) -> Chunk:
    """The messages of the current branch, in the shape that `history` takes; summaries before what they leave."""
    segments = branches.of_session(session)
    summaries = _summaries(segments)
    ranges = _ranges(segments)

    def read() -> Iterator[list[dict[str, Any]]]:
        for part in ranges:
            found = []
            for row in _rows(part).filter(kind__in=CONVERSATION):
                while summaries and row.seq - part.shift > summaries[0][0]:
                    found.append(summaries.pop(0)[1])
                if row.kind != "checkpoint":
                    made = message_of(EntryRow(row.seq, None, row.kind, row.data))
                    if made is not None:
                        found.append(made)
            if found:
                yield found
        if summaries:
            yield [message for _, message in summaries]

    chunks = read()
    return lambda: next(chunks, [])


def _by_chunks(ranges: Iterator[branches.Segment]) -> Chunk:
    chunks = (list(_rows(part)) for part in ranges)
    return lambda: next(chunks, [])


def _rows(part: branches.Segment) -> Any:
    return Entry.objects.filter(session_id=part.session, seq__range=(part.first, part.last)).order_by("seq")


def _ranges(segments: list[branches.Segment]) -> Iterator[branches.Segment]:
    for part in segments:
        for first in range(part.first, part.last + 1, CHUNK):
            last = min(part.last, first + CHUNK - 1)
            yield branches.Segment(part.session, first, last, part.shift)


def _summaries(segments: list[branches.Segment]) -> list[tuple[int, dict[str, Any]]]:
    """The checkpoints of the branch: what each covers, as a position, and its message; in that order."""
    found = []
    for part in segments:
        for row in _rows(part).filter(kind="checkpoint"):
            data = branches.shifted(row.data, part.shift)
            message = message_of(EntryRow(row.seq, None, row.kind, data))
            if message is not None:
                found.append((data["covers_seq"], message))
    return sorted(found, key=lambda item: item[0])
