"""Paths of the API that belong to tools: calls, and what people are asked about them."""

from django.urls import URLPattern, URLResolver, path

from tools_app.api.approval_views import ApprovalsView, ApprovalView, DecisionsView, DecisionView
from tools_app.api.claim_view import claim
from tools_app.api.question_views import AnswerView, QuestionsView, QuestionView
from tools_app.api.tool_call_views import (
    ExtendView,
    ProgressView,
    ReleaseView,
    ResultView,
    ToolCallsView,
    ToolCallView,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("approvals", ApprovalsView.as_view()),
    path("approvals/decisions", DecisionsView.as_view()),
    path("approvals/<str:approval>", ApprovalView.as_view()),
    path("approvals/<str:approval>/decision", DecisionView.as_view()),
    path("questions", QuestionsView.as_view()),
    path("questions/<str:question>", QuestionView.as_view()),
    path("questions/<str:question>/answer", AnswerView.as_view()),
    path("tool-calls", ToolCallsView.as_view()),
    path("tool-calls/claim", claim),
    path("tool-calls/<str:tool_call>", ToolCallView.as_view()),
    path("tool-calls/<str:tool_call>/extend", ExtendView.as_view()),
    path("tool-calls/<str:tool_call>/progress", ProgressView.as_view()),
    path("tool-calls/<str:tool_call>/release", ReleaseView.as_view()),
    path("tool-calls/<str:tool_call>/result", ResultView.as_view()),
]
