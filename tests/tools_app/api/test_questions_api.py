"""Questions over the API: read, answered once, with what the form allows."""

from typing import Any

import pytest

from sessions_app import control, ids
from sessions_app.models import Entry, Session
from tests import factories
from tests.sessions_app.api.conftest import Api, problem
from tools_app.models import Question, ToolCall

pytestmark = pytest.mark.django_db

FORM = [
    factories.COLOURS,
    {
        "text": "Which days?",
        "options": [{"label": "Mon"}, {"label": "Tue"}],
        "multiple": True,
        "allow_text": True,
    },
    {"text": "Why?", "options": [], "multiple": False, "allow_text": True},
]
FITS = [{"options": [1]}, {"options": [1, 0], "text": "and  Sundays "}, {"text": "Because."}]


@pytest.fixture
def session(api: Api) -> Session:
    return factories.session(config=factories.config(project=api.project))


@pytest.fixture
def question(session: Session) -> Question:
    made = factories.question(session, form=FORM)
    factories.waiting(session)
    return made


def path(question: Question, more: str = "/answer") -> str:
    return f"/questions/{ids.encode('qst', question.pk)}{more}"


def test_an_answer_is_stored_with_its_author_and_is_the_result_of_the_call(
    api: Api, question: Question
) -> None:
    """H2, I8."""
    answer = api.post(path(question), {"answers": FITS, "actor": {"id": "u-7", "name": "Ann"}})
    assert answer.status_code == 200
    body = answer.json()
    assert body["state"] == "answered"
    assert body["answers"] == [
        {"options": [1]},
        {"options": [0, 1], "text": "and  Sundays"},
        {"options": [], "text": "Because."},
    ]
    assert body["answered_by"] == {"kind": "external", "id": "u-7", "name": "Ann"}
    call = ToolCall.objects.get()
    assert (call.state, call.outcome) == ("completed", "succeeded")
    assert call.content == [
        {
            "type": "text",
            "text": "Which colour?\nBlue\n\nWhich days?\nMon; Tue; and  Sundays\n\nWhy?\nBecause.",
        }
    ]
    row = factories.reread(question.session_id)
    assert (row.status, row.waiting_on) == ("queued", [])


def test_the_same_answer_again_is_the_stored_one_and_another_is_refused(api: Api, question: Question) -> None:
    """H2, C97: options in another order are the same answer."""
    first = api.post(path(question), {"answers": FITS}).json()
    same = [FITS[0], {"options": [0, 1], "text": "and  Sundays"}, FITS[2]]
    again = api.post(path(question), {"answers": same})
    assert (again.status_code, again.json()) == (200, first)
    other = api.post(path(question), {"answers": [{"options": [0]}, *FITS[1:]]})
    refusal = problem(other, 409, "question_answered")
    assert refusal["current"] == first
    assert "answered by key of ours at " in refusal["detail"]
    assert Entry.objects.filter(kind="question_answered").count() == 1


def test_answering_a_closed_question_with_nonsense_is_a_conflict_too(api: Api, question: Question) -> None:
    """H2: what is over is over, whatever is sent."""
    api.post(path(question), {"answers": FITS})
    problem(api.post(path(question), {"answers": "x"}), 400, "invalid")
    problem(api.post(path(question), {"answers": [1]}), 409, "question_answered")


@pytest.mark.parametrize(
    ("answers", "where"),
    [
        ([], "/answers"),
        (FITS[:2], "/answers"),
        ([*FITS, {"options": [0]}], "/answers"),
        ([{"options": [2]}, *FITS[1:]], "/answers/0/options/0"),
        ([{"options": [-1]}, *FITS[1:]], "/answers/0/options/0"),
        ([{"options": [True]}, *FITS[1:]], "/answers/0/options/0"),
        ([{"options": ["Blue"]}, *FITS[1:]], "/answers/0/options/0"),
        ([{"options": [0, 1]}, *FITS[1:]], "/answers/0/options"),
        ([{"options": 1}, *FITS[1:]], "/answers/0/options"),
        ([{"options": [1], "text": "mine"}, *FITS[1:]], "/answers/0/text"),
        ([{"options": []}, *FITS[1:]], "/answers/0"),
        ([{"options": [1], "chosen": 1}, *FITS[1:]], "/answers/0/chosen"),
        ([FITS[0], {"options": [1, 1]}, FITS[2]], "/answers/1/options"),
        ([FITS[0], {"options": [], "text": "  "}, FITS[2]], "/answers/1"),
        ([FITS[0], FITS[1], {"text": 5}], "/answers/2/text"),
        ([FITS[0], FITS[1], {"options": [0]}], "/answers/2/options/0"),
        ([FITS[0], FITS[1], {"text": "x" * 20_001}], "/answers/2/text"),
        ([FITS[0], FITS[1], "Because."], "/answers/2"),
    ],
)
def test_an_answer_that_does_not_fit_the_form_leaves_it_open(
    api: Api, question: Question, answers: list[Any], where: str
) -> None:
    """H3, A94."""
    refusal = problem(api.post(path(question), {"answers": answers}), 400, "invalid")
    assert where in [error["path"] for error in refusal["errors"]]
    question.refresh_from_db()
    assert question.state == "open"


def test_a_question_of_a_cancelled_turn_stays_closed(api: Api, session: Session, question: Question) -> None:
    """H5, A95: no event, and new input opens a new turn."""
    control.cancel(session=session.pk, actor=factories.ACTOR)
    closed = Entry.objects.get(kind="question_closed")
    assert closed.data["state"] == "cancelled"
    problem(api.post(path(question), {"answers": FITS}), 409, "question_cancelled")
    assert not Entry.objects.filter(kind="question_answered").exists()
    assert factories.reread(session).status == "idle"


def test_an_answer_after_the_time_is_told_when_it_expired(api: Api, session: Session) -> None:
    """C95: it is not the result of the call, and the person is told."""
    late = factories.question(session, expires_in=-1)
    refusal = problem(api.post(path(late), {"answers": [{"options": [0]}]}), 409, "question_expired")
    assert "expired at 20" in refusal["detail"]
    assert ToolCall.objects.get().state == "waiting"


def test_lists_filters_and_foreign_ids(
    api: Api, other_api: Api, session: Session, question: Question
) -> None:
    """H6."""
    second = factories.question(session)
    api.patch(path(second, ""), {"assignee": "ann"})
    api.post(path(question), {"answers": FITS})

    def listed(query: str) -> list[str]:
        return [row["id"] for row in api.get(f"/questions{query}").json()["data"]]

    named = [ids.encode("qst", row.pk) for row in (second, question)]
    assert listed("") == named
    assert listed("?state=open") == named[:1]
    assert listed("?state=answered") == named[1:]
    assert listed("?assignee=ann") == named[:1]
    assert other_api.get("/questions").json()["data"] == []
    problem(other_api.get(path(question, "")), 404, "not_found")
    problem(other_api.post(path(second), {"answers": [{"options": [0]}]}), 404, "not_found")
    problem(api.get("/questions/qst_nonsense"), 404, "not_found")
    assert api.get(path(second, "")).json()["assignee"] == "ann"


def test_a_repeated_request_with_its_key_gets_the_first_answer(api: Api, question: Question) -> None:
    """I4."""
    first = api.post(path(question), {"answers": FITS}, Idempotency_Key="k1")
    again = api.post(path(question), {"answers": FITS}, Idempotency_Key="k1")
    assert (again.json(), again["Idempotency-Replayed"]) == (first.json(), "true")
