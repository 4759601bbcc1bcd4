"""Deciding and answering in a card: the first answer counts, and whoever comes later is told who was first."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app import ids
from sessions_app.models import Session
from tests import factories
from tests.sessions_app.console.conftest import HTMX
from tools_app import approvals, questions
from tools_app.models import Approval, Question, RememberedDecision, ToolCall

BOB = {"kind": "user", "id": "usr_bob", "name": "bob"}
FORM = [
    {
        "text": "Where?",
        "options": [{"label": "Here"}, {"label": "There"}],
        "multiple": False,
        "allow_text": False,
    },
    {"text": "What else?", "options": [], "multiple": False, "allow_text": True},
]


@pytest.fixture
def approval(session: Session) -> Approval:
    return factories.approval(session)


@pytest.fixture
def question(session: Session) -> Question:
    return factories.question(session, form=FORM)


def decision(row: Approval) -> str:
    return f"/approvals/{ids.encode('apr', row.pk)}/decision"


def answer_of(row: Question) -> str:
    return f"/questions/{ids.encode('qst', row.pk)}/answer"


def test_allowed_and_denied_with_a_reason(browser: Client, approval: Approval) -> None:
    answer = browser.post(decision(approval), {"decision": "deny", "reason": "Not that file."}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert f'id="card-{ids.encode("tcl", approval.tool_call_id)}"' in page
    assert "Denied" in page
    assert "by ada" in page
    approval.refresh_from_db()
    assert (approval.state, approval.reason, approval.decided_by["name"]) == (
        "denied",
        "Not that file.",
        "ada",
    )
    assert "Not that file." in ToolCall.objects.get().content[0]["text"]


@pytest.mark.parametrize("remember", ["session", "always"])
def test_an_allowance_can_be_remembered(browser: Client, approval: Approval, remember: str) -> None:
    browser.post(decision(approval), {"decision": "allow", "remember": remember}, headers=HTMX)
    row = RememberedDecision.objects.get()
    assert (row.session_id is None) == (remember == "always")


def test_a_denial_is_never_remembered(browser: Client, approval: Approval) -> None:
    answer = browser.post(decision(approval), {"decision": "deny", "remember": "always"}, headers=HTMX)
    assert answer.status_code == 200
    assert not RememberedDecision.objects.exists()


@pytest.mark.parametrize("said", ["", "yes", "Allow", "allow ", "true"])
def test_only_allow_allows(browser: Client, approval: Approval, said: str) -> None:
    """C98: anything else is refused, and the approval stays open."""
    assert browser.post(decision(approval), {"decision": said}, headers=HTMX).status_code == 400
    approval.refresh_from_db()
    assert approval.state == "open"


def test_the_second_decision_is_refused_and_told_who_was_first(browser: Client, approval: Approval) -> None:
    """H2."""
    approvals.decide(approval=approval.pk, decision="deny", actor=BOB, reason="No.")
    answer = browser.post(decision(approval), {"decision": "allow"}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert 'role="alert"' in page
    assert "This was denied by bob at" in page
    assert "What you chose was not taken" in page
    assert "by bob" in page.partition('class="decided"')[2]
    assert "data-allow" not in page
    approval.refresh_from_db()
    assert (approval.state, approval.decided_by) == ("denied", BOB)


def test_a_decision_that_comes_too_late_can_be_sent_as_a_message(browser: Client, session: Session) -> None:
    """C95."""
    factories.open_turn(session)
    row = factories.approval(session, expires_in=-5)
    answer = browser.post(decision(row), {"decision": "allow", "reason": "It is fine <b>"}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "This approval expired at" in page
    assert f'hx-post="/sessions/{ids.encode("ses", session.pk)}/inputs"' in page
    assert "it was too late. It is fine &lt;b&gt;" in page


def test_a_question_is_answered_by_its_form(browser: Client, question: Question) -> None:
    """H3."""
    answer = browser.post(answer_of(question), {"option-0": "1", "text-1": "Hurry."}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 200
    question.refresh_from_db()
    assert question.answers == [{"options": [1]}, {"options": [], "text": "Hurry."}]
    assert "There" in page
    assert "by ada" in page


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, 2),
        ({"option-0": "0"}, 1),
        ({"option-0": ["0", "1"], "text-1": "x"}, 1),
        ({"option-0": "7", "text-1": "x"}, 1),
        ({"option-0": "x", "text-1": "x"}, 1),
        ({"option-0": "0", "text-0": "not asked", "text-1": "x"}, 1),
    ],
)
def test_answers_that_do_not_fit_are_told_at_their_question(
    browser: Client, question: Question, said: dict[str, object], wrong: int
) -> None:
    """H3: nothing is stored, and what was written stays in the form."""
    answer = browser.post(answer_of(question), said, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 400
    assert page.count('class="error"') == wrong
    if said.get("text-1"):
        assert f">{said['text-1']}</textarea>" in page
    question.refresh_from_db()
    assert question.state == "open"


def test_the_second_answer_is_refused_with_the_first(browser: Client, question: Question) -> None:
    """C97."""
    questions.answer(question=question.pk, answers=[{"options": [0]}, {"text": "Bob's words"}], actor=BOB)
    answer = browser.post(answer_of(question), {"option-0": "1", "text-1": "mine"}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "answered by bob at" in page
    assert "Bob&#x27;s words" in page
    assert "mine" not in page


def test_an_answer_that_comes_too_late_can_be_sent_as_a_message(browser: Client, session: Session) -> None:
    """C95: it is told, not stored, and what was written is not lost."""
    factories.open_turn(session)
    row = factories.question(session, form=FORM, expires_in=-5)
    answer = browser.post(answer_of(row), {"option-0": "1", "text-1": "Hurry."}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "This question expired at" in page
    message = page.partition('name="text" rows="3">')[2].partition("</textarea>")[0]
    assert message == "Where?\nThere\n\nWhat else?\nHurry."
    row.refresh_from_db()
    assert row.answers is None


def test_somebody_takes_it_and_gives_it_back(browser: Client, approval: Approval, question: Question) -> None:
    for prefix, row in (("apr", approval), ("qst", question)):
        path = f"/inbox/{ids.encode(prefix, row.pk)}/assignee"
        assert browser.post(path, {"to": "me"}, headers=HTMX).status_code == 204
        row.refresh_from_db()
        assert row.assignee == "ada"
        assert browser.post(path, headers=HTMX).status_code == 204
        row.refresh_from_db()
        assert row.assignee is None


def test_several_are_decided_at_once_or_none(browser: Client, session: Session) -> None:
    factories.open_turn(session)
    rows = [factories.approval(session) for _ in range(3)]
    keys = [ids.encode("apr", row.pk) for row in rows]
    approvals.decide(approval=rows[2].pk, decision="allow", actor=BOB)
    body = {"approval": keys, "decision": "deny", "reason": "All the same."}
    assert browser.post("/inbox/decisions", body, headers=HTMX).status_code == 409
    assert Approval.objects.filter(state="open").count() == 2
    answer = browser.post("/inbox/decisions", body | {"approval": keys[:2]}, headers=HTMX)
    assert answer.status_code == 204
    assert "2 denied" in answer["HX-Trigger"]
    assert Approval.objects.filter(state="denied", reason="All the same.").count() == 2
    for wrong in ({"approval": []}, {"approval": keys, "decision": "maybe"}):
        assert browser.post("/inbox/decisions", body | wrong, headers=HTMX).status_code == 400


def test_approvals_of_another_project_are_not_among_them(browser: Client, session: Session) -> None:
    other = factories.session()
    factories.open_turn(other)
    row = factories.approval(other)
    body = {"approval": ids.encode("apr", row.pk), "decision": "allow"}
    assert browser.post("/inbox/decisions", body, headers=HTMX).status_code == 404
    row.refresh_from_db()
    assert row.state == "open"


def test_answers_are_for_staff_with_a_token(staff: User, approval: Approval, question: Question) -> None:
    paths = (
        decision(approval),
        answer_of(question),
        f"/inbox/{ids.encode('apr', approval.pk)}/assignee",
        "/inbox/decisions",
    )
    stranger, forged = Client(), Client(enforce_csrf_checks=True)
    stranger.force_login(User.objects.create_user("mallory"))
    forged.force_login(staff)
    body = {
        "decision": "allow",
        "option-0": "0",
        "text-1": "x",
        "to": "me",
        "approval": ids.encode("apr", approval.pk),
    }
    for path in paths:
        assert stranger.post(path, body, headers=HTMX).status_code == 403
        assert forged.post(path, body, headers=HTMX).status_code == 403
        assert Client().post(path, body, headers=HTMX).status_code == 401
    approval.refresh_from_db()
    question.refresh_from_db()
    assert (approval.state, question.state, approval.assignee) == ("open", "open", None)


def test_what_is_not_there_is_not_found(browser: Client, approval: Approval) -> None:
    body = {"decision": "allow"}
    for path in (
        f"/approvals/{ids.encode('apr', ids.new_id())}/decision",
        f"/approvals/{ids.encode('qst', approval.pk)}/decision",
        "/approvals/apr_x/decision",
        f"/questions/{ids.encode('qst', ids.new_id())}/answer",
        "/inbox/apr_x/assignee",
        "/inbox/nothing/assignee",
    ):
        assert browser.post(path, body, headers=HTMX).status_code == 404
