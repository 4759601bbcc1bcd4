"""When a session has to be looked at next, and what it is called until then (S11, S7).

`decide` is the one function for it; it is pure. Release, every end of a lease, inputs, cancel, archive and
the sweeper gather `Facts` under the session's lock and write what it says.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

type Wake = Literal["now"] | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    archived: bool = False
    open_turn: bool = False
    steering: bool = False  # undelivered input that joins the current turn
    queued: bool = False  # undelivered input that starts a turn of its own
    crash_limited: bool = False  # the crash count is at its limit: inherited input stays (R9)
    ready_call: bool = False
    open_calls: int = 0  # not completed, ready ones included
    awaiting: tuple[dict[str, str], ...] = ()  # what the open calls wait for, as `waiting_on` shows it
    compaction: bool = False  # somebody asked for one
    limit_asked: tuple[dict[str, str], ...] = ()  # the approval to go on at a limit that is open
    retry_at: datetime | None = None
    deadline: datetime | None = None  # the nearest one of an open call


@dataclass(frozen=True, slots=True)
class Due:
    """`wake` is the time to look again ("now" by the database's clock), `status` the name of the wait."""

    wake: Wake
    status: str
    waiting_on: tuple[dict[str, str], ...] = ()


def rests(facts: Facts) -> bool:
    """Whether the session has nothing more to do by itself: neither an open turn nor input that starts one.

    That is when a parent learns how its subagent's work ended (T8).
    """
    if facts.archived:
        return True
    return not facts.open_turn and (facts.crash_limited or not (facts.steering or facts.queued))


def decide(facts: Facts) -> Due:
    """What an unleased session is due for."""
    if facts.archived:
        return Due(None, "archived")
    undelivered = facts.steering or facts.queued
    if facts.crash_limited and undelivered and not facts.open_turn:
        return Due(None, "waiting", ({"kind": "crash_limit"},))
    if not facts.open_turn:
        if undelivered:
            return Due("now", "queued")
        if not facts.compaction or facts.crash_limited:
            return Due(None, "idle")
        return Due("now", "queued") if facts.retry_at is None else Due(facts.retry_at, "backing_off")
    if facts.ready_call:
        return Due("now", "queued")
    if facts.open_calls:
        return Due(facts.deadline, "waiting", facts.awaiting)
    if facts.limit_asked:
        return Due(None, "waiting", facts.limit_asked)
    if facts.retry_at is not None and not facts.steering:
        return Due(facts.retry_at, "backing_off")
    # A finished batch, a first call or steering input: the model's turn to speak.
    return Due("now", "queued")
