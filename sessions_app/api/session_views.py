"""`/sessions` and what hangs on one session: its control, log and turns."""

from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import branches, control, session_search, session_service
from sessions_app import content as contents
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import ApiView
from sessions_app.api.fields import ActorRef
from sessions_app.api.openapi import operation, page_of, seq_page_of
from sessions_app.api.pagination import PageQuery, page, seq_page
from sessions_app.api.session_requests import (
    ChangeConfig,
    EntriesQuery,
    NoBody,
    SessionsQuery,
    StartSession,
    SubmitInput,
    UpdateSession,
)
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid, NotFound
from sessions_app.history import reading
from sessions_app.history.reading import History
from sessions_app.idempotency import Answer
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, Session
from sessions_app.session_service import Fork


class SessionDoor(ApiView):
    """A view below `/sessions/{session}`."""

    path_ids = {"session": "ses"}

    def session(self, session: UUID) -> Session:
        """The session as it is now, of the caller's project."""
        return shapes.session_row(session, project=self.project)

    def visible(self, session: UUID) -> UUID:
        """Refuses sessions of other projects as if they did not exist."""
        if not Session.objects.filter(pk=session, project_id=self.project).exists():
            raise NotFound("no such session")
        return session

    def change(self, session: UUID, effect: Callable[[], object]) -> Response:
        """Run the effect, once per Idempotency-Key, and answer with the session as it is then."""
        self.visible(session)

        def answer() -> Answer:
            effect()
            return Answer(200, shapes.session(self.session(session)))

        return self.once(answer)


class Caller(Protocol):
    """Whoever sends a body: a view, a socket."""

    def actor(self, named: ActorRef | None) -> Actor: ...


def new_input(caller: Caller, body: SubmitInput, *, path: str = "") -> NewInput:
    """The input that a body asks for."""
    if body.cancel_open and body.delivery == "queued":
        error = {
            "path": f"{path}/cancel_open",
            "code": "not_allowed",
            "message": "goes with steering only",
        }
        raise Invalid("cancel_open goes with steering only", errors=[error])
    return NewInput(
        content=contents.parse(body.content, path=f"{path}/content"),
        delivery=body.delivery,
        actor=caller.actor(body.actor),
        cancel_open=body.cancel_open,
    )


class SessionsView(SessionDoor):
    path_ids = {}

    @operation(
        "start_session",
        "Start a session",
        tag="sessions",
        body=StartSession,
        answers={201: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """With `input` it is due at once, else it is idle until somebody speaks.

        With `history` it goes on from a transcript, with `fork` from an entry of another session; neither makes
        it speak by itself.
        """
        body = self.body(StartSession)
        first = new_input(self, body.input, path="/input") if body.input is not None else None
        history, fork = _beginning(body)

        def effect() -> Answer:
            profile = None
            if body.profile is not None:
                profile = session_service.profile_named(project=self.project, text=body.profile)
            row = session_service.start_session(
                project=self.project,
                config=body.config,
                profile=profile,
                name=body.name,
                labels=body.labels,
                metadata=body.metadata,
                priority=body.priority,
                limits=body.limits.model_dump(exclude_unset=True) if body.limits is not None else None,
                input=first,
                history=history,
                fork=fork,
                actor=self.access.actor,
            )
            return Answer(201, shapes.session(self.session(row.pk)))

        return self.once(effect)

    @operation(
        "list_sessions",
        "List sessions",
        tag="sessions",
        query=SessionsQuery,
        answers={200: page_of(shapes.SessionShape)},
    )
    def get(self, request: Request) -> Response:
        """Newest first, archived ones included unless `archived` says otherwise."""
        query = self.query(SessionsQuery)
        rows = _filtered(shapes.session_rows().filter(project_id=self.project), query)
        return Response(page(rows, query, shapes.session, name="sessions"))


def _beginning(body: StartSession) -> tuple[History | None, Fork | None]:
    """What a new session goes on from."""
    if body.history is not None and body.fork is not None:
        error = {"path": "/history", "code": "not_allowed", "message": "goes without fork only"}
        raise Invalid("a session goes on either from history or from a fork", errors=[error])
    history = reading.parse(body.history.format, body.history.messages) if body.history is not None else None
    fork = Fork(session=body.fork.session, at_seq=body.fork.at_seq) if body.fork is not None else None
    return history, fork


def _filtered(rows: QuerySet[Session], query: SessionsQuery) -> QuerySet[Session]:
    return session_search.filtered(
        rows,
        statuses=query.status,
        labels=query.label,
        profile=query.profile,
        parent=query.parent,
        name=query.q,
        archived=query.archived,
        failed=query.failed,
        reason=query.reason,
        created_after=query.created_after,
        created_before=query.created_before,
    )


class SessionView(SessionDoor):
    @operation(
        "get_session", "Read a session", tag="sessions", answers={200: shapes.SessionShape}, errors=[404]
    )
    def get(self, request: Request, session: UUID) -> Response:
        """With its open turn, the last ended one, and the blocks of the last reply."""
        return Response(shapes.session(self.session(session)))

    @operation(
        "update_session",
        "Change a session",
        tag="sessions",
        body=UpdateSession,
        answers={200: shapes.SessionShape},
        errors=[404, 409],
    )
    def patch(self, request: Request, session: UUID) -> Response:
        """Fields that are given are replaced as a whole; a new priority moves the session among the due ones."""
        body = self.body(UpdateSession)
        session_service.update_session(
            session=self.visible(session),
            actor=self.access.actor,
            name=body.name,
            labels=body.labels,
            metadata=body.metadata,
            priority=body.priority,
            limits=body.limits.model_dump(exclude_unset=True) if body.limits is not None else None,
        )
        return Response(shapes.session(self.session(session)))


class CancelView(SessionDoor):
    @operation(
        "cancel_turn",
        "Cancel the current turn",
        tag="sessions",
        body=NoBody,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """At once, whoever works on it and whatever it waits for. Queued input then starts the next turn.

        Without an open turn nothing happens. With an `Idempotency-Key` a repeated request can't hit a later turn.
        """
        self.body(NoBody)
        return self.change(session, lambda: control.cancel(session=session, actor=self.access.actor))


class CompactView(SessionDoor):
    @operation(
        "compact_session",
        "Compact a session's context",
        tag="sessions",
        body=NoBody,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """The older part of what the model sees is replaced by a summary, as a `checkpoint` entry; the log stays.

        An idle session is compacted at once, one that works before its next model call. Where that is not possible
        a `note` entry says why. Asking again while it is still to come changes nothing.
        """
        self.body(NoBody)
        return self.change(
            session, lambda: control.request_compaction(session=session, actor=self.access.actor)
        )


class ArchiveView(SessionDoor):
    @operation(
        "archive_session",
        "Archive a session",
        tag="sessions",
        body=NoBody,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """Ends the open turn, drops the waiting input, gives machines back. It can be read and restored. Repeatable."""
        self.body(NoBody)
        return self.change(session, lambda: control.archive(session=session, actor=self.access.actor))


class RestoreView(SessionDoor):
    @operation(
        "restore_session",
        "Restore an archived session",
        tag="sessions",
        body=NoBody,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """Idle, with its whole history; what archiving ended and dropped stays so. Repeatable."""
        self.body(NoBody)
        return self.change(session, lambda: control.restore(session=session, actor=self.access.actor))


class SessionConfigView(SessionDoor):
    @operation(
        "change_session_config",
        "Run a session under another config",
        tag="sessions",
        body=ChangeConfig,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """From the next model call on; a call under way keeps the old one, a retry keeps its time.

        Where the session does not run under `expected_config`: 409 `config_moved`.
        """
        body = self.body(ChangeConfig)
        return self.change(
            session,
            lambda: control.change_config(
                session=session,
                config=body.config,
                expected_config=body.expected_config,
                actor=self.access.actor,
            ),
        )


class EntriesView(SessionDoor):
    @operation(
        "list_entries",
        "Read a session's log",
        tag="sessions",
        query=EntriesQuery,
        answers={200: seq_page_of(shapes.EntryShape)},
        errors=[404],
    )
    def get(self, request: Request, session: UUID) -> Response:
        """In rising order: from the start, behind `after`, or the last ones in front of `before`.

        A branch begins with what it inherits, whose entries name their own session and seq. They have places
        on the branch that count from 1, and `after` and `before` mean those.
        """
        query = self.query(EntriesQuery)
        self.visible(session)
        if query.branch == "current":
            return Response(_branch_page(session, query))
        rows = Entry.objects.filter(session_id=session)
        return Response(seq_page(rows, query, shapes.entry))


def _branch_page(session: UUID, query: EntriesQuery) -> dict[str, Any]:
    segments = branches.of_session(session)
    first = query.after or 0
    last = branches.length(segments)
    if query.before is not None:
        last = min(last, query.before - 1)
    backwards = query.before is not None and query.after is None
    start, end = (max(0, last - query.limit), last) if backwards else (first, min(last, first + query.limit))
    data = [
        {**shapes.entry(row), "place": place}
        for place, row in branches.between(segments, after=start, until=end)
    ]
    return {"data": data, "has_more": start > 0 if backwards else end < last}


class TurnsView(SessionDoor):
    @operation(
        "list_turns",
        "List a session's turns",
        tag="sessions",
        query=PageQuery,
        answers={200: page_of(shapes.TurnShape)},
        errors=[404],
    )
    def get(self, request: Request, session: UUID) -> Response:
        """Oldest first."""
        query = self.query(PageQuery)
        rows = shapes.turn_rows().filter(session_id=self.visible(session))
        answer: dict[str, Any] = page(
            rows, query, shapes.turn, name="turns", newest_first=False, place="started_at"
        )
        return Response(answer)


class TurnView(ApiView):
    path_ids = {"turn": "trn"}

    @operation("get_turn", "Read a turn", tag="sessions", answers={200: shapes.TurnShape}, errors=[404])
    def get(self, request: Request, turn: UUID) -> Response:
        """One turn of any session of the project."""
        row = shapes.turn_rows().filter(pk=turn, session__project_id=self.project).first()
        if row is None:
            raise NotFound("no such turn")
        return Response(shapes.turn(row))
