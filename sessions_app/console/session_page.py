"""One session, live: its timeline, what it waits for, what it costs, and what people can do about it.

The page carries the last entries. A script follows the session's feed, which it takes as a doorbell only, and asks
`Since` for what came behind the last entry that it shows: the same templates make both, and an entry is shown once
whatever happens to sockets. Without a socket the script asks every few seconds.
"""

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from sessions_app import access, ids
from sessions_app.api.session_shapes import entry as entry_shape
from sessions_app.console import blocks, standing, timeline
from sessions_app.console.pages import ConsolePage
from sessions_app.console.session_list import session_rows
from sessions_app.console.standing import Standing
from sessions_app.errors import NotFound
from sessions_app.models import Child, Entry, Input, InputState, Session, SessionStatus

_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
_MOST_QUEUED = 50
_MOST_CHILDREN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An input in the queue."""

    row: Input
    content: list[blocks.Shown]
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent:
    session: Session
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    text: str
    state: str
    icon: str


_TODO_ICONS = {"done": "check", "completed": "check", "in_progress": "spark", "doing": "spark"}


class SessionDoor(ConsolePage):
    """A page below one session, which says in which project it is."""

    place = "console:sessions"

    def found(self, text: str, *, remember: bool = False) -> Session:
        """The session with this id, read as a list reads it.

        This page is in its project from here on, and with `remember` the pages after it too; what a script asks
        for in the background does not move the switcher under somebody's hands.
        """
        row = session_rows().select_related("project", "parent").filter(pk=_decoded(text)).first()
        if row is None:
            raise NotFound("no such session")
        if remember:
            self.move_to(row.project)
        else:
            self.access = access.within(self.request.user, project=row.project)
        return row


class SessionPage(SessionDoor):
    def get(self, request: HttpRequest, session: str) -> HttpResponse:
        """The page with its last entries."""
        row = self.found(session, remember=True)
        shown = timeline.newest(row)
        context = {"timeline": shown, "key": str(uuid4()), **parts(row)}
        if row.forked_from_id is not None and not shown.has_earlier:
            context["inherited"] = timeline.inherited(row)
        return self.page("console/session/page.html", context)


class Entries(SessionDoor):
    def get(self, request: HttpRequest, session: str) -> HttpResponse:
        """With `after` what came behind an entry, and everything around it; with `before` a page of history.

        With `inherited` a page of what a fork took over, up to this place on its branch.
        """
        row = self.found(session)
        until = _number(request.GET.get("inherited"))
        if until is not None:
            earlier = timeline.inherited(row, until=until)
            return self.fragment("console/session/entries.html", {"timeline": earlier, "session": row})
        before, after = _number(request.GET.get("before")), _number(request.GET.get("after"))
        if before is not None:
            earlier = timeline.newest(row, before=before)
            context = {"timeline": earlier, "session": row}
            if row.forked_from_id is not None and not earlier.has_earlier:
                context["inherited"] = timeline.inherited(row)
            return self.fragment("console/session/entries.html", context)
        shown = timeline.since(row, after=after or 0)
        return self.fragment("console/session/since.html", {"timeline": shown, **parts(row)})


class EntryPage(SessionDoor):
    def get(self, request: HttpRequest, session: str, seq: int) -> HttpResponse:
        """One entry as it stands in the log, for the inspector."""
        row = self.found(session)
        entry = Entry.objects.filter(session_id=row.pk, seq=seq).first()
        if entry is None:
            raise NotFound("no such entry")
        return self.fragment(
            "console/session/inspector.html", {"entry": entry, "session": row, "document": entry_shape(entry)}
        )


def parts(row: Session) -> dict[str, Any]:
    """What stands around the timeline: how it is, its queue, its subagents, what it means to do."""
    waiting = list(
        Input.objects.filter(session_id=row.pk, state=InputState.RECEIVED).order_by("rank")[:_MOST_QUEUED]
    )
    files = blocks.files_in((one.content for one in waiting), project=row.project_id)
    queue = [
        Waiting(
            row=one,
            content=blocks.shown(one.content, files),
            is_first=number == 0,
            is_last=number == len(waiting) - 1,
        )
        for number, one in enumerate(waiting)
    ]
    turn = row.turn or row.last_turn
    is_moving = row.status in {SessionStatus.RUNNING, SessionStatus.QUEUED, SessionStatus.BACKING_OFF}
    return {
        "session": row,
        "standing": standing.of_session(row),
        "turn": turn,
        "queue": queue,
        "children": _children(row),
        "todos": _todos(row),
        "is_moving": is_moving,
        "can_stop": row.turn_id is not None or is_moving,
        "can_retry": _can_retry(row) and not is_moving,
        "is_archived": row.archived_at is not None,
    }


def _can_retry(row: Session) -> bool:
    """Where a turn has ended, or waits because of crashes; one that waits for people is not to be thrown away."""
    stuck = any(item.get("kind") == "crash_limit" for item in row.waiting_on)
    return row.archived_at is None and (stuck or (row.turn_id is None and row.last_turn_id is not None))


def _children(row: Session) -> list[Subagent]:
    if row.tree is None:
        return []  # it has neither parent nor children
    rows = (
        Child.objects.filter(parent_id=row.pk)
        .select_related("session__turn", "session__last_turn")
        .order_by("created_at", "pk")[:_MOST_CHILDREN]
    )
    return [Subagent(session=child.session, standing=standing.of_session(child.session)) for child in rows]


def _todos(row: Session) -> list[Todo]:
    return [
        Todo(
            text=str(item.get("text", "")),
            state=str(item.get("state", "")).replace("_", " "),
            icon=_TODO_ICONS.get(str(item.get("state")), "circle"),
        )
        for item in row.todos or []
        if isinstance(item, dict)
    ]


def address_of(session: UUID) -> str:
    return reverse("console:session", args=[ids.encode("ses", session)])


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _decoded(text: str) -> UUID:
    try:
        return ids.decode("ses", text)
    except ids.InvalidId:
        raise NotFound("no such session") from None
