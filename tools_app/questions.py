"""Questions to people: opened with the call that asks, answered once, closed when nobody needs them (H1 to H5).

The only module that writes questions. Whoever writes holds the lock of the session, so of two answers that come
at once one is first; an answer, the result of its call and the news for the session are one transaction.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection, transaction
from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app import entries, entry_kinds, ids, leases, log, scheduling, wakeups
from sessions_app.database import dumps
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict, Invalid, NotFound
from sessions_app.models import Session
from sessions_app.models.fields import ClockTimestamp
from sessions_app.tool_port import Ask, Call, Closed, ToolOutcome
from tools_app import ask_user, tool_calls
from tools_app.models import Outcome, Question, QuestionState
from tools_app.people import by_whom, same_person

# In the step's pipeline, behind the calls. The deadline of the call is the one time that counts.
_INSERT = """
INSERT INTO tools_app_question (id, project_id, session_id, turn_id, tool_call_id, questions, state, expires_at)
SELECT r.id, s.project_id, c.session_id, c.turn_id, c.id, r.questions, 'open', c.deadline
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, tool_call_id uuid, questions jsonb)
    JOIN tools_app_toolcall c ON c.id = r.tool_call_id JOIN sessions_app_session s ON s.id = c.session_id
"""


class QuestionAnswered(Conflict):
    """Somebody has answered this question already. `current` shows the answer."""

    code = "question_answered"


class QuestionCancelled(Conflict):
    """Nobody waits for the answer any more. `current` shows the question."""

    code = "question_cancelled"


class QuestionExpired(Conflict):
    """The answer came too late. `current` shows the question; what you have to say can be sent as a message."""

    code = "question_expired"


def insert(cursor: psycopg.Cursor[Any], calls: Sequence[Call]) -> None:
    """Store the questions of new calls, behind the calls themselves."""
    asks = [(call, call.ask) for call in calls if call.ask is not None and call.ask.kind == "question"]
    if asks:
        rows = [_row(call, ask) for call, ask in asks]
        cursor.execute(_INSERT, (dumps(rows),))


def open_locked(session: Session, call: Call) -> None:
    """Put the question of a call that was just allowed; the caller holds the lock and saves the session."""
    ask = call.ask
    if ask is None:
        raise ValueError("the call asks nothing")
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, (dumps([_row(call, ask)]),))
    log.append(session, *entries.asked([call]))


def _row(call: Call, ask: Ask) -> dict[str, Any]:
    return {"id": str(ask.id), "tool_call_id": str(call.id), "questions": ask.data["questions"]}


def answer(*, question: UUID, answers: Any, actor: Actor) -> Question:
    """Answer a question; its call gets the answer as its result, and the session goes on.

    `answers` is a list of {options: [numbers from 0], text?}, one for each question of the form. The first answer
    counts (H2): the same one again by the same person gives back what is stored. Raises `NotFound`, `Invalid` with
    every mistake for answers that do not fit the form (H3), `QuestionAnswered`, `QuestionCancelled`,
    `QuestionExpired`.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        session, row, late = _locked(question)
        stored, problems = ask_user.read_answers(row.questions, answers)
        if row.state == QuestionState.ANSWERED:
            if not problems and row.answers == stored and same_person(row.answered_by, actor):
                return row
            raise QuestionAnswered(
                f"this question was answered by {by_whom(row.answered_by, row.answered_at)}", current=row
            )
        if row.state == QuestionState.CANCELLED:
            raise QuestionCancelled(current=row)
        if row.state == QuestionState.EXPIRED or late:
            raise QuestionExpired(
                f"this question expired at {row.expires_at:%Y-%m-%d %H:%M:%S} UTC", current=row
            )
        if problems:
            detail = "; ".join(f"{item['path']}: {item['message']}" for item in problems)
            raise Invalid(detail[:2000], errors=problems)
        Question.objects.filter(pk=row.pk, state=QuestionState.OPEN).update(
            state=QuestionState.ANSWERED, answers=stored, answered_by=actor, answered_at=ClockTimestamp()
        )
        result = ToolOutcome(Outcome.SUCCEEDED.value, ask_user.content_of(row.questions, stored))
        call = tool_calls.complete_waiting(row.tool_call_id, result)
        data = entry_kinds.QuestionAnswered(question=ids.encode("qst", row.pk), answers=stored)
        log.append(
            session,
            log.NewEntry(kind="question_answered", data=data, actor=actor, turn=row.turn_id),
            entries.tool_result(call, result),
        )
        session.crash_count = 0  # a result that is not an interruption (R9)
        scheduling.give_work(session)
        session.save()
        wakeups.after_commit(session)
        row.refresh_from_db()
    return row


def assign(*, question: UUID, assignee: str | None) -> Question:
    """Say whose question it is, for the inbox; anybody may still answer it. Raises `NotFound`, `Conflict`."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        _, row, _ = _locked(question)
        if row.state != QuestionState.OPEN:
            raise Conflict("only an open question can be assigned", current=row)
        row.assignee = assignee
        row.save(update_fields=["assignee"])
    return row


def close_of(calls: Collection[UUID], *, state: QuestionState) -> list[Closed]:
    """Close the open questions of these calls, whose session the caller has locked."""
    if not calls:
        return []
    rows = Question.objects.filter(tool_call_id__in=calls, state=QuestionState.OPEN).order_by("id")
    closed = [Closed("question", pk, turn, state.value) for pk, turn in rows.values_list("pk", "turn_id")]
    if closed:
        Question.objects.filter(pk__in=[one.id for one in closed]).update(state=state)
    return closed


def _locked(question: UUID) -> tuple[Session, Question, bool]:
    """The locked session, the question read under that lock, and whether its time is over."""
    found = Question.objects.filter(pk=question).values_list("session_id", flat=True).first()
    session = leases.lock_session(found) if found is not None else None
    if session is None:
        raise NotFound("no such question")
    late = ExpressionWrapper(Q(expires_at__lte=ClockTimestamp()), output_field=BooleanField())
    row = Question.objects.annotate(late=late).get(pk=question)
    return session, row, bool(row.late)
