"""What stands around the conversation, in words: one line for each entry that is worth one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sessions_app.console.standing import REASONS, Tone
from sessions_app.models import Entry

_RESUMED = {
    "crash": "its worker died",
    "drain": "a planned stop",
    "forced": "an operator took it from its worker",
    "branch": "it goes on from another point",
}
_CATEGORIES = {
    "rate": "the provider asks to slow down",
    "overloaded": "the provider is overloaded",
    "server": "the provider failed",
    "timeout": "no answer in time",
    "connection": "the connection failed",
    "cut": "the answer was cut off",
    "empty": "the answer was empty",
    "malformed": "the answer could not be read",
    "too_large": "the request is too large",
    "preparation": "nothing was sent",
    "limit": "the time of the turn was over",
}
_LIMITS = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "cost_usd": "cost in USD",
    "wall_time": "seconds",
    "tokens": "tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`words` say what happened, `detail` more of it; `at` is a moment to come, `session` the id of another one.

    `text` is longer text from elsewhere, folded away.
    """

    words: str
    icon: str = "circle"
    tone: Tone = "quiet"
    detail: str = ""
    at: datetime | None = None
    session: str = ""
    session_name: str = ""
    text: str = ""


def line_of(entry: Entry) -> Line | None:
    """None for entries that others show: replies, cards and the queue do."""
    data: Mapping[str, Any] = entry.data or {}
    who = (entry.actor or {}).get("name") or "somebody"
    match entry.kind:
        case "checkpoint":
            detail = f"{data['messages']} messages" if data.get("messages") else ""
            return Line(
                words="Earlier messages were summarized",
                icon="layers",
                detail=detail,
                text=str(data.get("summary", "")),
            )
        case "note":
            return Line(words="Note", icon="file", text=str(data.get("text", "")))
        case "session_created":
            return _created(data, who)
        case "session_updated":
            changes = ", ".join(sorted(map(str, set(data.get("changes", {})) - {"todos"})))
            if not changes:
                return None  # its list of what to do stands beside the timeline
            return Line(words=f"{who} changed {changes}", icon="gear")
        case "session_resumed":
            repaired = len(data.get("repaired_tool_calls", ()))
            why = _RESUMED.get(str(data.get("reason")), str(data.get("reason", "")))
            detail = (
                f"{why}; {repaired} interrupted call{'s' if repaired != 1 else ''} settled"
                if repaired
                else why
            )
            return Line(
                words=f"Resumed as attempt {data.get('attempt')}", icon="retry", tone="warn", detail=detail
            )
        case "turn_started":
            return Line(words=f"Turn {data.get('number')}", icon="right")
        case "turn_ended":
            return _ended(data)
        case "model_call_failed":
            category = str(data.get("category", ""))
            parts = [_CATEGORIES.get(category) or REASONS.get(category) or category.replace("_", " ")]
            if data.get("status"):
                parts.append(f"HTTP {data['status']}")
            if data.get("may_be_billed"):
                parts.append("it may be billed")
            return Line(
                words="The model call failed",
                icon="cross",
                tone="bad",
                detail=", ".join(part for part in parts if part),
                text=str(data.get("detail") or ""),
            )
        case "retry_scheduled":
            return Line(
                words=f"Retry {data.get('retry')}",
                icon="retry",
                tone="warn",
                detail=str(data.get("reason", "")).replace("_", " "),
                at=entry.created_at + timedelta(seconds=float(data.get("delay") or 0)),
            )
        case "limit_warning":
            return Line(words="Near a limit", icon="hand", tone="warn", detail=_limit(data))
        case "limit_reached":
            return Line(words="A limit was reached", icon="hand", tone="bad", detail=_limit(data))
        case "config_changed":
            return Line(words=f"{who} changed the config", icon="gear", detail=str(data.get("config", "")))
        case "input_cancelled":
            return Line(words=f"{who} took back what was queued", icon="cross")
        case "child_started":
            return Line(
                words="Started a subagent",
                icon="fork",
                session=str(data.get("child", "")),
                session_name=str(data.get("name") or "Subagent"),
            )
        case "child_ended":
            reason = REASONS.get(str(data.get("reason")), str(data.get("reason", "")))
            failed = data.get("status") == "failed"
            return Line(
                words="A subagent came to rest",
                icon="cross" if failed else "check",
                tone="bad" if failed else "quiet",
                detail=reason,
                session=str(data.get("child", "")),
                session_name="Open it",
            )
        case "branch_moved":
            return Line(words=f"{who} went back to entry {data.get('to_seq')}", icon="rewind", tone="warn")
        case "archived":
            return Line(words=f"{who} archived the session", icon="archive")
        case "restored":
            return Line(words=f"{who} restored the session", icon="archive")
        case "machine_attached" | "machine_detached":
            verb = "attached" if entry.kind.endswith("attached") else "detached"
            return Line(words=f"Machine {verb}", icon="code", detail=str(data.get("machine", "")))
        case "command_updated":
            return Line(
                words=f"Command {data.get('state', '')}", icon="code", detail=str(data.get("command", ""))
            )
    return None


def _created(data: Mapping[str, Any], who: str) -> Line:
    forked = data.get("forked_from") or {}
    if forked:
        return Line(
            words=f"{who} forked this session",
            icon="fork",
            detail=f"behind entry {forked.get('seq')}",
            session=str(forked.get("session", "")),
            session_name="of another one",
        )
    if data.get("parent"):
        return Line(
            words="Started as a subagent",
            icon="fork",
            session=str(data["parent"]),
            session_name="by another session",
        )
    imported = data.get("imported") or {}
    detail = f"with {imported.get('messages')} imported messages" if imported else ""
    return Line(words=f"{who} started the session", icon="plus", detail=detail)


def _ended(data: Mapping[str, Any]) -> Line:
    number, reason = data.get("number"), str(data.get("reason", ""))
    words = REASONS.get(reason, reason)
    error = data.get("error") or {}
    text = str(error.get("detail") or "")
    match data.get("status"):
        case "failed":
            return Line(words=f"Turn {number} failed", icon="cross", tone="bad", detail=words, text=text)
        case "cancelled":
            return Line(
                words=f"Turn {number} was cancelled",
                icon="stop",
                detail="" if reason == "cancelled" else words,
            )
    detail = "" if reason == "done" else words
    return Line(
        words=f"Turn {number} done", icon="check", tone="warn" if detail else "ok", detail=detail, text=text
    )


def _limit(data: Mapping[str, Any]) -> str:
    scope, _, what = str(data.get("limit", "")).partition(".")
    return (
        f"{data.get('used')} of {data.get('of')} {_LIMITS.get(what, what.replace('_', ' '))} of the {scope}"
    )
