"""The heart of a worker process: it proves that the process lives, and stops it when that can't be proved.

It has a thread and a connection of its own, so it never waits behind steps. On that connection it holds the
worker's advisory lock, whose sudden freedom tells the sweeper of a dead process long before the time to live
runs out (L6), and every few seconds it renews the worker's row and reads back which leases are left (L4).

What may go wrong, and who decides:

- The connection breaks. The thread sees it at once (it waits on the socket), reconnects and takes the lock
  again. If the database answers and the lock stays taken, `judge` says LOCK_LOST after half a second.
- The database is away, or a renewal is stuck. Two thirds of the time to live after the *sending* of the last
  renewal that succeeded, by the monotonic clock, `judge` says DATABASE_LOST: before anybody else may believe
  this worker dead, it has stopped (L5). A second thread, which touches no socket, watches for this.
- The row was marked dead. Renewal says so; this heart is over, and the process starts anew with another one.
- Another process answers than the one that holds the lock, so a pooler stands between. Then the lock proves
  nothing, and this worker counts on its time to live alone.

After DATABASE_LOST and LOCK_LOST the heart goes on: the worker is alive, and once the database is back the
next beat shows which leases it still has.
"""

import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import Error as DjangoDatabaseError
from django.db import connections

from sessions_app import leases, own_connection
from sessions_app.errors import WorkerDead
from sessions_app.leases import LOCK_CLASS, Beat
from sessions_app.models import EndReason, Liveness, Worker
from sessions_app.nudge import Nudge
from sessions_app.vital_signs import Signs, Verdict, abort_at, judge, lock_proves_nothing

logger = structlog.get_logger(__name__)

RECONNECT_MAX = 0.2
"""Seconds between two tries to connect: short, because half a second decides about the lock."""

RETRY_LOCK = 0.05
RETRY_LOCK_LATER = 1.0
"""Seconds between two tries to take a lock that is still taken: while it decides something, and after."""

GAP = 0.02
"""Least seconds between two renewals, however often somebody asks for one."""

_TAKE_LOCK = "SELECT pg_try_advisory_lock(%s, %s)"

# A connection that broke on our side only still holds the lock on the server's.
_END_FORMER = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND objsubid = 2 AND granted AND pid = %s
"""


DECLARED_DEAD = "declared dead"
HEART_FAILED = "heart failed"
"""After these two the heart is over; the process starts over under a new number."""


class Heart:
    """One registration of one worker process, from its first beat to its clean end or its death.

    Callbacks come from the heart's threads and must be short: `on_beat(beat, sent_at)` after each renewal,
    with the monotonic time of its sending; `on_abort(reason)` when all runs have to end at once.
    """

    def __init__(
        self,
        *,
        owner: str,
        capacity: int,
        on_beat: Callable[[Beat, float], None],
        on_abort: Callable[[str], None],
    ) -> None:
        self._owner, self._capacity = owner, capacity
        self._on_beat, self._on_abort = on_beat, on_abort
        self._changed = threading.Condition()
        self._signs: Signs | None = None
        self._worker: int | None = None
        self._wanted = True  # a renewal, at once
        self._drain_wanted = self._drained = False
        self._stopping = self._over = False
        self._trusts_lock = True
        self._former_pid: int | None = None
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._locked_on: psycopg.Connection[tuple[Any, ...]] | None = None
        self._backend_pid: int | None = None
        self._nudge = Nudge()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self._guard = threading.Thread(target=self._watch, name="heart-guard", daemon=True)

    # what others may ask of it

    def start(self) -> None:
        """Begin; returns at once. The worker is registered when `wait_registered` says so."""
        self._thread.start()
        self._guard.start()

    def wait_registered(self, timeout: float | None = None) -> int | None:
        """The worker's number once it is registered and its first renewal is in; None after `timeout`."""
        with self._changed:
            self._changed.wait_for(lambda: self._signs is not None or self._over, timeout)
            return self._worker if self._signs is not None else None

    @property
    def worker(self) -> int | None:
        """The worker's number; None before it is registered."""
        return self._worker

    @property
    def over(self) -> bool:
        """Whether this heart has ended: stopped, or its worker declared dead."""
        return self._over

    @property
    def backend_pid(self) -> int | None:
        """The server process of its connection; None while there is none."""
        return self._backend_pid

    @property
    def live(self) -> bool:
        """Whether the worker may claim: registered, renewed in time, and its lock held."""
        signs = self._signs
        if signs is None or self._over:
            return False
        tenure = settings.TENURE
        verdict = judge(signs, now=time.monotonic(), ttl=tenure.worker_ttl, regain=tenure.lock_regain_timeout)
        return verdict is Verdict.LIVE

    def beat_now(self) -> None:
        """Renew at once, for instance because a lease is said to have ended."""
        with self._changed:
            self._wanted = True
        self._nudge.give()

    def drain(self, *, limit: float = 2.0) -> bool:
        """Commit that this is a planned stop (L8); False if the database did not take it within `limit`."""
        with self._changed:
            self._drain_wanted = True
            self._nudge.give()
            self._changed.wait_for(lambda: self._drained or self._over, limit)
            return self._drained

    def stop(self, *, limit: float = 2.0) -> None:
        """A clean end, when nothing runs any more: hand back what is held, mark the worker dead, free the lock."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            self._nudge.give()
        if self._thread.is_alive():
            self._thread.join(limit)
        if self._guard.is_alive():
            self._guard.join(limit)

    # the beating thread

    def _run(self) -> None:
        failures = 0
        try:
            while not self._stopping:
                try:
                    self._turn()
                    failures = 0
                except WorkerDead:
                    logger.warning("worker.declared_dead", worker=self._worker)
                    self._on_abort(DECLARED_DEAD)
                    return
                except (psycopg.Error, DjangoDatabaseError) as error:
                    failures += 1
                    if failures == 1:
                        logger.warning("heartbeat.failed", worker=self._worker, error=str(error).strip())
                    self._lose_connection_if_broken()
                    self._wanted = True
                    self._wait(own_connection.backoff(failures, longest=RECONNECT_MAX))
            self._end()
        except BaseException:
            # An error of ours: without a heart nothing may run, and the process has to say why it ends.
            self._on_abort(HEART_FAILED)
            raise
        finally:
            self._disconnect()
            connections.close_all()
            self._nudge.close()
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _turn(self) -> None:
        if self._worker is None:
            self._worker = self._register()
        if self._connection is None:
            self._connect()
        if not self._holds_lock():
            self._take_lock()
        if self._drain_wanted and not self._drained:
            with _borrowed_connection():
                leases.start_draining(worker=self._worker)
            with self._changed:
                self._drained = True
                self._changed.notify_all()
        now = time.monotonic()
        due = self._next_beat()
        if now >= due:
            self._beat()
            return
        if not self._holds_lock():
            due = min(due, now + (RETRY_LOCK if self.live else RETRY_LOCK_LATER))
        self._wait(due - now)
        if self._connection is not None:
            # Notices a connection that ended while nobody asked it anything.
            self._connection.pgconn.consume_input()

    def _next_beat(self) -> float:
        with self._changed:
            if self._signs is None:
                return 0.0
            return self._signs.renewed + (GAP if self._wanted else settings.TENURE.heartbeat_interval)

    def _register(self) -> int:
        """A new row. The owner's name is unique; a process that starts over gets a number behind its name."""
        with _borrowed_connection():
            starts = Worker.objects.filter(owner=self._owner).count()
            starts += Worker.objects.filter(owner__startswith=f"{self._owner}+").count()
            owner = f"{self._owner}+{starts + 1}" if starts else self._owner
            return leases.register_worker(owner=owner, capacity=self._capacity).pk

    def _connect(self) -> None:
        self._connection = own_connection.connect(purpose="heartbeat")
        self._backend_pid = self._connection.info.backend_pid
        with self._changed:
            if self._signs is not None:
                self._signs = Signs(
                    renewed=self._signs.renewed, connected=time.monotonic(), locked=not self._trusts_lock
                )
            self._wanted = True
            self._changed.notify_all()

    def _holds_lock(self) -> bool:
        return not self._trusts_lock or self._locked_on == self._connection

    def _take_lock(self) -> None:
        connection = self._connection
        if connection is None:
            return
        row = connection.execute(_TAKE_LOCK, [LOCK_CLASS, self._worker]).fetchone()
        if row is None or not row[0]:
            connection.execute(_END_FORMER, [LOCK_CLASS, self._worker, self._former_pid or 0])
            return
        self._locked_on = connection
        self._former_pid = self._backend_pid
        with self._changed:
            if self._signs is not None:
                self._signs = Signs(renewed=self._signs.renewed, connected=self._signs.connected, locked=True)
                self._changed.notify_all()

    def _beat(self) -> None:
        connection, worker = self._connection, self._worker
        if connection is None or worker is None:
            return
        sent_at = time.monotonic()
        with self._changed:
            self._wanted = False
        with connection.cursor() as cursor:
            beat = leases.heartbeat(cursor, worker=worker)
        locked = self._locked_on is connection
        distrust = self._trusts_lock and lock_proves_nothing(
            answered_by=beat.backend_pid,
            connected_to=connection.info.backend_pid,
            taken=locked,
            held=beat.lock_held,
        )
        if distrust:
            self._distrust_lock(worker)
        with self._changed:
            connected = self._signs.connected if self._signs is not None else sent_at
            self._signs = Signs(renewed=sent_at, connected=connected, locked=locked or not self._trusts_lock)
            self._changed.notify_all()
        self._on_beat(beat, sent_at)

    def _distrust_lock(self, worker: int) -> None:
        with _borrowed_connection():
            Worker.objects.filter(pk=worker).update(liveness=Liveness.TTL)
        self._trusts_lock = False
        logger.warning(
            "worker.lock_not_trusted",
            worker=worker,
            detail="a pooler stands before the database; set TENURE_DIRECT_DATABASE_URL, or a dead worker is"
            " noticed only after its time to live",
        )

    def _end(self) -> None:
        """Sign off. A process that can still say so did not crash: what it holds is handed back as planned."""
        if self._worker is None:
            return
        try:
            if not self._drained:
                leases.start_draining(worker=self._worker)
            leases.mark_dead(worker=self._worker)
            leases.end_leases_of(worker=self._worker, reason=EndReason.DRAIN)
        except (DjangoDatabaseError, ExceptionGroup) as error:
            # Nobody holds its lock any more, so the sweeper does the rest.
            logger.warning("worker.not_signed_off", worker=self._worker, error=str(error).strip())

    def _wait(self, seconds: float) -> None:
        """Until the time has passed, somebody nudges, or the server says something (it only says goodbye)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._nudge, selectors.EVENT_READ)
            if self._connection is not None and not self._connection.closed:
                selector.register(self._connection.pgconn.socket, selectors.EVENT_READ)
            selector.select(max(0.0, seconds))
        self._nudge.take()

    def _lose_connection_if_broken(self) -> None:
        connection = self._connection
        if connection is not None and (connection.closed or not self._still_open(connection)):
            self._disconnect()
            with self._changed:
                if self._signs is not None:
                    self._signs = Signs(renewed=self._signs.renewed, connected=None, locked=False)
                    self._changed.notify_all()

    @staticmethod
    def _still_open(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
        try:
            connection.pgconn.consume_input()
        except psycopg.Error:
            return False
        return not connection.broken

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._locked_on = self._backend_pid = None
        if connection is not None:
            connection.close()

    # the guarding thread

    def _watch(self) -> None:
        """Says when to abort, once for each time that things went wrong."""
        told = Verdict.LIVE
        while True:
            with self._changed:
                if self._over or self._stopping:
                    return
                signs = self._signs
                if signs is None:
                    self._changed.wait()
                    continue
                limits = {"ttl": settings.TENURE.worker_ttl, "regain": settings.TENURE.lock_regain_timeout}
                now = time.monotonic()
                verdict = judge(signs, now=now, **limits)
                if verdict in {Verdict.LIVE, told}:
                    told = verdict
                    left = abort_at(signs, **limits)[0] - now
                    self._changed.wait(left if verdict is Verdict.LIVE else None)
                    continue
                told = verdict
            logger.error("worker.aborts", worker=self._worker, reason=str(verdict))
            self._on_abort(str(verdict))


@contextmanager
def _borrowed_connection() -> Iterator[None]:
    """Django's connection of this thread, given back at once: a loop process has few to spare."""
    try:
        yield
    finally:
        connections.close_all()
