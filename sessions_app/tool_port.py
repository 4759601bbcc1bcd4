"""The engine's view of tools. `tools_app` implements it; nothing here names a table of its.

The methods that take part in a transaction run inside the engine's own, under the session's lock.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

import psycopg

from sessions_app.providers.port import ToolSpec

if TYPE_CHECKING:
    from sessions_app.models import Session

type Blocks = list[dict[str, Any]]

INTERRUPTED = "Tool call was interrupted; its external outcome is unknown."


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call brought: `outcome` is succeeded, failed, denied, cancelled or interrupted."""

    outcome: str
    content: Blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a call puts to people before it goes on: a row of its own, and an entry that says so.

    `kind` is approval or question, `data` the data of the entry. The call's `deadline` is how long they have.
    """

    id: UUID
    kind: str
    data: Mapping[str, Any]
    then_deadline: float | None = None  # seconds that the call may wait for its result once it is allowed
    pattern: Mapping[str, Any] | None = None  # of an approval: what the rule that asks says of arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a saved reply, as the engine holds it. `state` is one of T1."""

    id: UUID
    session: UUID
    turn: UUID
    call_id: str
    name: str
    tool_class: str
    rerun_safe: bool
    arguments: Any
    position: int
    state: str
    config: UUID | None = None  # the config that the model was asked under; what it calls is what that says
    time_limit: float | None = None  # seconds; outside tools, always set for those
    deadline: float | None = None  # seconds from its creation; a call that waits is over when it passes
    ask: Ask | None = None  # calls that are being stored: what people are asked about it
    result: ToolOutcome | None = None  # calls that were refused before they could run (T3)


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a call that is being saved; it must still be in `from_state`.

    From `running` also by the same `attempt`, which has to be given then.
    """

    call: Call
    from_state: str
    result: ToolOutcome
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What the due time needs to know of a session's calls."""

    open_calls: int = 0
    ready: bool = False
    deadline: datetime | None = None
    awaiting: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """An approval or a question (`kind`) that nobody can answer any more; `state` is cancelled or expired."""

    kind: str
    id: UUID
    turn: UUID
    state: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What the end of a lease or of a turn did to calls, for the log: what was closed, and the results.

    `rerun` are calls that will run again.
    """

    results: list[tuple[Call, ToolOutcome]] = field(default_factory=list)
    rerun: list[Call] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool may know. `token` is its idempotency token: the call's own id.

    `sessions` are the rows that an internal tool has locked, by id: its own session's, and those it asked for.
    """

    project: UUID
    session: UUID
    attempt: int
    token: str
    config: Mapping[str, Any]
    sessions: "Mapping[UUID, Session]" = field(default_factory=dict)


class MoreSessions(Exception):
    """An internal tool found that it needs the rows of these sessions too; it is run again with them locked."""

    def __init__(self, sessions: Collection[UUID]) -> None:
        self.sessions = frozenset(sessions)
        super().__init__(f"{len(self.sessions)} sessions have to be locked")


type InDatabase = Callable[..., Awaitable[Any]]
"""`await in_database(function, *args)` runs a function that reads the database, in a thread that may."""


class Toolkit(Protocol):
    """The tools of one model call: what the model is told, and what becomes of the calls in its reply."""

    def specs(self) -> Sequence[ToolSpec]:
        """What the model is offered."""

    def prepare(self, *, session: UUID, turn: UUID, blocks: Blocks) -> tuple[Blocks, list[Call]]:
        """The reply's blocks as they are saved, and a row for each tool call among them, in order. Pure.

        Call blocks get `tool_call` ("tcl_…") and ids that are unique in the reply; exact duplicates of a call
        are dropped. Each call comes in the state it is inserted in: outside tools `running` (S5), internal
        ones `ready`, custom and human ones `waiting`, those that a person has to allow `awaiting_approval`
        with an `ask`. Unknown and disabled tools, arguments that do not fit and what the permissions deny
        come `completed`, with the result, which the caller writes to the log like any other.
        """


class ToolRuntime(Protocol):
    def known_names(self) -> Collection[str]:
        """The tools that this deployment offers, for a config's warnings."""

    def specs(self, config: Mapping[str, Any]) -> Sequence[ToolSpec]:
        """What a config document offers by itself, without asking anybody; for estimates."""

    async def toolkit(
        self, config: Mapping[str, Any], *, project: UUID, turn: UUID, in_database: InDatabase
    ) -> Toolkit:
        """The tools of the next model call of a turn. It may ask servers what they offer, within a bounded time."""

    def recall(self, calls: Sequence[Call], *, project: UUID, session: UUID) -> list[Call]:
        """The calls of a reply, those that people have allowed before without asking again (T7). One query.

        Only called where at least one of them awaits an approval.
        """

    def insert_calls(self, cursor: psycopg.Cursor[Any], rows: Sequence[tuple[Call, int, int]]) -> None:
        """Store new calls: (call, seq of the message it stands in, attempt)."""

    def start_calls(self, cursor: psycopg.Cursor[Any], rows: Sequence[tuple[UUID, int]]) -> None:
        """`ready` -> `running` for (call id, attempt); fails as `complete_calls` does."""

    def complete_calls(self, cursor: psycopg.Cursor[Any], rows: Sequence[Completed]) -> None:
        """Store results. A call that is not in the state it is completed from fails the whole statement.

        That is `Conflict`; in a pipeline, where the answer comes later, `psycopg.errors.RestrictViolation`.
        """

    def open_calls(self, session_ids: Iterable[UUID]) -> dict[UUID, list[Call]]:
        """Calls without a result, by session, in call order."""

    def facts(self, session_ids: Iterable[UUID]) -> dict[UUID, CallFacts]:
        """For the due time; sessions without open calls are missing."""

    def settle(self, session_id: UUID, *, attempt: int) -> Settled:
        """The lease of `attempt` ended: give its running calls a result or make them ready again (T4)."""

    def close(self, session_id: UUID, *, reason: str, only: Literal["open_prompts"] | None = None) -> Settled:
        """The turn ends: complete every open call as cancelled, and close what waits for people (I6).

        With `only="open_prompts"` just the calls that wait for a person are closed, and the turn goes on.
        """

    def expire(self, session_id: UUID) -> Settled:
        """Complete the waiting calls whose deadline has passed as failed (S12).

        For whoever looks at a session because of a deadline, under its lock, before asking `facts` again.
        """

    def ask_about_limits(
        self, cursor: psycopg.Cursor[Any], rows: Sequence[tuple[UUID, UUID, Mapping[str, str]]]
    ) -> None:
        """Store approvals to go on at a limit: (approval, turn, what is shown), behind the turns (R8)."""

    def close_limit(self, session_id: UUID) -> Settled:
        """Close the open approval to go on at a limit; the session is locked."""

    def child_ended(self, session_id: UUID) -> Settled:
        """A subagent of this session has come to rest: complete the calls that need wait no longer (T8)."""

    def undue_sql(self) -> str:
        """A SELECT of the session ids that have work by tools' tables: ready calls, past deadlines (S11)."""

    async def run_outside(self, call: Call, context: ToolContext) -> ToolOutcome:
        """Run an outside tool; its own failures are an outcome. Time limits are the caller's."""

    def can_be_stopped(self, call: Call) -> bool:
        """Whether cancelling `run_outside` ends the tool itself."""

    def needs(self, call: Call) -> Collection[UUID]:
        """The other sessions whose rows an internal tool needs, as far as its arguments tell (L11)."""

    def run_internal(self, call: Call, context: ToolContext, session: "Session") -> ToolOutcome | None:
        """Run an internal tool inside the open fence, in a savepoint. None where its call waits from now on.

        `session` is the locked row as the fence gave it. The tool may change it and append entries through
        it; the caller saves it. A failure of the tool undoes all that and is an outcome; a lost lease, database
        errors that may pass (`database.is_transient`) and `MoreSessions`, where other rows have to be locked
        beside it, are raised.
        """


_runtime: ToolRuntime | None = None


def register(runtime: ToolRuntime) -> None:
    """Called once, by the app that brings the tools, when Django is ready."""
    global _runtime  # noqa: PLW0603 - the one registration
    _runtime = runtime


def runtime() -> ToolRuntime:
    if _runtime is None:
        raise RuntimeError("no tool runtime is registered; is tools_app in INSTALLED_APPS?")
    return _runtime
