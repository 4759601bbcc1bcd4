"""People and a backend of a test, who answer whatever they are asked, at once."""

from collections.abc import Iterable
from uuid import UUID

from tests.factories import ACTOR
from tools_app import approvals, custom_tools, questions
from tools_app.models import (
    Approval,
    ApprovalState,
    Question,
    QuestionState,
    ToolCall,
    ToolCallState,
    ToolClass,
)


def answer_everything(sessions: Iterable[UUID]) -> int:
    """Allow what awaits an approval, choose first options, post results of custom tools; how many there were."""
    wanted = list(sessions)
    asked = Approval.objects.filter(session_id__in=wanted, state=ApprovalState.OPEN).order_by("created_at")
    decisions = [
        approvals.Decision(approval=pk, decision="allow") for pk in asked.values_list("pk", flat=True)
    ]
    approvals.decide_all(decisions, actor=ACTOR)
    answered = len(decisions)
    for row in Question.objects.filter(session_id__in=wanted, state=QuestionState.OPEN).order_by(
        "created_at"
    ):
        answers = [{"options": [0]} if one["options"] else {"text": "yes"} for one in row.questions]
        questions.answer(question=row.pk, answers=answers, actor=ACTOR)
        answered += 1
    calls = ToolCall.objects.filter(
        session_id__in=wanted, state=ToolCallState.WAITING, tool_class=ToolClass.CUSTOM
    )
    for call in calls.select_related("session").order_by("created_at"):
        custom_tools.submit_result(
            project=call.session.project_id,
            tool_call=call.pk,
            outcome="succeeded",
            content=[{"type": "text", "text": "done by the backend"}],
            actor=ACTOR,
        )
        answered += 1
    return answered
