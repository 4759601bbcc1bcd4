"""What a session does next. `plan_next` alone decides it, from data, and nothing else is stored about it (S4).

The order: the unfinished tool batch, what is waited for, the end that the last reply asks for, steering inputs,
the model call (first, retry, continuation; a compaction first where one is needed), then one queued input. The
compaction of an idle session that somebody asked for needs no turn. The shell (`runner`) carries the decision
out, saves what happened and asks again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from sessions_app.engine.compaction import Because
from sessions_app.engine.limits import Reached


class Tail(StrEnum):
    """What the branch ends in, looking through notes and the like."""

    NOTHING = "nothing"
    OWED = "owed"  # a user message, a tool result, or a paused reply: the model's turn to speak
    ANSWERED = "answered"  # a reply that ended by itself
    LENGTH = "length"
    FILTERED = "filtered"
    UNKNOWN = "unknown"
    INVALID_OUTPUT = "invalid_output"  # an answer that does not fit the output schema, for the last time


@dataclass(frozen=True, slots=True)
class OpenCall:
    id: UUID
    state: str  # of T1, not completed


@dataclass(frozen=True, slots=True)
class WaitingInput:
    id: UUID
    delivery: str  # queued or steering


@dataclass(frozen=True, slots=True)
class Failed:
    """The model call failed for good: how the turn ends."""

    reason: str
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Retry:
    """The model call failed and is asked again `delay` seconds from now, as retry number `number`."""

    delay: float
    number: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that the decision depends on."""

    turn_open: bool
    tail: Tail
    calls: Sequence[OpenCall] = ()
    inputs: Sequence[WaitingInput] = ()  # undelivered, in queue order
    failure: Failed | Retry | None = None  # of the call that this attempt just made
    retry_later: bool = False  # a retry time lies ahead
    output_problem: str | None = None  # what does not fit, where the tail is INVALID_OUTPUT
    crash_limited: bool = False
    compact: Because | None = None  # why the next model call has to wait for a compaction
    limit: Reached | None = None  # the limit that lets the turn, or the session, make no further model call
    may_ask: bool = False  # people can be asked to go on at that limit


@dataclass(frozen=True, slots=True)
class StartTurn:
    inputs: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class CallModel:
    steering: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Compact:
    """Ask for a summary of the older part; steering that waits is part of what the model sees afterwards."""

    because: Because
    steering: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class DropCompaction:
    """Nothing can be compacted though somebody asked for it: say so, once. `limit`: nothing may be."""

    limit: Reached | None = None


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these ready calls; others may be running already."""

    ready: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class AwaitTools:
    """Calls of this attempt are running."""


@dataclass(frozen=True, slots=True)
class Wait:
    """For people, backends, machines or children: release, and let them wake the session."""


@dataclass(frozen=True, slots=True)
class BackOff:
    retry: Retry | None  # None: the retry time is stored already


@dataclass(frozen=True, slots=True)
class AskLimit:
    """Ask people whether the turn may go on at this limit, and wait for them."""

    limit: Reached


@dataclass(frozen=True, slots=True)
class EndTurn:
    status: str
    reason: str
    error: dict[str, Any] | None = None
    limit: Reached | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do."""


type Decision = (
    StartTurn
    | CallModel
    | Compact
    | DropCompaction
    | RunTools
    | AwaitTools
    | Wait
    | BackOff
    | AskLimit
    | EndTurn
    | Rest
)

# A reply that ends the turn whatever waits: nothing may be added to it.
_ENDS_AT_ONCE = {
    Tail.FILTERED: EndTurn(
        "failed", "filtered", {"code": "filtered", "detail": "the provider's content filter ended the reply"}
    ),
    Tail.UNKNOWN: EndTurn(
        "failed",
        "unknown_stop",
        {"code": "unknown_stop", "detail": "the reply ended for a reason that is not known"},
    ),
}
_ENDS = {
    Tail.ANSWERED: EndTurn("succeeded", "done"),
    Tail.LENGTH: EndTurn("succeeded", "length"),
}


def plan_next(view: View) -> Decision:
    """The next thing to do. Pure and total."""
    steering = tuple(item.id for item in view.inputs if item.delivery == "steering")
    if not view.turn_open:
        if view.crash_limited:
            return Rest()
        if view.inputs:
            return StartTurn(steering or (view.inputs[0].id,))
        return _compaction_without_a_turn(view)
    if view.calls:
        ready = tuple(call.id for call in view.calls if call.state == "ready")
        if ready:
            return RunTools(ready)
        if any(call.state == "running" for call in view.calls):
            return AwaitTools()
        return Wait()
    if view.tail in _ENDS_AT_ONCE:
        return _ENDS_AT_ONCE[view.tail]
    if isinstance(view.failure, Failed):
        return EndTurn("failed", view.failure.reason, view.failure.error)
    if steering:
        return _ask(view, steering)
    if view.failure is not None:
        # A retry that may not be made is not waited for.
        return BackOff(view.failure) if view.limit is None else _at_limit(view, view.limit)
    if view.retry_later:
        return BackOff(None)
    if view.tail is Tail.INVALID_OUTPUT:
        detail = f"the answer does not fit the output schema, also when asked again: {view.output_problem}"
        return EndTurn("failed", "invalid_output", {"code": "invalid_output", "detail": detail})
    return _ENDS.get(view.tail) or _ask(view, ())


def _ask(view: View, steering: tuple[UUID, ...]) -> Decision:
    """The model's turn to speak: to the session, or first about it."""
    if view.limit is not None:
        return _at_limit(view, view.limit)
    if view.compact is None:
        return CallModel(steering)
    if view.compact is Because.IN_VAIN:
        return DropCompaction()
    return Compact(view.compact, steering)


def _at_limit(view: View, reached: Reached) -> Decision:
    """What a turn does that may make no further call (R8): it asks, where it may and has not been denied, or ends."""
    if view.may_ask:
        return AskLimit(reached)
    return EndTurn("failed", "limit", reached.error, reached)


def _compaction_without_a_turn(view: View) -> Decision:
    """Only what somebody asked for is done on an idle session; its failures cost nobody a turn."""
    if view.compact is Because.IN_VAIN:
        return DropCompaction()
    if view.compact is not Because.REQUESTED:
        return Rest()
    if view.limit is not None:
        return DropCompaction(view.limit)
    if isinstance(view.failure, Retry):
        return BackOff(view.failure)
    if view.retry_later:
        return BackOff(None)
    return Compact(view.compact)
