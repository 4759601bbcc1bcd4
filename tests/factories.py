"""Rows in a named state, made without the services: a test says what there is, not how it came about.

Times are the database's; `seconds` may be negative for the past.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from sessions_app import ids
from sessions_app.models import (
    AgentConfig,
    Delivery,
    Input,
    Lease,
    Project,
    Session,
    SessionStatus,
    Turn,
    Worker,
)
from sessions_app.scheduling import reschedule
from tools_app.models import Approval, Outcome, Question, ToolCall, ToolCallState, ToolClass

ACTOR = {"kind": "user", "id": "usr_test", "name": "Test"}


def database_now(seconds: float = 0) -> datetime:
    """The database's clock, moved by `seconds`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now + timedelta(seconds=seconds)


def project(*, name: str | None = None) -> Project:
    return Project.objects.create(name=name or f"project {ids.new_id()}")


def config(*, document: dict[str, Any] | None = None, project: Project | None = None) -> AgentConfig:
    return AgentConfig.objects.create(
        project=project or globals()["project"](),
        digest=ids.new_id().hex * 2,
        document=document or {"instructions": "Be brief.", "model": {"provider": "scripted", "name": "echo"}},
    )


def session(*, config: AgentConfig | None = None, **columns: Any) -> Session:
    """An idle session; `columns` are set as given."""
    config = config or globals()["config"]()
    return Session.objects.create(project_id=config.project_id, config=config, **columns)


def due(**columns: Any) -> Session:
    """A session that a worker may claim."""
    made = session(status=SessionStatus.QUEUED, wake_at=database_now(-1), **columns)
    received_input(made)
    return made


def open_turn(session: Session) -> Turn:
    """Opens a turn on the session, which is not scheduled by that."""
    session.turn_count += 1
    turn = Turn.objects.create(session=session, number=session.turn_count)
    session.turn = turn
    session.save()
    return turn


def received_input(session: Session, *, text: str = "hello", delivery: str = Delivery.QUEUED) -> Input:
    rank = 1000 * (Input.objects.filter(session=session).count() + 1)
    content = [{"type": "text", "text": text}]
    return Input.objects.create(session=session, content=content, delivery=delivery, rank=rank, actor=ACTOR)


def worker(*, expires_in: float = 30, owner: str | None = None, **columns: Any) -> Worker:
    """A worker without a process, whose time to live ends in `expires_in` seconds.

    It counts on its time to live alone, because nobody holds its lock; pass `liveness` for another.
    """
    values = {"host": "test", "pid": 1, "version": "0", "capacity": 64, "liveness": "ttl"} | columns
    return Worker.objects.create(
        owner=owner or f"worker {ids.new_id()}", expires_at=database_now(expires_in), **values
    )


def leased(session: Session, worker: Worker) -> Lease:
    """Gives the session to the worker as a claim does."""
    session.attempt += 1
    session.status = SessionStatus.RUNNING
    session.wake_at = None
    session.save()
    return Lease.objects.create(session=session, worker=worker, attempt=session.attempt)


def running(worker: Worker, **columns: Any) -> Session:
    """A session in the middle of a turn, held by `worker`."""
    made = session(**columns)
    open_turn(made)
    leased(made, worker)
    return made


def reread(row: Session | UUID) -> Session:
    """The session as the database has it now."""
    return Session.objects.get(pk=row.pk if isinstance(row, Session) else row)


def tool_call(session: Session, *, state: str = ToolCallState.READY, **columns: Any) -> ToolCall:
    """A call of the session's open turn in the given state; running ones belong to its current attempt."""
    position = ToolCall.objects.filter(session=session).count()
    values = {
        "project_id": session.project_id,
        "turn_id": session.turn_id or open_turn(session).pk,
        "message_seq": 1,
        "position": position,
        "call_id": f"call_{position}",
        "name": "dev_append",
        "tool_class": ToolClass.CUSTOM if state == ToolCallState.WAITING else ToolClass.OUTSIDE,
        "arguments": {},
    }
    if state == ToolCallState.RUNNING:
        values |= {"attempt": session.attempt, "started_at": database_now()}
    if state == ToolCallState.COMPLETED:
        values |= {"outcome": Outcome.SUCCEEDED, "content": [], "completed_at": database_now()}
    return ToolCall.objects.create(session=session, state=state, **values | columns)


def approval(
    session: Session, *, expires_in: float | None = None, pattern: Any = None, **columns: Any
) -> Approval:
    """An open approval with the call that it is about; `columns` are the call's. Its time ends in seconds."""
    expires_at = database_now(expires_in) if expires_in is not None else None
    values = {"arguments": {"file": "effect"}, "deadline": expires_at} | columns
    call = tool_call(session, state=ToolCallState.AWAITING_APPROVAL, **values)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT encode(sha256(convert_to(arguments::text, 'UTF8')), 'hex') FROM tools_app_toolcall WHERE id = %s",
            [call.pk],
        )
        digest = cursor.fetchone()[0]
    return Approval.objects.create(
        project_id=session.project_id,
        session=session,
        turn_id=call.turn_id,
        tool_call=call,
        name=call.name,
        arguments=call.arguments,
        digest=digest,
        pattern=pattern,
        expires_at=expires_at,
    )


COLOURS = {
    "text": "Which colour?",
    "options": [{"label": "Red"}, {"label": "Blue"}],
    "multiple": False,
    "allow_text": False,
}


def question(
    session: Session, *, form: list[dict[str, Any]] | None = None, expires_in: float | None = None
) -> Question:
    """An open question with the call that asks it: one question with two options, unless another form is given."""
    expires_at = database_now(expires_in) if expires_in is not None else None
    call = tool_call(
        session,
        state=ToolCallState.WAITING,
        tool_class=ToolClass.HUMAN,
        name="ask_user",
        deadline=expires_at,
    )
    return Question.objects.create(
        project_id=session.project_id,
        session=session,
        turn_id=call.turn_id,
        tool_call=call,
        questions=form or [COLOURS],
        expires_at=expires_at,
    )


def waiting(session: Session) -> Session:
    """The session as it waits for its open calls, without a worker; what has passed its deadline is over."""
    with transaction.atomic():
        reschedule(session)
        session.save()
    return session
