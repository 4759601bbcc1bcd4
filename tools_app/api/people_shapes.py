"""Approvals and questions as clients see them."""

from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import Field

from sessions_app import ids
from sessions_app.api.shapes import ActorShape, SessionId, Time, id_field, shape_of, time, time_or_none
from tools_app.models import Approval, Question

ApprovalId = Annotated[str, id_field("apr")]
QuestionId = Annotated[str, id_field("qst")]
ToolCallId = Annotated[str, id_field("tcl")]


class ApprovalShape(TypedDict):
    """What an agent may do only once a person has allowed it, with the arguments that will be used.

    `rule` points at the rule of the config that asks; it is null where the default of the tool's class does.
    `tool_call` is null where the session asks to go on beyond a limit.
    """

    id: ApprovalId
    session: SessionId
    tool_call: ToolCallId | None
    name: str
    arguments: Any
    state: Annotated[str, Field(description="open, allowed, denied, cancelled or expired")]
    rule: str | None
    reason: str | None
    decided_by: ActorShape | None
    decided_at: Time | None
    expires_at: Time | None
    assignee: str | None
    created_at: Time


class OptionShape(TypedDict):
    label: str
    description: NotRequired[str]


class FormShape(TypedDict):
    """One question of a form; options are numbered from 0."""

    text: str
    options: list[OptionShape]
    multiple: bool
    allow_text: bool


class AnswerShape(TypedDict):
    options: list[int]
    text: NotRequired[str]


class QuestionShape(TypedDict):
    """A form that an agent put to people; `answers` has one answer for each of `questions`."""

    id: QuestionId
    session: SessionId
    tool_call: ToolCallId
    questions: list[FormShape]
    state: Annotated[str, Field(description="open, answered, cancelled or expired")]
    answers: list[AnswerShape] | None
    answered_by: ActorShape | None
    answered_at: Time | None
    expires_at: Time | None
    assignee: str | None
    created_at: Time


@shape_of.register
def approval(row: Approval) -> ApprovalShape:
    return {
        "id": ids.encode("apr", row.pk),
        "session": ids.encode("ses", row.session_id),
        "tool_call": ids.encode("tcl", row.tool_call_id) if row.tool_call_id is not None else None,
        "name": row.name,
        "arguments": row.arguments,
        "state": row.state,
        "rule": row.rule,
        "reason": row.reason,
        "decided_by": row.decided_by,
        "decided_at": time_or_none(row.decided_at),
        "expires_at": time_or_none(row.expires_at),
        "assignee": row.assignee,
        "created_at": time(row.created_at),
    }


@shape_of.register
def question(row: Question) -> QuestionShape:
    return {
        "id": ids.encode("qst", row.pk),
        "session": ids.encode("ses", row.session_id),
        "tool_call": ids.encode("tcl", row.tool_call_id),
        "questions": row.questions,
        "state": row.state,
        "answers": row.answers,
        "answered_by": row.answered_by,
        "answered_at": time_or_none(row.answered_at),
        "expires_at": time_or_none(row.expires_at),
        "assignee": row.assignee,
        "created_at": time(row.created_at),
    }
