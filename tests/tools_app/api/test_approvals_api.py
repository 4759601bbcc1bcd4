"""Approvals over the API: listed, read, decided once."""

from typing import Any

import pytest

from sessions_app import control, ids
from sessions_app.models import Entry, Session
from tests import factories
from tests.sessions_app.api.conftest import Api, problem
from tools_app.models import Approval, RememberedDecision

pytestmark = pytest.mark.django_db

DENIED = {"decision": "deny", "reason": "Not on Fridays."}


@pytest.fixture
def session(api: Api) -> Session:
    """In a turn that waits for a person."""
    return factories.session(config=factories.config(project=api.project))


@pytest.fixture
def approval(session: Session) -> Approval:
    made = factories.approval(session)
    factories.waiting(session)
    return made


def named(approval: Approval) -> str:
    return ids.encode("apr", approval.pk)


def test_an_approval_shows_all_that_a_person_needs_to_decide(api: Api, approval: Approval) -> None:
    """H1: the full arguments, and whose session it is."""
    answer = api.get(f"/approvals/{named(approval)}")
    assert answer.status_code == 200
    assert answer.json() == {
        "id": named(approval),
        "session": ids.encode("ses", approval.session_id),
        "tool_call": ids.encode("tcl", approval.tool_call_id),
        "name": "dev_append",
        "arguments": {"file": "effect"},
        "state": "open",
        "rule": None,
        "reason": None,
        "decided_by": None,
        "decided_at": None,
        "expires_at": None,
        "assignee": None,
        "created_at": answer.json()["created_at"],
    }


def test_the_list_is_that_of_the_project_and_is_filtered(
    api: Api, other_api: Api, session: Session, approval: Approval
) -> None:
    """H6: one inbox for a project."""
    factories.approval(factories.session(config=factories.config(project=other_api.project)))
    second = factories.approval(session)
    api.post(f"/approvals/{named(approval)}/decision", DENIED)
    api.patch(f"/approvals/{named(second)}", {"assignee": "ann"})

    def listed(query: str) -> list[str]:
        return [row["id"] for row in api.get(f"/approvals{query}").json()["data"]]

    assert listed("") == [named(second), named(approval)]
    assert listed("?state=open") == [named(second)]
    assert listed("?assignee=ann") == [named(second)]
    assert listed("?assignee=bob") == []
    assert listed(f"?session={ids.encode('ses', session.pk)}&state=denied") == [named(approval)]
    assert listed("?limit=1") == [named(second)]


def test_another_projects_approval_is_not_there(other_api: Api, approval: Approval) -> None:
    for answer in (
        other_api.get(f"/approvals/{named(approval)}"),
        other_api.post(f"/approvals/{named(approval)}/decision", {"decision": "allow"}),
        other_api.post(
            "/approvals/decisions", {"decisions": [{"approval": named(approval), "decision": "allow"}]}
        ),
        other_api.patch(f"/approvals/{named(approval)}", {"assignee": "ann"}),
    ):
        problem(answer, 404, "not_found")
    assert Approval.objects.get().state == "open"


def test_allowing_makes_the_call_ready_and_the_session_due(api: Api, approval: Approval) -> None:
    """A90: one due time."""
    answer = api.post(f"/approvals/{named(approval)}/decision", {"decision": "allow"})
    assert (answer.status_code, answer.json()["state"]) == (200, "allowed")
    row = factories.reread(approval.session_id)
    assert (row.status, row.waiting_on) == ("queued", [])
    assert row.wake_at is not None
    approval.refresh_from_db()
    assert approval.tool_call is not None
    assert approval.tool_call.state == "ready"


def test_denying_gives_the_call_its_result_with_the_reason(api: Api, approval: Approval) -> None:
    """H4, A90: denied with the reason, one event."""
    person = {"id": "u-7", "name": "Ann"}
    answer = api.post(f"/approvals/{named(approval)}/decision", {**DENIED, "actor": person})
    assert answer.json()["decided_by"] == {"kind": "external", **person}
    decided, result = Entry.objects.filter(
        session=approval.session_id, kind__in=["approval_decided", "tool_result"]
    ).order_by("seq")
    assert decided.data == {"approval": named(approval), "decision": "deny", "reason": "Not on Fridays."}
    assert decided.actor == {"kind": "external", **person}
    assert result.data["outcome"] == "denied"
    assert "Ann denied it" in result.data["content"][0]["text"]


@pytest.mark.parametrize(("body", "count"), [({"decision": "allow"}, 3), (DENIED, 0)])
def test_a_call_that_may_kill_its_worker_again_is_no_progress(
    api: Api, approval: Approval, body: dict[str, Any], count: int
) -> None:
    """R9: a denial is a result and ends the suspicion, an allowance is none."""
    Session.objects.filter(pk=approval.session_id).update(crash_count=3)
    assert api.post(f"/approvals/{named(approval)}/decision", body).status_code == 200
    assert factories.reread(approval.session_id).crash_count == count


def test_the_same_decision_by_the_same_person_again_is_the_stored_one(api: Api, approval: Approval) -> None:
    """H2."""
    first = api.post(f"/approvals/{named(approval)}/decision", DENIED)
    before = Entry.objects.count()
    again = api.post(f"/approvals/{named(approval)}/decision", DENIED)
    assert (again.status_code, again.json()) == (200, first.json())
    assert Entry.objects.count() == before


@pytest.mark.parametrize("remember", ["no", "session", "always"])
def test_what_is_remembered_is_part_of_a_decision(api: Api, approval: Approval, remember: str) -> None:
    """H2, T7: nobody is told that a decision is remembered where it is not, or for longer than it is."""
    path = f"/approvals/{named(approval)}/decision"
    first = api.post(path, {"decision": "allow", "remember": remember})
    before = (Entry.objects.count(), RememberedDecision.objects.count())
    for other in {"no", "session", "always"} - {remember}:
        problem(api.post(path, {"decision": "allow", "remember": other}), 409, "approval_decided")
    again = api.post(path, {"decision": "allow", "remember": remember})
    assert (again.status_code, again.json()) == (200, first.json())
    assert (Entry.objects.count(), RememberedDecision.objects.count()) == before


@pytest.mark.parametrize(
    "other",
    [
        {"decision": "allow"},
        {"decision": "deny", "reason": "Another one."},
        {**DENIED, "actor": {"id": "u-8", "name": "Bob"}},
    ],
)
def test_any_other_decision_is_refused_with_who_and_when(
    api: Api, approval: Approval, other: dict[str, Any]
) -> None:
    """H2, C97."""
    stored = api.post(f"/approvals/{named(approval)}/decision", DENIED).json()
    refusal = problem(api.post(f"/approvals/{named(approval)}/decision", other), 409, "approval_decided")
    assert refusal["current"] == stored
    assert "denied by key of ours at " in refusal["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": None},
        {"decision": "ALLOW"},
        {"decision": "allow "},
        {"decision": "yes"},
        {"decision": "approve"},
        {"decision": True},
        {"decision": 1},
        {"decision": ["allow"]},
        {"approve": True},
        {"decision": "allow", "denied": True},
        {"decision": "deny", "remember": "always"},
    ],
)
def test_only_the_exact_word_allows(api: Api, approval: Approval, body: dict[str, Any]) -> None:
    """C98: whatever is unclear is refused and leaves the approval open."""
    assert api.post(f"/approvals/{named(approval)}/decision", body).status_code == 400
    approval.refresh_from_db()
    assert approval.state == "open"


def test_deciding_what_was_cancelled_revives_nothing(api: Api, session: Session, approval: Approval) -> None:
    """H5, A95."""
    control.cancel(session=session.pk, actor=factories.ACTOR)
    before = Entry.objects.count()
    answer = api.post(f"/approvals/{named(approval)}/decision", {"decision": "allow"})
    refusal = problem(answer, 409, "approval_cancelled")
    assert refusal["current"]["state"] == "cancelled"
    assert Entry.objects.count() == before
    assert factories.reread(session).status == "idle"


def test_deciding_too_late_says_when_it_expired(api: Api, session: Session) -> None:
    """C95: also before the sweeper has come by."""
    late = factories.approval(session, expires_in=-1)
    answer = api.post(f"/approvals/{named(late)}/decision", {"decision": "allow"})
    refusal = problem(answer, 409, "approval_expired")
    assert refusal["detail"].startswith("this approval expired at 20")


def test_many_are_decided_in_one_transaction(api: Api, session: Session, approval: Approval) -> None:
    """Bulk, C89: each call goes its own way."""
    other = factories.approval(factories.session(config=session.config))
    body = {
        "decisions": [
            {"approval": named(approval), "decision": "allow"},
            {"approval": named(other), "decision": "deny", "reason": "No."},
        ]
    }
    answer = api.post("/approvals/decisions", body)
    assert answer.status_code == 200
    assert [row["state"] for row in answer.json()["data"]] == ["allowed", "denied"]
    problem(api.post("/approvals/decisions", {"decisions": []}), 400, "invalid")


def test_one_that_cant_be_decided_refuses_them_all(api: Api, session: Session, approval: Approval) -> None:
    """All or none; `current` shows which one it was."""
    other = factories.approval(session)
    api.post(f"/approvals/{named(other)}/decision", {"decision": "allow"})
    body = {
        "decisions": [
            {"approval": named(approval), "decision": "deny"},
            {"approval": named(other), "decision": "deny"},
        ]
    }
    refusal = problem(api.post("/approvals/decisions", body), 409, "approval_decided")
    assert refusal["current"]["id"] == named(other)
    approval.refresh_from_db()
    assert approval.state == "open"


def test_a_repeated_request_with_its_key_gets_the_first_answer(api: Api, approval: Approval) -> None:
    """I4: also where somebody else would get a conflict by now."""
    path = f"/approvals/{named(approval)}/decision"
    first = api.post(path, {"decision": "allow"}, Idempotency_Key="k1")
    again = api.post(path, {"decision": "allow"}, Idempotency_Key="k1")
    assert (again.status_code, again.json()) == (200, first.json())
    assert again["Idempotency-Replayed"] == "true"


def test_only_an_open_approval_is_assigned(api: Api, approval: Approval) -> None:
    path = f"/approvals/{named(approval)}"
    assert api.patch(path, {"assignee": "ann"}).json()["assignee"] == "ann"
    assert api.patch(path, {"assignee": None}).json()["assignee"] is None
    problem(api.patch(path, {"assignee": ""}), 400, "invalid")
    api.post(f"{path}/decision", {"decision": "allow"})
    problem(api.patch(path, {"assignee": "ann"}), 409, "conflict")


@pytest.mark.parametrize("query", ["?state=done", "?session=ses_x", "?limit=0", "?status=open"])
def test_a_filter_that_is_none_is_refused(api: Api, query: str) -> None:
    problem(api.get(f"/approvals{query}"), 400, "invalid")
