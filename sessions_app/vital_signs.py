"""Whether a worker may still believe that it holds its sessions. Pure; `heartbeat` asks, and acts on it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether the worker may go on; the other values are the reasons given to `on_abort`."""

    LIVE = "live"
    DATABASE_LOST = "database lost"
    LOCK_LOST = "lock lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the heart knows of itself. Times are monotonic seconds; no wall clock takes part (A19)."""

    renewed: float  # when the last renewal that succeeded was sent
    connected: float | None  # since when there is a connection; None while there is none
    locked: bool  # the lock is held on it, or is not relied upon


def abort_at(signs: Signs, *, ttl: float, regain: float) -> tuple[float, Verdict]:
    """When these signs become a reason to abort, if nothing changes, and which."""
    by_ttl = signs.renewed + ttl * 2 / 3
    if signs.connected is not None and not signs.locked and signs.connected + regain < by_ttl:
        return signs.connected + regain, Verdict.LOCK_LOST
    return by_ttl, Verdict.DATABASE_LOST


def judge(signs: Signs, *, now: float, ttl: float, regain: float) -> Verdict:
    """The one decision: go on or abort (L5, L6)."""
    moment, verdict = abort_at(signs, ttl=ttl, regain=regain)
    return verdict if now >= moment else Verdict.LIVE


def lock_proves_nothing(*, answered_by: int, connected_to: int, taken: bool, held: bool) -> bool:
    """Whether somebody stands between us and the session that took the lock (L6).

    `connected_to` is the server process that we were told when we connected, `answered_by` the one that ran
    the renewal. A pooler tells a number of its own, or changes the process behind our back.
    """
    return answered_by != connected_to or (taken and not held)
