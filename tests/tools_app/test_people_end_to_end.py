"""An agent that waits for people, with a real worker in this process: approvals and questions, asked and answered."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sessions_app.models import Lease
from tests.acceptance import agents
from tests.factories import ACTOR
from tests.sessions_app.engine.in_process import working
from tests.staging import eventually
from tools_app import approvals, questions
from tools_app.models import Approval, Question, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

ASK = [{"tool": "dev_append", "then": "ask"}]
COLOURS = {"text": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}


def kinds(session: Any) -> list[str]:
    return [entry.kind for entry in agents.log_of(session)]


def test_an_allowed_call_runs_once_with_the_arguments_that_were_shown(settings: Any, tmp_path: Path) -> None:
    """T7, H1, A90: the call waits as a row, holds no lease, and is ready when it is allowed."""
    call = agents.call("dev_append", file="effect")
    session = agents.start({"tool_calls": [call]}, {"text": "Done."}, permissions=ASK)
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        row = rested(session)
        approval = Approval.objects.get()
        assert row.status == "waiting"
        (waiting,) = row.waiting_on
        assert (waiting["kind"], waiting["id"][:4]) == ("approval", "apr_")
        assert not Lease.objects.exists()
        assert (approval.state, approval.arguments, approval.rule) == (
            "open",
            {"file": "effect"},
            "/permissions/0",
        )
        assert not (tmp_path / "effect").exists()
        approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
        assert rested(session).status == "idle"
    assert (tmp_path / "effect").read_bytes() == b"."
    assert agents.said(session) == ["Done."]
    asked = kinds(session)
    assert asked.index("approval_requested") < asked.index("approval_decided") < asked.index("tool_started")


def test_a_denied_call_has_a_result_with_the_reason_and_the_turn_goes_on(
    settings: Any, tmp_path: Path
) -> None:
    """H4, A90."""
    call = agents.call("dev_append", file="effect")
    session = agents.start({"tool_calls": [call]}, {"text": "Then not."}, permissions=ASK)
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        rested(session)
        decided = approvals.decide(
            approval=Approval.objects.get().pk, decision="deny", reason="Not on Fridays.", actor=ACTOR
        )
        assert rested(session).status == "idle"
    assert (decided.state, decided.decided_by) == ("denied", ACTOR)
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "denied"
    assert "Not on Fridays." in result.data["content"][0]["text"]
    assert not (tmp_path / "effect").exists()


def test_a_sibling_that_nothing_holds_back_runs_at_once(settings: Any, tmp_path: Path) -> None:
    """A81, T2: a blocked call blocks the turn, not its siblings; the model is asked when all have results."""
    reply = {"tool_calls": [agents.call("dev_append", file="asks"), agents.call("dev_lookup", key="x")]}
    session = agents.start(reply, {"text": "Done."}, permissions=ASK)
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        assert rested(session).status == "waiting"
        assert ToolCall.objects.get(name="dev_lookup").state == "completed"
        assert agents.said(session) == []
        approvals.decide(approval=Approval.objects.get().pk, decision="allow", actor=ACTOR)
        assert rested(session).status == "idle"
    assert agents.said(session) == ["Done."]


def test_what_a_person_answers_is_the_result_of_ask_user(settings: Any) -> None:
    """H1, T1: two questions in one form."""
    form = {"questions": [COLOURS, {"text": "Why?"}]}
    session = agents.start({"tool_calls": [agents.call("ask_user", **form)]}, {"text": "Blue it is."})
    with working(settings) as rested:
        row = rested(session)
        question = Question.objects.get()
        assert [(item["kind"], item["id"][:4]) for item in row.waiting_on] == [("question", "qst_")]
        questions.answer(
            question=question.pk,
            answers=[{"options": [1]}, {"options": [], "text": "It is calm."}],
            actor=ACTOR,
        )
        assert rested(session).status == "idle"
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "succeeded"
    assert result.data["content"][0]["text"] == "Which colour?\nBlue\n\nWhy?\nIt is calm."
    assert result.data["answered"] is True
    assert "question_answered" in kinds(session)


def test_a_question_that_needs_an_approval_is_put_once_it_is_allowed(settings: Any) -> None:
    """T7: also a call that only waits for people can be held back."""
    rule = [{"tool": "ask_user", "then": "ask"}]
    call = agents.call("ask_user", questions=[COLOURS])
    session = agents.start({"tool_calls": [call]}, {"text": "Red."}, permissions=rule)
    with working(settings) as rested:
        rested(session)
        assert not Question.objects.exists()
        approvals.decide(approval=Approval.objects.get().pk, decision="allow", actor=ACTOR)
        (wait,) = rested(session).waiting_on
        assert wait["kind"] == "question"
        assert datetime.fromisoformat(wait["since"]) == Question.objects.get().created_at
        questions.answer(question=Question.objects.get().pk, answers=[{"options": [0]}], actor=ACTOR)
        assert rested(session).status == "idle"
    assert agents.said(session) == ["Red."]


def test_what_the_rules_deny_is_never_asked(settings: Any, tmp_path: Path) -> None:
    """T7: one denied result that says which rule, and the turn goes on."""
    rules = [{"tool": "dev_*", "then": "deny"}]
    call = agents.call("dev_append", file="effect")
    session = agents.start({"tool_calls": [call]}, {"text": "Then not."}, permissions=rules)
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        assert rested(session).status == "idle"
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "denied"
    assert "rule" in result.data["content"][0]["text"]
    assert not Approval.objects.exists()
    assert not (tmp_path / "effect").exists()


def test_an_approval_that_expires_is_a_denial(settings: Any, tmp_path: Path) -> None:
    """H1, H4, S12: silence is never consent."""
    rules = [{"tool": "dev_append", "then": "ask", "expires_after": "1s", "on_expiry": "deny"}]
    call = agents.call("dev_append", file="effect")
    session = agents.start({"tool_calls": [call]}, {"text": "Then not."}, permissions=rules)
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        rested(session)
        eventually(lambda: agents.said(session), within=10)
    approval = Approval.objects.get()
    assert approval.state == "expired"
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "denied"
    (closed,) = agents.log_of(session, "approval_closed")
    assert closed.data["state"] == "expired"
    with pytest.raises(approvals.ApprovalExpired):
        approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
    assert not (tmp_path / "effect").exists()
