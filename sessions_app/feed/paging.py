"""A project's feed by pages, for whoever asks and does not follow: the same cursors, the same order."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sessions_app.feed import reading
from sessions_app.feed.cursors import ProjectCursor
from sessions_app.feed.filters import Filter
from sessions_app.feed.reading import Shape

READ = 500
"""Entries that are looked at in one go; a filter may want few of them."""

LOOKS = 20
"""Goes for one page; with a filter that wants hardly anything a page may be short, and more may follow."""


@dataclass(frozen=True, slots=True)
class Page:
    entries: list[Any]
    cursor: str
    more: bool


def page(project: UUID, *, cursor: str, limit: int, only: Filter, shape: Shape) -> Page:
    """At most `limit` entries behind the cursor. Raises `InvalidCursor`."""
    place = ProjectCursor.read(cursor, project=project)
    batch = reading.rest_of_page(project, place, shape=shape, only=only)
    frames = list(batch.frames)
    at, more, looks = batch.end, True, 0
    while more and len(frames) < limit and looks < LOOKS:
        looks += 1
        size = min(READ, limit) if only == Filter() else READ
        found = reading.project_page(project, at=at, until=None, limit=size, shape=shape, only=only)
        frames += found.frames
        at, more = found.end, found.more
    if len(frames) > limit:
        frames, more = frames[:limit], True
        following = frames[-1].cursor
    else:
        following = ProjectCursor(at).text(project)
    return Page([json.loads(frame.body) for frame in frames], following, more)
