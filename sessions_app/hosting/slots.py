"""The seats of a supervisor's loops, and how long a seat stays empty after a death.

A seat is a role and a number (`worker-0`, `sweeper-0`). A loop that dies is replaced at once; one that dies
right after its start, again and again, waits longer each time, so that a broken deployment costs a fork every
half minute instead of a storm.
"""

import dataclasses

from sessions_app.hosting.liveness import Link

STABLE_AFTER = 1.0
"""A loop that lived this many seconds did not die of its start."""

FREE_DEATHS = 2
"""So many early deaths in a row are replaced without waiting: two kills in a row are not yet a pattern."""

BACKOFF_FIRST = 0.25
BACKOFF_MAX = 30.0


def backoff(failures: int, *, free: int, first: float, most: float) -> float:
    """Seconds to wait after so many failures in a row: none after `free`, then doubling up to `most`."""
    if failures <= free:
        return 0.0
    # The exponent is bounded so that a year of failures does not overflow a float.
    return min(most, first * 2.0 ** min(failures - free - 1, 32))


@dataclasses.dataclass(eq=False)
class Slot:
    """One seat; `link` and `owner` are set while a process holds it."""

    role: str
    number: int
    free_since: float
    link: Link | None = None
    owner: str = ""
    taken_at: float = 0.0
    last_beat: float = 0.0
    running: bool = False
    draining: bool = False
    ended: bool = False
    early_deaths: int = 0
    not_before: float = 0.0

    @property
    def name(self) -> str:
        """`worker-0`."""
        return f"{self.role}-{self.number}"

    def take(self, *, link: Link, owner: str, now: float) -> None:
        """A process becomes this loop."""
        self.link, self.owner = link, owner
        self.taken_at = self.last_beat = now
        self.running = self.draining = self.ended = False

    def vacate(self, *, now: float) -> float:
        """The process is gone; returns the seconds for which the seat stays empty."""
        early = not self.ended and not self.draining and now - self.taken_at < STABLE_AFTER
        self.early_deaths = self.early_deaths + 1 if early else 0
        delay = backoff(self.early_deaths, free=FREE_DEATHS, first=BACKOFF_FIRST, most=BACKOFF_MAX)
        self.link, self.running = None, False
        self.free_since, self.not_before = now, now + delay
        return delay

    def can_start(self, *, now: float) -> bool:
        """The seat is empty and its backoff is over."""
        return self.link is None and now >= self.not_before

    def missing_for(self, *, now: float) -> float:
        """Seconds for which a process should have sat here and did not."""
        return 0.0 if self.link is not None else max(0.0, now - max(self.free_since, self.not_before))
