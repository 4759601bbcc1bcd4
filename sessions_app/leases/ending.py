"""The one end of a lease, and everybody who asks for it (L7)."""

from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import Q

from sessions_app import crashes, entries, ids, log, tool_port, tree_budgets, wakeups
from sessions_app.errors import Conflict, NotFound, WorkerDead
from sessions_app.leases.claiming import Claimed
from sessions_app.leases.fence import lock_session
from sessions_app.leases.workers import mark_dead
from sessions_app.models import (
    RESUME_AFTER,
    EndReason,
    Lease,
    ModelCall,
    ModelCallState,
    Session,
    SessionStatus,
    Worker,
)
from sessions_app.models.fields import ClockTimestamp
from sessions_app.scheduling import reschedule

logger = structlog.get_logger(__name__)


def end_lease(
    session_id: UUID,
    *,
    reason: str,
    worker: int | None = None,
    attempt: int | None = None,
    skip_busy: bool = False,
) -> bool:
    """End the lease of a session, if there is one (of `worker`, of `attempt`), in one transaction (L7).

    Returns whether a lease ended. With `skip_busy` a locked session is left alone.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        # With it may end the turn of a subagent (R9), of which its parent is told.
        session = lock_session(session_id, skip_busy=skip_busy, with_parent=True)
        if session is None:
            return False
        ended = end_lease_locked(session, reason=reason, worker=worker, attempt=attempt)
        if ended:
            reschedule(session)
            session.save()
            wakeups.after_commit(session)
    return ended


def end_lease_locked(
    session: Session, *, reason: str, worker: int | None = None, attempt: int | None = None
) -> bool:
    """The same for a session this transaction has locked. The caller reschedules and saves it."""
    lease = (
        Lease.objects.select_for_update(of=("self",)).select_related("worker").filter(pk=session.pk).first()
    )
    if lease is None:
        return False
    if worker not in {None, lease.worker_id} or attempt not in {None, lease.attempt}:
        return False
    if reason == EndReason.CRASH and lease.worker.draining:
        reason = EndReason.DRAIN  # a planned stop that had to be cut short is no crash (L8)
    lease.delete()
    session.ended_attempt, session.ended_reason = lease.attempt, reason
    tree_budgets.give_back(session)
    ModelCall.objects.filter(session=session, state=ModelCallState.STARTED).update(
        state=ModelCallState.INTERRUPTED, ended_at=ClockTimestamp(), may_be_billed=True
    )
    settled = tool_port.Settled()
    if reason != EndReason.CANCELLED:
        # On cancel the whole turn's calls are closed by whoever cancels (I6).
        settled = tool_port.runtime().settle(session.id, attempt=lease.attempt)
        log.append(session, *entries.of_settled(settled), attempt=lease.attempt)
    if reason in RESUME_AFTER and session.turn_id is not None:
        _remember_end(session, reason=reason, attempt=lease.attempt, settled=settled)
    if reason == EndReason.CRASH and crashes.counts(session, lease.worker):
        crashes.count(session, lease.worker)
    # Not saved with the session below: its worker learns of the end through its own wake-up.
    wakeups.on_lease_end(worker=lease.worker_id, session=session.id)
    logger.info(
        "lease.ended",
        session=str(session.id),
        attempt=lease.attempt,
        worker=lease.worker_id,
        reason=str(reason),
    )
    return True


def _remember_end(session: Session, *, reason: str, attempt: int, settled: tool_port.Settled) -> None:
    """Keep what the next attempt has to know until it has written `session_resumed` (S9)."""
    before = (session.lease_end or {}).get("settled", [])
    calls = [call for call, _ in settled.results] + settled.rerun
    session.lease_end = {
        "reason": str(reason),
        "attempt": attempt,
        "settled": before + [ids.encode("tcl", call.id) for call in calls],
    }


def release(session_id: UUID, *, worker: int, attempt: int) -> bool:
    """Hand a session back as planned: it costs no retry and no crash count (L4, L8)."""
    return end_lease(session_id, reason=EndReason.RELEASED, worker=worker, attempt=attempt)


def force_release(session_id: UUID) -> bool:
    """End a session's lease from outside, for operators and tests (L9). False if it had none."""
    return end_lease(session_id, reason=EndReason.FORCED)


def steal(session_id: UUID, *, worker: int) -> Claimed:
    """Give a leased or due session to `worker`, taking it from whoever holds it (L9).

    Raises `NotFound`, `WorkerDead`, or `Conflict` where the session has nothing to do.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        session = lock_session(session_id, with_parent=True)
        if session is None:
            raise NotFound("no such session")
        if not Worker.objects.select_for_update(no_key=True).filter(pk=worker, dead=False).exists():
            raise WorkerDead(worker=worker)
        if end_lease_locked(session, reason=EndReason.FORCED):
            reschedule(session)
        if session.wake_at is None:
            raise Conflict("the session has nothing to do, so there is nothing to take")
        session.attempt += 1
        session.status = SessionStatus.RUNNING
        session.wake_at = None
        session.waiting_on = []
        session.save()
        Lease.objects.create(session=session, worker_id=worker, attempt=session.attempt)
    return Claimed(session.id, session.attempt)


def end_worker(*, owner: str, reason: str) -> int:
    """The process behind `owner` is gone: mark it dead and end its leases. Returns how many ended.

    A process that had to start over as a new worker goes on as `owner#1` and so on, and one that had to
    register twice as `owner+2`; all its rows count.
    """
    lives = Worker.objects.filter(
        Q(owner=owner) | Q(owner__startswith=f"{owner}#") | Q(owner__startswith=f"{owner}+")
    )
    ended = 0
    for worker_id in lives.order_by("pk").values_list("pk", flat=True):
        mark_dead(worker=worker_id)
        ended += end_leases_of(worker=worker_id, reason=reason)
    return ended


def end_leases_of(*, worker: int, reason: str) -> int:
    """End every lease of a worker, one transaction each.

    A busy session is left for the next look and a failing one does not stop the rest; the sweeper comes back
    to both (L7).
    """
    ended = 0
    failed: list[Exception] = []
    for session_id in (
        Lease.objects.filter(worker_id=worker).order_by("session_id").values_list("pk", flat=True)
    ):
        try:
            ended += end_lease(session_id, reason=reason, worker=worker, skip_busy=True)
        except Exception as error:
            logger.exception("lease.end_failed", session=str(session_id), worker=worker)
            failed.append(error)
    if ended:
        wakeups.ring_due()  # places of their projects are free, also where the sessions themselves rest
    if failed:
        raise ExceptionGroup(f"{len(failed)} leases of worker {worker} could not be ended", failed)
    return ended


def take_back_crashes(*, worker: int) -> int:
    """`worker` was declared dead, and its process has come back: what it held did not crash (R9).

    Returns how many sessions got a crash taken off. Called by the process itself, which has aborted all that ran
    under that number, once it is registered under a new one.
    """
    Worker.objects.filter(pk=worker).update(came_back=True)  # ends from here on count nothing
    for session_id in list(Lease.objects.filter(worker_id=worker).values_list("pk", flat=True)):
        # Whoever else ends it right now holds the session's lock; behind it, all that could count has counted.
        end_lease(session_id, reason=EndReason.CRASH, worker=worker)
    blamed = Session.objects.filter(crash_count__gt=0, crashed_with__contains=[worker])
    taken = 0
    for session_id in list(blamed.order_by("pk").values_list("pk", flat=True)):
        with transaction.atomic(durable=not connection.in_atomic_block):
            session = lock_session(session_id, with_parent=True)
            if session is None or not crashes.take_back(session, worker):
                continue
            if not Lease.objects.filter(pk=session_id).exists():
                reschedule(session)  # it may have waited on the crash limit
            session.save()
            wakeups.after_commit(session)
            taken += 1
    if taken:
        logger.info("crashes.taken_back", worker=worker, sessions=taken)
    return taken
