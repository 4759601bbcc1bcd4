"""What a feed can be of: one session, or a project. Each knows its positions, its cursors and its pages."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from sessions_app.errors import NotFound
from sessions_app.feed import reading
from sessions_app.feed.cursors import NOW, InvalidCursor, ProjectCursor, read_seq
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.reading import Batch, Frame, Shape
from sessions_app.feed.snapshots import Snapshot


class Source(Protocol):
    """`head`, `page` and `begin` read the database and are called in threads."""

    @property
    def key(self) -> Hashable:
        """Equal for what can be read once for all."""

    def head(self) -> Any:
        """The position behind everything that is committed."""

    def page(self, at: Any, *, until: Any, limit: int, only: Filter) -> Batch[Any]:
        """The next batch behind `at`, not beyond `until`."""

    def check(self, cursor: str) -> None:
        """Raises `InvalidCursor` for what can be refused without a look at the database."""

    def begin(self, cursor: str, head: Any, *, only: Filter) -> Batch[Any]:
        """What a cursor's own page still holds, and the position to go on from. Raises `InvalidCursor`."""

    def cursor(self, position: Any) -> str:
        """The cursor at a position."""

    def wants(self, only: Filter, frame: Frame) -> bool: ...


@dataclass(frozen=True, slots=True)
class SessionSource:
    """The log of one session, all branches. Positions are seqs."""

    session: UUID
    shape: Shape = field(compare=False)

    @property
    def key(self) -> Hashable:
        return self.session

    def head(self) -> int:
        found = reading.last_seqs([self.session])
        if self.session not in found:
            raise NotFound("no such session")
        return found[self.session]

    def page(self, at: int, *, until: int | None, limit: int, only: Filter) -> Batch[int]:
        del only  # a session's feed has no filters
        return reading.session_page(self.session, after=at, until=until, limit=limit, shape=self.shape)

    def check(self, cursor: str) -> None:
        if cursor != NOW:
            read_seq(cursor)

    def begin(self, cursor: str, head: int, *, only: Filter) -> Batch[int]:
        del only
        at = head if cursor == NOW else read_seq(cursor)
        if at > head:
            raise InvalidCursor("future")
        return Batch(at, at, [])

    def cursor(self, position: int) -> str:
        return str(position)

    def wants(self, only: Filter, frame: Frame) -> bool:
        del only, frame
        return True


@dataclass(frozen=True, slots=True)
class ProjectSource:
    """The entries of all sessions of a project. Positions are snapshots."""

    project: UUID
    shape: Shape = field(compare=False)

    @property
    def key(self) -> Hashable:
        return ("project", self.project)

    def head(self) -> Snapshot:
        return reading.snapshot_now().bounded()

    def page(self, at: Snapshot, *, until: Snapshot | None, limit: int, only: Filter) -> Batch[Snapshot]:
        return reading.project_page(
            self.project, at=at, until=until, limit=limit, shape=self.shape, only=only
        )

    def check(self, cursor: str) -> None:
        if cursor != NOW:
            ProjectCursor.read(cursor, project=self.project)

    def begin(self, cursor: str, head: Snapshot, *, only: Filter) -> Batch[Snapshot]:
        if cursor == NOW:
            return Batch(head, head, [])
        found = ProjectCursor.read(cursor, project=self.project)
        return reading.rest_of_page(self.project, found, shape=self.shape, only=only)

    def cursor(self, position: Snapshot) -> str:
        return ProjectCursor(position).text(self.project)

    def wants(self, only: Filter, frame: Frame) -> bool:
        return only is EVERYTHING or only.wants(frame.kind, frame.session, frame.labels)
