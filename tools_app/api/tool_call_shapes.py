"""What clients see of tool calls."""

from typing import Any, NotRequired, TypedDict

from sessions_app import ids
from sessions_app.api.shapes import SessionId, Time, TurnId, shape_of, time, time_or_none
from tools_app.api.people_shapes import ApprovalId, ToolCallId
from tools_app.models import Approval, ToolCall


class Claim(TypedDict):
    """A worker of a backend that is at a call; `token` stands only in the answer to the claim itself."""

    expires_at: Time
    token: NotRequired[str]


# A field called `class` can't be written as one.
_WithClass = TypedDict("_WithClass", {"class": str})


class ToolCallShape(_WithClass):
    """One call of a tool. `content` is its result; `claim` is there while a backend's worker is at it."""

    id: ToolCallId
    session: SessionId
    turn: TurnId
    name: str
    arguments: Any
    state: str
    outcome: str | None
    content: list[dict[str, Any]] | None
    approval: ApprovalId | None
    deadline: Time | None
    claim: Claim | None
    created_at: Time
    completed_at: Time | None


@shape_of.register
def tool_call(row: ToolCall) -> ToolCallShape:
    """Of a row from `tool_calls.rows()`."""
    return {
        "id": ids.encode("tcl", row.pk),
        "session": ids.encode("ses", row.session_id),
        "turn": ids.encode("trn", row.turn_id),
        "name": row.name,
        "class": row.tool_class,
        "arguments": row.arguments,
        "state": row.state,
        "outcome": row.outcome,
        "content": row.content,
        "approval": _approval(row),
        "deadline": time_or_none(row.deadline),
        "claim": _claim(row) if row.claim_holds else None,  # type: ignore[attr-defined]
        "created_at": time(row.created_at),
        "completed_at": time_or_none(row.completed_at),
    }


def claimed(row: ToolCall, token: str) -> ToolCallShape:
    """A call as whoever has just claimed it sees it."""
    shape = tool_call(row)
    claim = _claim(row)
    if claim is not None:
        claim["token"] = token
    shape["claim"] = claim
    return shape


def _claim(row: ToolCall) -> Claim | None:
    return None if row.claim_expires_at is None else {"expires_at": time(row.claim_expires_at)}


def _approval(row: ToolCall) -> str | None:
    try:
        return ids.encode("apr", row.approval.pk)
    except Approval.DoesNotExist:
        return None
