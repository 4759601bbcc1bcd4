"""The tables of tools: calls, and what people are asked about them."""

from tools_app.models.approval import Approval, ApprovalState
from tools_app.models.child_wait import ChildWait, ChildWaitMode
from tools_app.models.question import Question, QuestionState
from tools_app.models.remembered import RememberedDecision
from tools_app.models.skill import Skill, SkillVersion
from tools_app.models.tool_call import EDGES, Outcome, ToolCall, ToolCallState, ToolClass

__all__ = [
    "EDGES",
    "Approval",
    "ApprovalState",
    "ChildWait",
    "ChildWaitMode",
    "Outcome",
    "Question",
    "QuestionState",
    "RememberedDecision",
    "Skill",
    "SkillVersion",
    "ToolCall",
    "ToolCallState",
    "ToolClass",
]
