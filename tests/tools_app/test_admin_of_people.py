"""Approvals and questions in the admin: the same services as over the API, by people."""

from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from sessions_app import ids
from sessions_app.models import Session
from tests import factories
from tools_app import approvals, questions
from tools_app.models import Approval, Question, ToolCall

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff() -> User:
    return User.objects.create_superuser("ann")


@pytest.fixture
def client(staff: User) -> Client:
    client = Client()
    client.force_login(staff)
    return client


@pytest.fixture
def session() -> Session:
    return factories.session()


def page(model: str, row: Approval | Question, action: str) -> str:
    return reverse(f"admin:tools_app_{model}_{action}", args=[row.pk])


def told(answer: object) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]  # type: ignore[attr-defined]


APPROVALS = reverse("admin:tools_app_approval_changelist")


def test_the_row_leads_to_a_page_with_the_full_arguments(client: Client, session: Session) -> None:
    """H6: nothing is decided by following a link."""
    value = "x" * 300
    approval = factories.approval(session, arguments={"file": value, "html": "<script>alert(1)</script>"})
    listed = client.get(APPROVALS).content.decode()
    assert page("approval", approval, "decide") in listed
    assert value not in listed
    shown = client.get(page("approval", approval, "decide")).content.decode()
    assert value in shown
    assert "<script>alert(1)</script>" not in shown
    approval.refresh_from_db()
    assert approval.state == "open"


@pytest.mark.parametrize(("decision", "state"), [("allow", "allowed"), ("deny", "denied")])
def test_a_person_decides_with_a_reason(
    client: Client, session: Session, staff: User, decision: str, state: str
) -> None:
    """H6, I8."""
    approval = factories.approval(session)
    client.post(page("approval", approval, "decide"), {"decision": decision, "reason": "Because."})
    approval.refresh_from_db()
    assert (approval.state, approval.reason) == (state, "Because.")
    assert approval.decided_by == {
        "kind": "user",
        "id": ids.encode("usr", UUID(int=staff.pk)),
        "name": "ann",
    }


@pytest.mark.parametrize("sent", [{}, {"decision": ""}, {"decision": "yes"}, {"reason": "Because."}])
def test_without_a_clear_word_nothing_is_decided(
    client: Client, session: Session, sent: dict[str, str]
) -> None:
    """C98."""
    approval = factories.approval(session)
    assert client.post(page("approval", approval, "decide"), sent).status_code == 200
    approval.refresh_from_db()
    assert approval.state == "open"


def test_a_second_decision_is_told_who_was_first(client: Client, session: Session) -> None:
    """H2, H6: refused with a message, never overwritten; the page says so too."""
    approval = factories.approval(session)
    approvals.decide(approval=approval.pk, decision="deny", actor=factories.ACTOR)
    shown = client.get(page("approval", approval, "decide")).content.decode()
    assert "by Test at" in shown
    assert 'value="allow"' not in shown
    answer = client.post(page("approval", approval, "decide"), {"decision": "allow"})
    assert told(answer)[0].startswith("dev_append: this was denied by Test at ")
    approval.refresh_from_db()
    assert approval.state == "denied"


def test_many_are_allowed_at_once_and_each_is_told(client: Client, session: Session) -> None:
    """H6: bulk; one that somebody decided meanwhile does not stop the others."""
    rows = [factories.approval(session) for _ in range(3)]
    approvals.decide(approval=rows[1].pk, decision="deny", actor=factories.ACTOR)
    answer = client.post(APPROVALS, {"action": "allow", "_selected_action": [str(row.pk) for row in rows]})
    assert [row.state for row in Approval.objects.order_by("created_at")] == ["allowed", "denied", "allowed"]
    said = told(answer)
    assert said[0] == "dev_append: allowed"
    assert "was denied by Test" in said[1]


def test_many_are_denied_with_one_reason_that_is_asked_for_first(client: Client, session: Session) -> None:
    """H6."""
    rows = [factories.approval(session) for _ in range(2)]
    body = {"action": "deny", "_selected_action": [str(row.pk) for row in rows]}
    asked = client.post(APPROVALS, body)
    assert asked.status_code == 200
    assert "effect" in asked.content.decode()
    assert {row.state for row in Approval.objects.all()} == {"open"}
    client.post(APPROVALS, body | {"apply": "1", "reason": "Not on Fridays."})
    assert [(row.state, row.reason) for row in Approval.objects.all()] == [("denied", "Not on Fridays.")] * 2


def test_a_remembered_allowance_says_so(client: Client, session: Session) -> None:
    """T7."""
    approval = factories.approval(session)
    client.post(page("approval", approval, "decide"), {"decision": "allow", "remember": "session"})
    (entry,) = session.entries.filter(kind="approval_decided")
    assert entry.data["remember"] == "session"


FORM = [
    factories.COLOURS,
    {
        "text": "Which <b>days</b>?",
        "options": [{"label": "Mon", "description": "early"}, {"label": "Tue"}],
        "multiple": True,
        "allow_text": True,
    },
    {"text": "Why?", "options": [], "multiple": False, "allow_text": True},
]


def test_the_form_is_made_of_the_questions_own_options(client: Client, session: Session) -> None:
    """H6: radio buttons for one, boxes for several, text where it is allowed."""
    question = factories.question(session, form=FORM)
    shown = client.get(page("question", question, "answer")).content.decode()
    assert shown.count('type="radio"') == 2
    assert shown.count('type="checkbox" name="options_1"') == 2
    assert 'name="text_0"' not in shown
    assert 'name="text_1"' in shown
    assert 'name="text_2"' in shown
    assert "Which &lt;b&gt;days&lt;/b&gt;?" in shown
    assert "Mon: early" in shown


def test_a_person_answers_the_form(client: Client, session: Session) -> None:
    """H6: the answer is the result of the call."""
    question = factories.question(session, form=FORM)
    sent = {"options_0": "1", "options_1": ["0", "1"], "text_1": "and Sundays", "text_2": "Because."}
    answer = client.post(page("question", question, "answer"), sent)
    assert told(answer) == ["Answered: the session goes on."]
    question.refresh_from_db()
    assert question.answers == [
        {"options": [1]},
        {"options": [0, 1], "text": "and Sundays"},
        {"options": [], "text": "Because."},
    ]
    assert ToolCall.objects.get().outcome == "succeeded"
    assert "Mon; Tue; and Sundays" in client.get(page("question", question, "answer")).content.decode()


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"options_0": "7", "options_1": ["0"], "text_2": "x"},
        {"options_0": "0", "options_1": ["0"]},
        {"options_0": "0", "text_2": "x"},
    ],
)
def test_an_answer_that_does_not_fit_is_shown_again(
    client: Client, session: Session, sent: dict[str, str]
) -> None:
    """H3: it stays open."""
    question = factories.question(session, form=FORM)
    answer = client.post(page("question", question, "answer"), sent)
    assert answer.status_code == 200
    assert answer.context["form"].errors or answer.request["REQUEST_METHOD"] == "POST"
    question.refresh_from_db()
    assert question.state == "open"


def test_a_second_answer_is_told_who_was_first(client: Client, session: Session) -> None:
    """H2, H6."""
    question = factories.question(session)
    questions.answer(question=question.pk, answers=[{"options": [0]}], actor=factories.ACTOR)
    answer = client.post(page("question", question, "answer"), {"options_0": "1"})
    assert told(answer)[0].startswith("this question was answered by Test at ")
    question.refresh_from_db()
    assert question.answers == [{"options": [0]}]


def test_who_may_only_look_can_decide_nothing(session: Session) -> None:
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(*Permission.objects.filter(codename__in=["view_approval", "view_question"]))
    client = Client()
    client.force_login(viewer)
    approval, question = factories.approval(session), factories.question(session)
    assert client.get(APPROVALS).status_code == 200
    assert client.post(page("approval", approval, "decide"), {"decision": "allow"}).status_code == 403
    assert client.post(page("question", question, "answer"), {"options_0": "0"}).status_code == 403
    client.post(APPROVALS, {"action": "allow", "_selected_action": [str(approval.pk)]})
    approval.refresh_from_db()
    assert approval.state == "open"
