"""Races for an answer, staged: hold the session's row, let both stand in line, let go, look at the winner."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from sessions_app import control, inputs, leases
from sessions_app.models import Entry, Session
from sessions_app.scheduling import reschedule
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, another_connection, holding, wait_until_blocked
from tools_app import approvals, questions
from tools_app.models import Approval, Question, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

BOB = {"kind": "user", "id": "usr_bob", "name": "Bob"}
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


@pytest.fixture
def session() -> Session:
    return factories.session()


def in_line(session: Session, *functions: Callable[[], Any]) -> list[Contender]:
    """Both wait for the session's row, in this order; then it is free."""
    contenders = []
    with holding(LOCK, session.pk):
        for number, function in enumerate(functions, start=1):
            contenders.append(Contender(function))
            wait_until_blocked(number)
    return contenders


def results(session: Session) -> list[Entry]:
    return list(Entry.objects.filter(session=session, kind="tool_result"))


def test_of_two_different_decisions_exactly_one_counts(session: Session) -> None:
    """A92, H2."""
    approval = factories.approval(session)
    one, two = in_line(
        session,
        lambda: approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR),
        lambda: approvals.decide(approval=approval.pk, decision="deny", actor=BOB),
    )
    assert one.result().state == "allowed"
    with pytest.raises(approvals.ApprovalDecided) as refused:
        two.result()
    assert refused.value.data["current"].decided_by == ACTOR
    assert ToolCall.objects.get().state == "ready"
    assert results(session) == []


def test_of_two_different_answers_exactly_one_counts(session: Session) -> None:
    """A92, C97: one answer with its author; the other person is told."""
    question = factories.question(session)
    one, two = in_line(
        session,
        lambda: questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR),
        lambda: questions.answer(question=question.pk, answers=[{"options": [1]}], actor=BOB),
    )
    assert one.result().answers == [{"options": [0]}]
    with pytest.raises(questions.QuestionAnswered, match="answered by Test at"):
        two.result()
    assert len(results(session)) == 1


def test_the_same_answer_twice_at_once_is_one_answer(session: Session) -> None:
    """H2, C117."""
    question = factories.question(session)

    def answer() -> Question:
        return questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR)

    one, two = in_line(session, answer, answer)
    assert one.result().answered_at == two.result().answered_at
    assert len(results(session)) == 1


def test_an_answer_that_came_before_the_cancel_counts(session: Session) -> None:
    """H5, I6: exactly one of the two."""
    question = factories.question(session)
    answered, cancelled = in_line(
        session,
        lambda: questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR),
        lambda: control.cancel(session=session.pk, actor=ACTOR),
    )
    assert answered.result().state == "answered"
    cancelled.result()
    (result,) = results(session)
    assert result.data["outcome"] == "succeeded"
    assert Question.objects.get().state == "answered"


@pytest.mark.parametrize("end", [control.cancel, control.archive])
def test_an_answer_behind_the_end_of_the_turn_revives_nothing(session: Session, end: object) -> None:
    """H5, A95."""
    approval, question = factories.approval(session), factories.question(session)
    ended, decided, answered = in_line(
        session,
        lambda: end(session=session.pk, actor=ACTOR),  # type: ignore[operator]
        lambda: approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR),
        lambda: questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR),
    )
    ended.result()
    with pytest.raises(approvals.ApprovalCancelled):
        decided.result()
    with pytest.raises(questions.QuestionCancelled):
        answered.result()
    assert [row.data["outcome"] for row in results(session)] == ["cancelled", "cancelled"]
    assert {row.state for row in Approval.objects.all()} | {row.state for row in Question.objects.all()} == {
        "cancelled"
    }


def expire(session: Session) -> None:
    """As the sweeper does at a deadline: give the session its due time."""
    with transaction.atomic():
        row = leases.lock_session(session.pk)
        assert row is not None
        reschedule(row)
        row.save()


def test_an_answer_that_was_in_time_is_the_result_and_no_expiry_follows(session: Session) -> None:
    """C96, S12: an answer that was acknowledged wins."""
    question = factories.question(session, expires_in=3600)
    answered, expired = in_line(
        session,
        lambda: questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR),
        lambda: expire(session),
    )
    assert answered.result().state == "answered"
    expired.result()
    (result,) = results(session)
    assert result.data["outcome"] == "succeeded"


def test_an_answer_at_the_timeout_is_either_the_result_or_refused(session: Session) -> None:
    """C96, C95: the clock is the database's, read behind the lock."""
    question = factories.question(session, expires_in=0.3)
    expired, answered = in_line(
        session,
        lambda: expire(session),
        lambda: questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR),
    )
    expired.result()
    try:
        answered.result()
        wanted = ("answered", "succeeded")
    except questions.QuestionExpired:
        expire(session)
        wanted = ("expired", "failed")
    (result,) = results(session)
    assert (Question.objects.get().state, result.data["outcome"]) == wanted


def test_a_call_whose_arguments_changed_cant_be_allowed(session: Session) -> None:
    """C99, T7: the database refuses the change; should it ever come about, the approval does not fit any more."""
    approval = factories.approval(session)
    with another_connection() as other:
        other.execute("ALTER TABLE tools_app_toolcall DISABLE TRIGGER tool_call_is_what_was_asked")
        try:
            other.execute('UPDATE tools_app_toolcall SET arguments = \'{"file": "other"}\'')
        finally:
            other.execute("ALTER TABLE tools_app_toolcall ENABLE TRIGGER tool_call_is_what_was_asked")
    with pytest.raises(approvals.ArgumentsChanged):
        approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
    approval.refresh_from_db()
    assert (approval.state, approval.arguments) == ("open", {"file": "effect"})
    assert approvals.decide(approval=approval.pk, decision="deny", actor=ACTOR).state == "denied"


def test_decisions_of_several_sessions_lock_them_in_one_order() -> None:
    """L11: two bulk decisions over the same sessions, named in opposite orders, both come to an end."""
    first, second = sorted((factories.session(), factories.session()), key=lambda row: row.pk)
    rows = [factories.approval(one) for one in (first, first, second, second)]

    def decide(*chosen: Approval) -> object:
        wanted = [approvals.Decision(approval=row.pk, decision="allow") for row in chosen]
        return lambda: approvals.decide_all(wanted, actor=ACTOR)

    one, two = in_line(first, decide(rows[0], rows[2]), decide(rows[3], rows[1]))
    assert [row.state for row in one.result() + two.result()] == ["allowed"] * 4


def test_a_person_is_asked_about_a_call_once(session: Session) -> None:
    """A97: the database holds it."""
    approval = factories.approval(session)
    with pytest.raises(IntegrityError):
        Approval.objects.create(
            project_id=session.project_id,
            session=session,
            turn_id=approval.turn_id,
            tool_call=approval.tool_call,
            name="x",
            arguments={},
            digest="x",
        )


@pytest.mark.parametrize(
    "change", ["state = 'open'", "decided_by = '{}'", "reason = 'x'", "arguments = '{}'"]
)
def test_the_database_refuses_to_change_a_decision(session: Session, change: str) -> None:
    """H2, T7."""
    approval = factories.approval(session)
    approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match=r"refused|check constraint"):
        cursor.execute(f"UPDATE tools_app_approval SET {change}")  # noqa: S608


def test_queued_input_leaves_what_is_open_alone(session: Session) -> None:
    """A98: both remain."""
    factories.question(session)
    factories.waiting(session)
    inputs.submit_input(session=session.pk, content=[{"type": "text", "text": "later"}], actor=ACTOR)
    assert Question.objects.get().state == "open"
    assert factories.reread(session).status == "waiting"
    assert Entry.objects.filter(kind="input_received").count() == 1


def test_an_open_question_survives_every_process(session: Session) -> None:
    """C100, A70: the lease of the worker that asked has ended; the answer is accepted and the session is due."""
    worker = factories.worker()
    factories.leased(session, worker)
    question = factories.question(session)
    leases.end_worker(owner=worker.owner, reason="crash")
    assert factories.reread(session).status == "waiting"
    assert Question.objects.get().state == "open"
    questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR)
    assert factories.reread(session).status == "queued"
