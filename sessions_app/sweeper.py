"""The sweeper: comes by every second and puts right what nobody else is there to put right.

    look -> reap workers -> end leases of the dead -> give sessions their due time -> (rarely) audit and purge

Each look is one statement (`sweep_look.py`). What it finds is only a candidate: every act locks its row first
and reads again under the lock, so any number of sweepers may run and a heartbeat that races one has a single
winner. Acts are small transactions of their own; a busy row is left for the next look and a failing one never
stops the rest.

A worker is reaped because its time to live ran out (a lost host), or because its advisory lock was free on two
looks (its process is gone, L6). Due times are re-derived only for sessions without a lease that ought to move
and can't (S11); that there are any is a fault of ours or of somebody's hands, so each is logged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import structlog
from django.conf import settings
from django.db import Error as DjangoDatabaseError
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from sessions_app import idempotency, leases, own_connection, tickets, tool_port, wakeups
from sessions_app.hosting.stop import StopFlag
from sessions_app.leases import LOCK_CLASS
from sessions_app.models import EndReason, Lease, Session, SessionStatus, Worker
from sessions_app.models.fields import ClockTimestamp
from sessions_app.scheduling import reschedule
from sessions_app.sweep_look import LookResult, look

logger = structlog.get_logger(__name__)

AUDIT_EVERY = 10.0
AUDIT_BATCH = 200
"""Waiting sessions that are compared with their open calls at a time; they cost nothing in between."""

PURGE_EVERY = 300.0
PURGE_BATCH = 500
DEAD_WORKERS_KEPT = timedelta(days=1)

LOOK_MARGIN = 0.05
"""Seconds by which the second look at a free lock comes later than it has to, to be sure that it counts."""

_STILL_FREE = """
SELECT FROM sessions_app_worker
WHERE id = %(worker)s AND NOT dead AND liveness = 'lock'
    AND lock_free_at <= clock_timestamp() - make_interval(secs => %(apart)s)
    AND NOT EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %(class)s AND objid = %(worker)s
        AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""


@dataclass(slots=True)
class Report:
    """What one sweep did."""

    reaped: list[int] = field(default_factory=list)
    ended: int = 0
    rescheduled: list[UUID] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


def run(owner: str, stop: StopFlag) -> None:
    """Sweep until told to stop; a database that is away is waited for."""
    sweeper = Sweeper()
    failures = 0
    logger.info("sweeper.started", owner=owner)
    try:
        while not stop.draining:
            try:
                pause = sweeper.turn()
                failures = 0
            except (psycopg.Error, DjangoDatabaseError) as error:
                failures += 1
                if failures == 1:
                    logger.warning("sweeper.database_lost", owner=owner, error=str(error).strip())
                sweeper.disconnect()
                pause = own_connection.backoff(failures, longest=1.0)
            stop.wait(pause)
    finally:
        sweeper.disconnect()
        wakeups.flush(limit=0.5)


class Sweeper:
    """One sweeper: its connection, and where it stands in what it walks through bit by bit."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._limited: object = None
        self._inputs_after: UUID | None = None
        self._audited_up_to: UUID | None = None
        self._second_look = 0.0
        self._next_audit = time.monotonic() + AUDIT_EVERY
        self._next_purge = time.monotonic() + PURGE_EVERY

    def turn(self) -> float:
        """One sweep and what is due beside it; returns the seconds until the next."""
        started = time.monotonic()
        seen = self.look()
        self.act(seen)
        if started >= self._next_audit:
            self.audit()
            self._next_audit = started + AUDIT_EVERY
        if started >= self._next_purge:
            more = self.purge()
            self._next_purge = started + (0 if more else PURGE_EVERY)
        if seen.suspects:
            self._second_look = started + settings.TENURE.lock_free_looks_apart + LOOK_MARGIN
        now = time.monotonic()
        following = started + settings.TENURE.sweep_interval
        if now < self._second_look < following:
            following = self._second_look
        return max(0.0, following - now)

    def look(self) -> LookResult:
        """See what there is to do: one statement, one transaction."""
        if self._connection is None:
            self._connection = own_connection.connect(purpose="sweep")
        seen = look(self._connection, inputs_after=self._inputs_after)
        self._inputs_after = seen.inputs_up_to
        return seen

    def act(self, seen: LookResult) -> Report:
        """Do it, one small transaction each; errors are logged and reported, and stop nothing (A4)."""
        report = Report()
        if seen == LookResult(suspects=seen.suspects, inputs_up_to=seen.inputs_up_to):
            return report
        self._limit_waits()
        for worker in seen.expired:
            self._try(report, self._reap, report, worker, only_if_expired=True)
        for worker in seen.unlocked:
            self._try(report, self._reap, report, worker, only_if_expired=False)
        for worker in seen.dead:
            self._try(report, self._end_leases, report, worker)
        for session_id in seen.undue:
            self._try(report, self._give_due_time, report, session_id)
        return report

    def audit(self) -> Report:
        """Compare the next waiting sessions with their open calls; catches a turn that waits for nothing."""
        report = Report()
        waiting = Session.objects.filter(status=SessionStatus.WAITING, turn__isnull=False, wake_at=None)
        if self._audited_up_to is not None:
            waiting = waiting.filter(pk__gt=self._audited_up_to)
        batch = list(waiting.order_by("pk").values_list("pk", flat=True)[:AUDIT_BATCH])
        self._audited_up_to = batch[-1] if len(batch) == AUDIT_BATCH else None
        if not batch:
            return report
        facts = tool_port.runtime().facts(batch)
        for session_id in batch:
            calls = facts.get(session_id, tool_port.CallFacts())
            if calls.ready or calls.open_calls == 0 or calls.deadline is not None:
                self._try(report, self._give_due_time, report, session_id)
        return report

    def purge(self) -> bool:
        """Drop what nobody needs any more, a batch; returns whether there may be more."""
        dropped = idempotency.delete_expired(limit=PURGE_BATCH)
        unused = tickets.delete_expired(limit=PURGE_BATCH)
        old = Worker.objects.filter(
            ~Exists(Lease.objects.filter(worker=OuterRef("pk"))),
            dead=True,
            renewed_at__lt=ClockTimestamp() - DEAD_WORKERS_KEPT,
        )
        batch = old.order_by("pk").values_list("pk", flat=True)[:PURGE_BATCH]
        workers, _ = Worker.objects.filter(pk__in=list(batch)).delete()
        return PURGE_BATCH in {dropped, unused, workers}

    def disconnect(self) -> None:
        """Give both connections back; the next turn makes new ones."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if not connection.in_atomic_block:
            connection.close()

    def _try(self, report: Report, act: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        try:
            act(*args, **kwargs)
        except Exception as error:
            logger.exception("sweeper.failed", act=act.__name__.strip("_"), subject=str(args[-1]))
            report.errors.append(error)
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()

    def _reap(self, report: Report, worker: int, *, only_if_expired: bool) -> None:
        if only_if_expired:
            reaped = leases.mark_dead(worker=worker, only_if_expired=True)
        else:
            reaped = _mark_dead_if_unlocked(worker)
        if reaped:
            logger.warning("worker.reaped", worker=worker, expired=only_if_expired)
            report.reaped.append(worker)
            self._end_leases(report, worker)

    def _end_leases(self, report: Report, worker: int) -> None:
        report.ended += leases.end_leases_of(worker=worker, reason=EndReason.CRASH)

    def _give_due_time(self, report: Report, session_id: UUID) -> None:
        with transaction.atomic():
            session = leases.lock_session(session_id, skip_busy=True, with_parent=True)
            if session is None or Lease.objects.filter(pk=session_id).exists():
                return
            before = _due_state(session)
            reschedule(session)
            if _due_state(session) == before:
                return
            session.save()
            wakeups.after_commit(session)
        logger.warning("session.rescheduled", session=str(session_id), status=session.status)
        report.rescheduled.append(session_id)

    def _limit_waits(self) -> None:
        """The limits of L11, once for each connection."""
        connection.ensure_connection()
        if self._limited is not connection.connection:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SET lock_timeout = '2s'; SET statement_timeout = '5s';"
                    "SET idle_in_transaction_session_timeout = '5s'"
                )
            self._limited = connection.connection


def _mark_dead_if_unlocked(worker: int) -> bool:
    """The second layer of L6, judged again under the lock of the worker's row, which a heartbeat needs too."""
    with transaction.atomic():
        row = Worker.objects.select_for_update(skip_locked=True).filter(pk=worker, dead=False).first()
        if row is None:
            return False
        with connection.cursor() as cursor:
            apart = settings.TENURE.lock_free_looks_apart
            cursor.execute(_STILL_FREE, {"worker": worker, "class": LOCK_CLASS, "apart": apart})
            if cursor.rowcount == 0:
                return False
        return leases.mark_dead(worker=worker)


def _due_state(session: Session) -> tuple[Any, ...]:
    return session.status, session.wake_at, session.waiting_on, session.next_seq
