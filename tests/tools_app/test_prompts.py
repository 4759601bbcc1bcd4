"""What closes open prompts, what leaves them alone, and what an answer costs."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import ids, inputs, rewinding
from sessions_app.models import Entry, Session
from sessions_app.sweeper import Sweeper
from tests import factories
from tests.acceptance import agents
from tests.factories import ACTOR
from tests.sessions_app.api.conftest import Api, api, new_api, problem  # noqa: F401 - fixtures
from tests.sessions_app.engine.in_process import working
from tools_app import approvals, questions
from tools_app.models import Approval, Question, ToolCall

COLOURS = {"text": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}


def text(content: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": content}]


@pytest.fixture
def session(db: None) -> Session:
    return factories.session()


# --- cancel_open -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cancel_open", [False, True])
def test_a_promotion_closes_open_prompts_only_where_it_says_so(session: Session, cancel_open: bool) -> None:
    """A55: and then only those of this session's turn; calls that wait for nobody stay as they are."""
    approval, question = factories.approval(session), factories.question(session)
    backend = factories.tool_call(session, state="waiting", name="create_ticket")
    sibling = factories.question(factories.session(config=session.config))
    waiting = factories.received_input(session)
    factories.waiting(session)
    inputs.promote_input(input=waiting.pk, actor=ACTOR, cancel_open=cancel_open)
    for row in (approval, question, sibling, backend):
        row.refresh_from_db()
    state = "cancelled" if cancel_open else "open"
    assert (approval.state, question.state) == (state, state)
    assert (sibling.state, backend.state) == ("open", "waiting")
    closed = Entry.objects.filter(session=session, kind__in=["approval_closed", "question_closed"])
    assert {entry.kind: entry.data["state"] for entry in closed} == (
        {"approval_closed": "cancelled", "question_closed": "cancelled"} if cancel_open else {}
    )
    row = factories.reread(session)
    assert [item["kind"] for item in row.waiting_on] == (
        ["tool"] if cancel_open else ["approval", "question", "tool"]
    )


def test_a_replayed_input_does_not_close_a_newer_prompt(api: Api) -> None:  # noqa: F811
    """A56, I4: what the first request closed is closed; the replay only repeats its answer."""
    session = factories.session(config=factories.config(project=api.project))
    factories.question(session)
    factories.waiting(session)
    path = f"/sessions/{ids.encode('ses', session.pk)}/inputs"
    body = {"content": "never mind", "delivery": "steering", "cancel_open": True}
    first = api.post(path, body, Idempotency_Key="k1")
    assert first.status_code == 202
    assert Question.objects.get().state == "cancelled"
    newer = factories.question(factories.reread(session))
    again = api.post(path, body, Idempotency_Key="k1")
    assert (again.json(), again["Idempotency-Replayed"]) == (first.json(), "true")
    newer.refresh_from_db()
    assert newer.state == "open"


def test_queued_input_may_not_close_prompts(api: Api) -> None:  # noqa: F811
    """A57, H5."""
    session = factories.session(config=factories.config(project=api.project))
    question = factories.question(session)
    factories.waiting(session)
    path = f"/sessions/{ids.encode('ses', session.pk)}/inputs"
    problem(api.post(path, {"content": "later", "cancel_open": True}), 400, "invalid")
    question.refresh_from_db()
    assert question.state == "open"
    assert not Entry.objects.filter(kind="input_received").exists()


def test_a_rewind_closes_what_was_open_on_the_branch_that_is_left(session: Session) -> None:
    """H5: the log says so, and the answer that comes afterwards is refused."""
    inputs.submit_input(session=session.pk, content=text("one"), actor=ACTOR)
    row = factories.reread(session)
    question = factories.question(row)
    factories.waiting(factories.reread(row))
    rewinding.rewind(session=session.pk, to_seq=1, actor=ACTOR)
    question.refresh_from_db()
    assert question.state == "cancelled"
    with pytest.raises(questions.QuestionCancelled):
        questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR)


# --- deadlines -------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_sweeper_closes_what_expired() -> None:
    """S12, H1: one look gives both sessions their due time, and the log says what expired."""
    session, other = factories.session(), factories.session()
    approval, question = (
        factories.approval(session, expires_in=-1),
        factories.question(other, expires_in=-1),
    )
    for row in (session, other):
        row.status, row.waiting_on = "waiting", [{"kind": "question", "id": "x", "since": None}]
        row.save()
    sweeper = Sweeper()
    sweeper.turn()
    sweeper.disconnect()
    for made in (approval, question):
        made.refresh_from_db()
        assert made.state == "expired"
    outcomes = dict(ToolCall.objects.values_list("name", "outcome"))
    assert outcomes == {"dev_append": "denied", "ask_user": "failed"}
    assert {factories.reread(row).status for row in (session, other)} == {"queued"}


# --- batches ---------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_model_is_asked_only_after_both_questions_of_a_batch(settings: Any) -> None:
    """A82."""
    reply = {"tool_calls": [agents.call("ask_user", questions=[COLOURS]) for _ in range(2)]}
    session = agents.start(reply, {"text": "Thanks."})
    with working(settings) as rested:
        rested(session)
        first, second = Question.objects.order_by("created_at")
        questions.answer(question=second.pk, answers=[{"options": [1]}], actor=ACTOR)
        row = rested(session)
        assert (row.status, row.model_calls) == ("waiting", 1)
        questions.answer(question=first.pk, answers=[{"options": [0]}], actor=ACTOR)
        assert rested(session).status == "idle"
    assert agents.said(session) == ["Thanks."]


@pytest.mark.django_db(transaction=True)
def test_of_three_calls_one_is_denied_and_the_others_run_once(settings: Any, tmp_path: Any) -> None:
    """C89: the model is asked when all three have results, and sees them in the order of the calls."""
    calls = [agents.call("dev_append", file=f"m{number}") for number in (1, 2, 3)]
    session = agents.start(
        {"tool_calls": calls}, {"text": "Done."}, permissions=[{"tool": "dev_append", "then": "ask"}]
    )
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        rested(session)
        one, two, three = Approval.objects.order_by("tool_call__position")
        approvals.decide(approval=three.pk, decision="allow", actor=ACTOR)
        assert rested(session).model_calls == 1
        approvals.decide(approval=two.pk, decision="deny", reason="Not that one.", actor=ACTOR)
        approvals.decide(approval=one.pk, decision="allow", actor=ACTOR)
        assert rested(session).status == "idle"
    sizes = [
        (tmp_path / f"m{number}").stat().st_size if (tmp_path / f"m{number}").exists() else 0
        for number in (1, 2, 3)
    ]
    assert sizes == [1, 0, 1]
    outcomes = ToolCall.objects.order_by("position").values_list("outcome", flat=True)
    assert list(outcomes) == ["succeeded", "denied", "succeeded"]
    assert agents.row(session).model_calls == 2


# --- cost ------------------------------------------------------------------------------------------------


def test_a_decision_and_an_answer_cost_a_known_number_of_statements(session: Session) -> None:
    """Each is one transaction; the number does not grow with what else the session has."""
    approval, question = factories.approval(session), factories.question(session)
    for _ in range(5):
        factories.question(session)
    with CaptureQueriesContext(
        connection,
    ) as decided:
        approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
    with CaptureQueriesContext(connection) as answered:
        questions.answer(question=question.pk, answers=[{"options": [0]}], actor=ACTOR)
    assert len(decided) == DECISION, [query["sql"][:120] for query in decided]
    assert len(answered) == ANSWER, [query["sql"][:120] for query in answered]


DECISION = 13
ANSWER = 13
