"""What a step saves, and what became of it."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from sessions_app import ids
from sessions_app.due import Due
from sessions_app.engine.limits import Budget, Used
from sessions_app.log import NewEntry
from sessions_app.providers.port import Usage
from sessions_app.tool_port import Call, Completed

NO_USAGE = Usage(input_tokens=0, output_tokens=0, cached_tokens=0, reasoning_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStart:
    """The row that is committed before the call is sent (R1).

    In a tree of sessions it reserves `reserve` tokens, at least what the request has, of what the tree may use,
    `within` (R8).
    """

    id: UUID
    turn: UUID | None  # None: a compaction between turns
    config: UUID
    purpose: str = "reply"
    reserve: int | None = None
    within: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallEnd:
    """How a model call ended: `state` is succeeded or failed.

    `cost` is what this attempt cost, None where that is not known. `cost_added` goes into the turn's and the
    session's sums, and makes them unknown where it is None: what one call cost is not zero because nobody knows
    it. Only a failed attempt that may or may not have been billed leaves the sums as they are.
    """

    id: UUID
    turn: UUID | None
    state: str
    usage: Usage = NO_USAGE
    error: dict[str, Any] | None = None
    may_be_billed: bool = False
    first_token_seconds: float | None = None
    cost: Decimal | None = None
    cost_added: Decimal | None = None
    reserved: int | None = None  # what it had reserved in its tree


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAsk:
    """The approval that is opened at a limit (R8); its entry is among the entries."""

    id: UUID
    limit: str
    used: str
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    id: UUID
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    id: UUID
    status: str
    reason: str
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Then:
    """What follows, if nothing new arrived since it was planned."""

    entries: tuple[NewEntry, ...] = ()
    turn_end: TurnEnd | None = None
    turn_start: TurnStart | None = None
    deliver: tuple[UUID, ...] = ()  # inputs, whose user messages are among the entries
    start_calls: tuple[UUID, ...] = ()  # `ready` -> `running`
    model_call: ModelCallStart | None = None
    retry_in: float | None = None  # seconds; the release is then a backoff
    compaction_over: bool = False  # what was asked for is not to be
    limit_ask: LimitAsk | None = None
    release: Due | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWrite:
    """One step of one session. `message` is the index of the reply in `entries` whose calls are in `calls`."""

    session: UUID
    attempt: int
    work_rev: int
    entries: tuple[NewEntry, ...] = ()
    message: int | None = None
    calls: tuple[Call, ...] = ()
    results: tuple[Completed, ...] = ()
    model_call_end: ModelCallEnd | None = None
    resumed: bool = False  # `session_resumed` is among the entries: what the last lease left is told
    resets_crashes: bool = False
    compaction_over: bool = False  # a checkpoint is among the entries, or will not come: nobody waits for one
    then: Then = field(default_factory=Then)
    parent: UUID | None = (
        None  # of a subagent, where this step may bring it to rest: its parent is told with it
    )
    id: UUID = field(default_factory=ids.new_id)


@dataclass(frozen=True, slots=True)
class Saved:
    """The step is saved; `then` too, unless `moved`. `first_seq` is the number of its first entry.

    `tree` is what the others of its tree use, and it, where it has one.
    """

    moved: bool
    first_seq: int
    work_rev: int
    tree: Used | None = None
    project: UUID | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is gone; nothing was written."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The database refused this one step for good."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody kept the session locked for longer than a statement may wait; to be committed again."""

    error: Exception


type StepResult = Saved | Lost | Refused
