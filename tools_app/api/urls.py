"""Paths of the API that belong to tools: which there are, calls, and what people are asked about them."""

from django.urls import URLPattern, URLResolver, path

from tools_app.api.approval_views import ApprovalsView, ApprovalView, DecisionsView, DecisionView
from tools_app.api.catalogue_views import ToolsView
from tools_app.api.claim_view import claim
from tools_app.api.permission_views import ExplainView, RememberedDecisionsView, RememberedDecisionView
from tools_app.api.question_views import AnswerView, QuestionsView, QuestionView
from tools_app.api.skill_views import SkillsView, SkillVersionsView, SkillView
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
    path("permissions/explain", ExplainView.as_view()),
    path("permissions/remembered", RememberedDecisionsView.as_view()),
    path("permissions/remembered/<str:decision>", RememberedDecisionView.as_view()),
    path("questions", QuestionsView.as_view()),
    path("questions/<str:question>", QuestionView.as_view()),
    path("questions/<str:question>/answer", AnswerView.as_view()),
    path("skills", SkillsView.as_view()),
    path("skills/<str:name>", SkillView.as_view()),
    path("skills/<str:name>/versions", SkillVersionsView.as_view()),
    path("tools", ToolsView.as_view()),
    path("tool-calls", ToolCallsView.as_view()),
    path("tool-calls/claim", claim),
    path("tool-calls/<str:tool_call>", ToolCallView.as_view()),
    path("tool-calls/<str:tool_call>/extend", ExtendView.as_view()),
    path("tool-calls/<str:tool_call>/progress", ProgressView.as_view()),
    path("tool-calls/<str:tool_call>/release", ReleaseView.as_view()),
    path("tool-calls/<str:tool_call>/result", ResultView.as_view()),
]
