"""Ending the leases of dead loops, from a process of its own.

The supervisor never opens a database connection: it has to stay forkable, and a database that hangs must
not keep it from signals and deaths. So each look forks a helper from the warm supervisor (some 10 ms),
which connects, ends what the dead owners held, and exits. While the database is away the owners stay on
the list, and the helper is started again with growing pauses.
"""

import multiprocessing
import signal
import sys
import time
from multiprocessing.process import BaseProcess

import structlog
from django.db import DatabaseError, InterfaceError, connections

from sessions_app.hosting import process_tree, roles
from sessions_app.hosting.slots import backoff

log = structlog.get_logger(__name__)

HELPER_LIMIT = 10.0
"""Seconds after which a helper that does not end is killed and started again."""

RETRY_FIRST = 0.1
RETRY_MAX = 5.0

_INCOMPLETE = 75  # EX_TEMPFAIL


class Releases:
    """The owners whose leases have yet to be ended."""

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}
        self._under_way: dict[str, str] = {}
        self._helper: BaseProcess | None = None
        self._helper_until = 0.0
        self._failures = 0
        self._retry_at = 0.0

    @property
    def left(self) -> list[str]:
        """Owners that may still hold leases."""
        return [*self._under_way, *self._pending]

    @property
    def helper_pid(self) -> int | None:
        """The helper that runs now."""
        return self._helper.pid if self._helper is not None else None

    @property
    def next_look(self) -> float | None:
        """`time.monotonic()` value at which `tick` has something to do, besides the end of the helper."""
        if self._helper is not None:
            return self._helper_until
        return self._retry_at if self._pending else None

    def add(self, *, owner: str, reason: str) -> None:
        """End what `owner` holds; `reason` is `crash` or `drain`."""
        self._pending[owner] = reason

    def tick(self) -> None:
        """Look after the helper: note its end, start it when there is something to do."""
        now = time.monotonic()
        if self._helper is not None:
            if self._helper.is_alive():
                if now >= self._helper_until:
                    log.error("releases.helper_too_slow", seconds=HELPER_LIMIT)
                    self._helper.kill()
                return
            self._conclude(now)
        if self._pending and now >= self._retry_at:
            self._start(now)

    def _start(self, now: float) -> None:
        self._under_way, self._pending = self._pending, {}
        self._helper = multiprocessing.get_context("fork").Process(
            target=end_owners, args=(self._under_way,), name="tenure-release", daemon=True
        )
        self._helper.start()
        self._helper_until = now + HELPER_LIMIT

    def _conclude(self, now: float) -> None:
        helper, self._helper = self._helper, None
        under_way, self._under_way = self._under_way, {}
        if helper is not None and helper.exitcode == 0:
            self._failures, self._retry_at = 0, 0.0
            return
        self._failures += 1
        pause = backoff(self._failures, free=0, first=RETRY_FIRST, most=RETRY_MAX)
        self._retry_at = now + pause
        # Ending an owner twice does nothing, so all of them go back, whoever it was that failed.
        self._pending = under_way | self._pending
        log.warning("releases.incomplete", owners=len(under_way), failures=self._failures, retry_in=pause)


def end_owners(owners: dict[str, str]) -> None:
    """In the helper: end each owner's leases, going on past one that fails."""
    # A signal for the whole group asks the supervisor to stop; this is part of how it does.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_tree.set_title("tenure:release")
    end_worker = roles.end_worker()
    complete = True
    for owner, reason in owners.items():
        try:
            ended = end_worker(owner=owner, reason=reason)
        except (DatabaseError, InterfaceError) as error:
            complete = False
            log.warning("owner.release_failed", owner=owner, reason=reason, error=str(error).strip())
            # The next owner needs a connection of its own if this one broke.
            connections.close_all()
        else:
            log.info("owner.released", owner=owner, reason=reason, leases=ended)
    connections.close_all()
    sys.exit(0 if complete else _INCOMPLETE)
