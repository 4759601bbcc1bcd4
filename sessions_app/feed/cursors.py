"""Cursors: what a reader gives back to read on. Pure.

Of a session it is the decimal seq of the last entry. Of a project it is opaque: the project, the snapshot up to
which everything was read, and, in the middle of a page, the snapshot at the page's end and how many entries of
the page were taken. Two snapshots bound a set of entries that never changes, so the count means the same
whenever it is used. A cursor may be used any number of times.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from sessions_app.errors import Invalid
from sessions_app.feed.snapshots import START, Malformed, Snapshot, pack, unpack

MAX_LENGTH = 1024
NOW = "now"
"""Accepted in place of a cursor: begin behind what is there."""

_FORM = 1
_HEAD = 17  # bytes: the form and the project
_SEQ = re.compile(r"[0-9]{1,16}", re.ASCII)
_WHY = {
    "malformed": "this is no cursor of this feed",
    "foreign": "this cursor belongs to another feed",
    "future": "this cursor is ahead of the feed",
}


class InvalidCursor(Invalid):
    """This cursor is none of this list."""

    code = "invalid_cursor"

    def __init__(self, why: str) -> None:
        error = {"path": "/cursor", "code": why, "message": _WHY[why]}
        super().__init__(_WHY[why], errors=[error])


def read_seq(text: str) -> int:
    """The cursor of a session's feed."""
    if not _SEQ.fullmatch(text):
        raise InvalidCursor("malformed" if _looks_malformed(text) else "foreign")
    return int(text)


@dataclass(frozen=True, slots=True)
class ProjectCursor:
    """A place in a project's feed. `page` is None where no page has been begun."""

    at: Snapshot
    page: Snapshot | None = None
    taken: int = 0

    def text(self, project: UUID) -> str:
        parts = [bytes([_FORM]), project.bytes, self.at.packed(), pack(self.taken)]
        if self.page is not None:
            parts.append(self.page.packed())
        return base64.urlsafe_b64encode(b"".join(parts)).rstrip(b"=").decode()

    @classmethod
    def read(cls, text: str, *, project: UUID) -> Self:
        """Raises `InvalidCursor`. `0` is the place before everything."""
        if text == "0":
            return cls(START)
        of, cursor = cls._read(text)
        if of != project:
            raise InvalidCursor("foreign")
        return cursor

    @classmethod
    def _read(cls, text: str) -> tuple[UUID, Self]:
        try:
            packed = base64.b64decode(
                text[: MAX_LENGTH + 1].encode("ascii") + b"=" * (-len(text) % 4),
                altchars=b"-_",
                validate=True,
            )
            numbers = unpack(packed[_HEAD:])
            rest = iter(numbers)
            at = Snapshot.unpacked(rest)
            taken = next(rest, -1)
            page = Snapshot.unpacked(rest) if taken > 0 else None
        except (Malformed, binascii.Error, UnicodeError):
            raise InvalidCursor("malformed") from None
        if len(text) > MAX_LENGTH or packed[0] != _FORM or taken < 0 or next(rest, None) is not None:
            raise InvalidCursor("malformed")
        return UUID(bytes=packed[1:_HEAD]), cls(at, page, taken)


def _looks_malformed(text: str) -> bool:
    """Whether it is not even a project's cursor."""
    try:
        ProjectCursor._read(text)  # noqa: SLF001 - of this module
    except InvalidCursor:
        return True
    return False
