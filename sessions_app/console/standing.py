"""How a session stands, in words and a tone for people: one reading for lists, pages and headers.

The tone chooses colour and icon together; neither says anything that the words don't.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sessions_app.models import Session, SessionStatus, Turn, TurnStatus

type Tone = Literal["quiet", "ok", "live", "queued", "wait", "ask", "warn", "bad"]

_FOR: Mapping[str, tuple[str, Tone]] = {
    "approval": ("Needs approval", "ask"),
    "question": ("Asks a question", "ask"),
    "limit": ("At its limit", "ask"),
    "crash_limit": ("Stopped: crashes", "bad"),
    "tool": ("Waits for a tool", "wait"),
    "machine": ("Waits for a machine", "wait"),
    "child": ("Waits for a subagent", "wait"),
}
# What a person can do something about is named first.
_ORDER = ("approval", "question", "limit", "crash_limit", "machine", "tool", "child")

REASONS: Mapping[str, str] = {
    "length": "cut off at the length limit",
    "filtered": "stopped by a content filter",
    "unknown_stop": "stopped for an unknown reason",
    "invalid_output": "the answer does not fit its schema",
    "limit": "a limit was reached",
    "crash_limit": "too many crashes",
    "auth": "the provider refused the credentials",
    "quota": "the provider's quota is used up",
    "model_not_found": "the provider does not know the model",
    "invalid_request": "the provider refused the request",
    "retries_exhausted": "every retry failed",
    "retry_too_late": "the provider asks to wait too long",
    "context_too_long": "the context does not fit the model",
    "cancelled": "cancelled",
    "archived": "archived",
    "done": "done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`word` is short; `detail` says more, `at` is the moment that it speaks of (a retry)."""

    word: str
    tone: Tone
    detail: str = ""
    at: datetime | None = None


def of_session(row: Session) -> Standing:
    """For a row that was read with its last turn."""
    match row.status:
        case SessionStatus.RUNNING:
            return Standing(word="Running", tone="live")
        case SessionStatus.QUEUED:
            return Standing(word="Queued", tone="queued", detail="due, and waits for a free worker")
        case SessionStatus.BACKING_OFF:
            return Standing(word="Retrying", tone="warn", detail="the model call failed", at=row.retry_at)
        case SessionStatus.ARCHIVED:
            return Standing(word="Archived", tone="quiet")
        case SessionStatus.WAITING:
            return _waiting(row.waiting_on)
    if row.last_turn is None:
        return Standing(word="New", tone="quiet", detail="nobody has spoken yet")
    return of_turn(row.last_turn)


def of_turn(turn: Turn) -> Standing:
    """A turn, by how it ended."""
    reason = REASONS.get(turn.reason or "", turn.reason or "")
    match turn.status:
        case TurnStatus.RUNNING:
            return Standing(word="Running", tone="live")
        case TurnStatus.FAILED:
            return Standing(word="Failed", tone="bad", detail=reason)
        case TurnStatus.CANCELLED:
            return Standing(word="Cancelled", tone="quiet", detail="" if reason == "cancelled" else reason)
    return Standing(word="Done", tone="ok", detail="" if reason == "done" else reason)


def _waiting(waiting_on: list[dict[str, Any]]) -> Standing:
    kinds = [item["kind"] for item in waiting_on]
    first = next((kind for kind in _ORDER if kind in kinds), None)
    if first is None:
        return Standing(word="Waiting", tone="wait")
    word, tone = _FOR[first]
    more = len(kinds) - 1
    detail = f"and {more} more thing{'s' if more > 1 else ''} to wait for" if more else ""
    return Standing(word=word, tone=tone, detail=detail)
