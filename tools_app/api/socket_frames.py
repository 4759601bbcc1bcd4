"""Decisions and answers over a socket, as the REST calls: on a session's socket of that session's prompts only.

So a ticket for one session, in the browser of somebody who may see just that, decides nothing elsewhere.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sessions_app.access import Access, external
from sessions_app.api.base import checked
from sessions_app.errors import NotFound
from sessions_app.feed.frames import register_frame
from tools_app import approvals, questions
from tools_app.api import people_shapes as shapes
from tools_app.api.people_requests import ApprovalRef, Decide, GiveAnswer, QuestionRef
from tools_app.models import Approval, Question


class DecisionFrame(Decide):
    approval: ApprovalRef


class AnswerFrame(GiveAnswer):
    question: QuestionRef


def decide(access: Access, session: UUID | None, frame: dict[str, Any]) -> Mapping[str, Any]:
    """The first decision counts, as for `POST /approvals/{id}/decision`."""
    body = checked(DecisionFrame, frame)
    rows = Approval.objects.filter(pk=body.approval, project=access.project)
    if session is not None:
        rows = rows.filter(session_id=session)
    if not rows.exists():
        raise NotFound("no such approval")
    row = approvals.decide(
        approval=body.approval,
        decision=body.decision,
        reason=body.reason,
        remember=body.remember,
        actor=access.actor if body.actor is None else external(body.actor),
    )
    return {"approval": shapes.approval(row)}


def answer(access: Access, session: UUID | None, frame: dict[str, Any]) -> Mapping[str, Any]:
    """The first answer counts, as for `POST /questions/{id}/answer`."""
    body = checked(AnswerFrame, frame)
    rows = Question.objects.filter(pk=body.question, project=access.project)
    if session is not None:
        rows = rows.filter(session_id=session)
    if not rows.exists():
        raise NotFound("no such question")
    row = questions.answer(
        question=body.question,
        answers=body.answers,
        actor=access.actor if body.actor is None else external(body.actor),
    )
    return {"question": shapes.question(row)}


def register() -> None:
    """Called where sockets are served."""
    register_frame("decision", decide)
    register_frame("answer", answer)
