"""Entries as the code makes them: one builder for each kind that is written in more than one place. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sessions_app import ids
from sessions_app.engine.limits import Near, Reached
from sessions_app.engine.resume import HANDS_OVER
from sessions_app.entry_kinds import (
    Actor,
    ApprovalRequested,
    Blocks,
    LimitReached,
    LimitWarning,
    ToolCallUpdated,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UserMessage,
)
from sessions_app.log import NewEntry
from sessions_app.tool_port import INTERRUPTED, Call, Settled, ToolOutcome


def tool_result(call: Call, result: ToolOutcome) -> NewEntry:
    data = ToolResult(
        tool_call=ids.encode("tcl", call.id),
        id=call.call_id,
        name=call.name,
        outcome=result.outcome,
        content=result.content,
    )
    if call.name in HANDS_OVER and result.outcome == "succeeded":
        data["answered"] = True  # else `plan_resume` would read it as the hand-over itself
    return NewEntry(kind="tool_result", data=data, turn=call.turn)


def tool_results(results: Iterable[tuple[Call, ToolOutcome]]) -> list[NewEntry]:
    return [tool_result(call, result) for call, result in results]


def of_settled(settled: Settled) -> list[NewEntry]:
    """What the log says of calls that others brought to an end: first what was closed, then the results."""
    return [
        *(
            NewEntry(
                kind=f"{one.kind}_closed",
                data={one.kind: ids.encode(_PREFIXES[one.kind], one.id), "state": one.state},
                turn=one.turn,
            )
            for one in settled.closed
        ),
        *tool_results(settled.results),
    ]


_PREFIXES = {"approval": "apr", "question": "qst"}
_ASKED = {"approval": "approval_requested", "question": "question_asked"}


def asked(calls: Iterable[Call]) -> list[NewEntry]:
    """What new calls put to people."""
    return [
        NewEntry(kind=_ASKED[call.ask.kind], data=call.ask.data, turn=call.turn)
        for call in calls
        if call.ask is not None
    ]


def orphan_result(call: dict[str, Any], *, turn: UUID | None) -> NewEntry:
    """For a call of imported, forked or rewound history that has neither a result nor a row."""
    data = ToolResult(
        tool_call=call.get("tool_call") or "",
        id=call["id"],
        name=call["name"],
        outcome="interrupted",
        content=[{"type": "text", "text": INTERRUPTED}],
    )
    return NewEntry(kind="tool_result", data=data, turn=turn)


def tool_started(call: Call) -> NewEntry:
    data = {"tool_call": ids.encode("tcl", call.id), "name": call.name}
    return NewEntry(kind="tool_started", data=data, turn=call.turn)


def late_answer(call: Call, result: ToolOutcome) -> NewEntry:
    """What a tool said after its call had got its result (T5)."""
    data = ToolCallUpdated(
        tool_call=ids.encode("tcl", call.id), update=f"late answer: {result.outcome}", content=result.content
    )
    return NewEntry(kind="tool_call_updated", data=data, turn=call.turn)


def user_message(*, input_id: UUID, delivery: str, content: Blocks, actor: Actor, turn: UUID) -> NewEntry:
    data = UserMessage(input=ids.encode("inp", input_id), delivery=delivery, content=content)
    return NewEntry(kind="user_message", data=data, actor=actor, turn=turn)


def turn_started(*, turn: UUID, number: int) -> NewEntry:
    return NewEntry(kind="turn_started", data=TurnStarted(number=number), turn=turn)


def turn_ended(
    *,
    turn: UUID,
    number: int,
    status: str,
    reason: str,
    error: dict[str, Any] | None,
    actor: Actor | None = None,
) -> NewEntry:
    data = TurnEnded(number=number, status=status, reason=reason, error=error)
    if actor is None:
        return NewEntry(kind="turn_ended", data=data, turn=turn)
    return NewEntry(kind="turn_ended", data=data, turn=turn, actor=actor)


def note(text: str, *, turn: UUID | None) -> NewEntry:
    return NewEntry(kind="note", data={"text": text}, turn=turn)


def session_waiting(waiting_on: Sequence[dict[str, Any]], *, turn: UUID | None) -> NewEntry:
    return NewEntry(kind="session_waiting", data={"waiting_on": list(waiting_on)}, turn=turn)


def session_resumed(*, attempt: int, reason: str, repaired: Sequence[str], turn: UUID | None) -> NewEntry:
    data = {"attempt": attempt, "reason": reason, "repaired_tool_calls": list(repaired)}
    return NewEntry(kind="session_resumed", data=data, turn=turn)


def limit_warning(near: Near, *, turn: UUID | None) -> NewEntry:
    data = LimitWarning(limit=near.limit, used=near.used, of=near.of)
    return NewEntry(kind="limit_warning", data=data, turn=turn)


def limit_asked(approval: UUID, reached: Reached, *, turn: UUID) -> NewEntry:
    data = ApprovalRequested(
        approval=ids.encode("apr", approval),
        tool_call=None,
        name="limit",
        arguments={"limit": reached.limit, "used": reached.used, "of": reached.of},
        rule=None,
    )
    return NewEntry(kind="approval_requested", data=data, turn=turn)


def limit_reached(reached: Reached, *, turn: UUID | None) -> NewEntry:
    data = LimitReached(limit=reached.limit, used=reached.used, of=reached.of)
    return NewEntry(kind="limit_reached", data=data, turn=turn)
