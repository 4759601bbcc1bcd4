"""Who may write to which session: claim, fence, and the one end of a lease.

The story of a lease. A worker process registers itself (`register_worker`) and holds a session-level
advisory lock under its number on the connection of its heartbeat. `claim` picks due sessions with SKIP
LOCKED, raises each one's `attempt` and inserts the lease row: (session, worker, attempt) is the fencing
token. Every later write locks the session row and then the lease row, in that order and in two statements,
and compares (`fence`, and `steps.commit_steps` for many at once). A join that locks both would re-check one
of them against the snapshot from before the wait, and a reaped attempt could still write.

A lease lives as long as its row. It ends in `end_lease` and nowhere else: lease row gone, running calls
settled by their class, the open model call interrupted, the reason kept, the due time computed (L7).

Lock order (L11): session rows in id order, then worker, lease and everything below. Reaping is the one
place that needs the worker first; it marks the worker dead in a transaction of its own, which holds no
session, and then ends the leases one by one.

Time is the database's: expiry is written and judged with `clock_timestamp()`, read after the locks are held.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q

from sessions_app import crashes, entries, ids, log, tool_port, wakeups
from sessions_app.database import hot_cursor
from sessions_app.errors import Conflict, LeaseLost, NotFound, WorkerDead
from sessions_app.models import (
    RESUME_AFTER,
    EndReason,
    Lease,
    Liveness,
    ModelCall,
    ModelCallState,
    Session,
    SessionStatus,
    Worker,
)
from sessions_app.models.fields import ClockTimestamp
from sessions_app.scheduling import reschedule
from sessions_app.version import VERSION

logger = structlog.get_logger(__name__)

LOCK_CLASS = 0x7E4E  # first half of a worker's two-part advisory lock; the second is the worker's id


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session this worker holds from now on. `limited`: it takes one of its project's places."""

    session: UUID
    attempt: int
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learned. `backend_pid` and `lock_held` tell whether the lock still proves anything."""

    draining: bool
    backend_pid: int
    lock_held: bool
    leases: frozenset[tuple[UUID, int]]


# --- workers ---------------------------------------------------------------------------------------------


def register_worker(*, owner: str, capacity: int, liveness: str = Liveness.LOCK) -> Worker:
    """A new worker row. Every start of a process is a new worker; none comes back under an old number."""
    worker = Worker.objects.create(
        owner=owner,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        capacity=capacity,
        liveness=liveness,
        expires_at=ClockTimestamp() + timedelta(seconds=settings.TENURE.worker_ttl),
    )
    logger.info("worker.registered", worker=worker.pk, owner=owner)
    return worker


# One round trip: renew, and read back what this worker holds. A row marked dead is not renewed (L5).
# The row is locked first: an UPDATE that had to wait for somebody who only locked it would store the time from
# before the wait (A7).
HEARTBEAT = """
WITH locked AS MATERIALIZED (
    SELECT id FROM sessions_app_worker WHERE id = %(worker)s AND NOT dead FOR NO KEY UPDATE
), beat AS (
    UPDATE sessions_app_worker AS worker
    SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => %(ttl)s),
        lock_free_at = NULL
    FROM locked WHERE worker.id = locked.id AND NOT worker.dead
    RETURNING worker.draining)
SELECT beat.draining, pg_backend_pid(),
    EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %(class)s AND objid = %(worker)s
            AND objsubid = 2 AND pid = pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
    ARRAY(SELECT session_id FROM sessions_app_lease WHERE worker_id = %(worker)s ORDER BY session_id),
    ARRAY(SELECT attempt FROM sessions_app_lease WHERE worker_id = %(worker)s ORDER BY session_id)
FROM beat
"""


def heartbeat(cursor: Any, *, worker: int) -> Beat:
    """Renew `worker` on its own connection; raises `WorkerDead` if it was declared dead meanwhile."""
    cursor.execute(HEARTBEAT, {"worker": worker, "ttl": settings.TENURE.worker_ttl, "class": LOCK_CLASS})
    row = cursor.fetchone()
    if row is None:
        raise WorkerDead(worker=worker)
    draining, backend_pid, lock_held, sessions, attempts = row
    return Beat(draining, backend_pid, lock_held, frozenset(zip(sessions, attempts, strict=True)))


def start_draining(*, worker: int) -> None:
    """Commit the planned stop before anything else: whatever ends this worker's leases now counts as drain (L8)."""
    Worker.objects.filter(pk=worker).update(draining=True)
    logger.info("worker.draining", worker=worker)


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


def mark_dead(*, worker: int, only_if_expired: bool = False) -> bool:
    """Declare a worker dead; False if it was not to be, because it renewed itself first (A9, A10).

    Its row is locked before its expiry is read again, so a heartbeat and a reaper that race end with one winner.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = Worker.objects.select_for_update().filter(pk=worker).first()
        if row is None:
            return False
        if (
            only_if_expired
            and not Worker.objects.filter(pk=worker, expires_at__lte=ClockTimestamp()).exists()
        ):
            return False
        if not row.dead:
            Worker.objects.filter(pk=worker).update(dead=True, suspect=crashes.suspect_of(worker))
            logger.info("worker.dead", worker=worker, owner=row.owner)
        return True


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


# --- claiming --------------------------------------------------------------------------------------------

_SUSPECT_HELD = """
    SELECT EXISTS (
        SELECT FROM sessions_app_lease l WHERE l.worker_id = %(worker)s
        AND (SELECT s.crash_count FROM sessions_app_session s WHERE s.id = l.session_id) >= %(suspect_from)s
    ) AS held"""

# Projects with due sessions take turns: the recursive part hops through the partial index from one (project,
# priority) to the next, the lateral part takes the first few due ones of each, and the row number deals them out
# in rounds (L2). So sessions that wait for a later time are never read, however many there are; the clock stands
# in a CTE because a volatile function can't be an index condition.
# Rows are looked up and locked one by one in the order of the rounds, until there are enough: a competing claim
# skips the locked ones and finds the next. The LIMITs and arrays leave the planner no choice but the indexes,
# whatever it believes about the table: a hash join here would read every session.
# Of the sessions that are suspected of killing workers (R9) it takes the first, and none while this worker holds
# one; whether it does is looked up only where a suspect is due.
# A project's limit: `project` counts what runs in this statement's snapshot, which a claim that commits right now
# is not in. So `guarded` locks the project's row, whose newest version it then sees, and goes on only if no claim
# was counted there since; a project that was too busy for that is reported as passed over, and looked at again.
_CLAIM = """
WITH RECURSIVE worker AS (
    SELECT id FROM sessions_app_worker WHERE id = %(worker)s AND NOT dead AND NOT draining FOR KEY SHARE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), suspect AS MATERIALIZED ({suspect}
), bucket (project_id, priority) AS (
    (SELECT project_id, priority FROM sessions_app_session WHERE wake_at IS NOT NULL
     ORDER BY project_id, priority LIMIT 1)
    UNION ALL
    SELECT following.project_id, following.priority FROM bucket CROSS JOIN LATERAL (
        SELECT s.project_id, s.priority FROM sessions_app_session s
        WHERE s.wake_at IS NOT NULL AND (s.project_id, s.priority) > (bucket.project_id, bucket.priority)
        ORDER BY s.project_id, s.priority LIMIT 1) following
), project AS MATERIALIZED (
    SELECT p.id, p.claims, CASE WHEN p.places IS NOT NULL THEN p.places - (
        SELECT count(*) FROM (SELECT FROM sessions_app_session s
            WHERE s.project_id = p.id AND s.status = 'running' LIMIT p.places) running) END AS room
    FROM (SELECT DISTINCT project_id FROM bucket) due CROSS JOIN LATERAL (
        SELECT q.id, q.claims, nullif(coalesce(q.max_running, %(max_running)s), 0) AS places
        FROM sessions_app_project q WHERE q.id = due.project_id LIMIT 1) p
), candidate AS MATERIALIZED (
    SELECT due.id, due.wake_at, project.id AS project_id, project.claims, project.room,
        row_number() OVER (PARTITION BY project.id ORDER BY bucket.priority, due.wake_at) AS round,
        due.suspect, row_number() OVER (PARTITION BY due.suspect ORDER BY bucket.priority, due.wake_at) AS place
    FROM project JOIN bucket ON bucket.project_id = project.id CROSS JOIN LATERAL (
        SELECT s.id, s.wake_at, s.crash_count >= %(suspect_from)s AS suspect FROM sessions_app_session s
        WHERE s.project_id = bucket.project_id AND s.priority = bucket.priority
            AND s.wake_at <= (SELECT now FROM clock)
            AND (s.crash_count < %(suspect_from)s OR NOT (SELECT held FROM suspect))
        ORDER BY s.wake_at LIMIT least(%(look)s, project.room)) due
    WHERE project.room IS NULL OR project.room > 0
), guarded AS MATERIALIZED (
    SELECT free.id FROM (SELECT DISTINCT project_id AS id, claims FROM candidate WHERE room IS NOT NULL) limited
    CROSS JOIN LATERAL (
        SELECT p.id FROM sessions_app_project p WHERE p.id = limited.id AND p.claims = limited.claims
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) free
    WHERE EXISTS (SELECT FROM worker)
), picked AS MATERIALIZED (
    SELECT free.id FROM (
        SELECT id FROM candidate
        WHERE (NOT suspect OR place = 1)
            AND (room IS NULL OR round <= room AND project_id IN (SELECT id FROM guarded))
        ORDER BY round, wake_at) candidate
    CROSS JOIN LATERAL (
        SELECT s.id FROM sessions_app_session s
        WHERE s.id = candidate.id AND s.wake_at <= clock_timestamp()
            AND NOT EXISTS (SELECT FROM sessions_app_lease l WHERE l.session_id = s.id)
        LIMIT 1 FOR UPDATE SKIP LOCKED) free
    WHERE EXISTS (SELECT FROM worker)
    LIMIT %(limit)s
), taken AS (
    UPDATE sessions_app_session s SET attempt = s.attempt + 1, status = 'running', wake_at = NULL, waiting_on = '[]'
    WHERE s.id = ANY(ARRAY(SELECT id FROM picked)) RETURNING s.id, s.attempt, s.project_id
), counted AS (
    UPDATE sessions_app_project SET claims = claims + 1
    WHERE id = ANY(ARRAY(SELECT id FROM guarded)) AND id = ANY(ARRAY(SELECT project_id FROM taken))
), lease AS (
    INSERT INTO sessions_app_lease (session_id, worker_id, attempt)
    SELECT taken.id, %(worker)s, taken.attempt FROM taken
)
SELECT id, attempt, project_id IN (SELECT id FROM guarded) FROM taken
UNION ALL
(SELECT NULL, NULL, true FROM candidate
 WHERE room IS NOT NULL AND project_id NOT IN (SELECT id FROM guarded)
     AND EXISTS (SELECT FROM worker) AND (SELECT count(*) FROM taken) < %(limit)s
 LIMIT 1)
""".replace("{suspect}", _SUSPECT_HELD)
_LOOKS = 3  # at projects whose limit others were using up at the same moment; then the next poll looks

_CLAIM_BY_ID = """
WITH worker AS (
    SELECT id FROM sessions_app_worker WHERE id = %(worker)s AND NOT dead AND NOT draining FOR KEY SHARE
), suspect AS MATERIALIZED ({suspect}
), wanted AS MATERIALIZED (
    SELECT s.id, s.crash_count >= %(suspect_from)s AS suspect,
        row_number() OVER (PARTITION BY s.crash_count >= %(suspect_from)s ORDER BY s.id) AS place
    FROM sessions_app_session s WHERE s.id = ANY(%(sessions)s) AND s.wake_at <= clock_timestamp()
), picked AS MATERIALIZED (
    SELECT s.id FROM sessions_app_session s
    WHERE s.id = ANY(ARRAY(
            SELECT id FROM wanted WHERE NOT suspect OR (place = 1 AND NOT (SELECT held FROM suspect))))
        AND s.wake_at <= clock_timestamp() AND EXISTS (SELECT FROM worker)
        AND NOT EXISTS (SELECT FROM sessions_app_lease l WHERE l.session_id = s.id)
    ORDER BY s.id LIMIT %(limit)s FOR UPDATE OF s SKIP LOCKED
), taken AS (
    UPDATE sessions_app_session s SET attempt = s.attempt + 1, status = 'running', wake_at = NULL, waiting_on = '[]'
    WHERE s.id = ANY(ARRAY(SELECT id FROM picked)) RETURNING s.id, s.attempt
)
INSERT INTO sessions_app_lease (session_id, worker_id, attempt)
SELECT taken.id, %(worker)s, taken.attempt FROM taken RETURNING session_id, attempt
""".replace("{suspect}", _SUSPECT_HELD)


def claim(*, worker: int, limit: int, sessions: Sequence[UUID] | None = None) -> list[Claimed]:
    """Take up to `limit` due sessions, or those of `sessions` that are due; one short transaction.

    A session with a lease is never taken, however old the lease (L2). A dead or draining worker gets none, and
    none gets a second suspect (R9). What a project may run at once is kept to, except by id.
    """
    wanted: dict[str, Any] = {"worker": worker, "suspect_from": settings.TENURE.crash_suspect_from}
    with hot_cursor() as cursor:
        if sessions is not None:
            cursor.execute(_CLAIM_BY_ID, wanted | {"limit": limit, "sessions": list(sessions)})
            return [Claimed(session, attempt) for session, attempt in cursor.fetchall()]
        taken: list[Claimed] = []
        for _ in range(_LOOKS):
            room = limit - len(taken)
            # Looking at more than it takes leaves something for those who look at the same moment.
            look = {"limit": room, "look": 2 * room + 8, "max_running": settings.TENURE.project_max_running}
            cursor.execute(_CLAIM, wanted | look)
            rows = cursor.fetchall()
            found = [Claimed(*row) for row in rows if row[0] is not None]
            taken += found
            if len(found) == len(rows):
                break
        return taken


# --- the fence -------------------------------------------------------------------------------------------


def lock_session(session_id: UUID, *, skip_busy: bool = False) -> Session | None:
    """The locked session row; None if it does not exist, or is busy and may be skipped."""
    rows = Session.objects.select_for_update(skip_locked=skip_busy, of=("self",))
    return rows.filter(pk=session_id).first()


@contextmanager
def fence(session_id: UUID, *, worker: int, attempt: int) -> Iterator[Session]:
    """A transaction in which this attempt, and nobody else, may write to the session (L3).

    Yields the locked session row; raises `LeaseLost` if the lease is another's or gone. Code inside touches
    the database only: the session is locked as long as it runs.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        session = lock_session(session_id)
        # A second statement: it sees what was committed while the first one waited.
        held = Lease.objects.select_for_update().filter(pk=session_id, worker_id=worker, attempt=attempt)
        if session is None or not held.exists():
            raise LeaseLost(reason=lost_because(session, attempt))
        yield session


def lost_because(session: Session | None, attempt: int) -> str | None:
    """Why `attempt` lost the session, where that is still known."""
    if session is None or session.lease_end is None or session.lease_end.get("attempt") != attempt:
        return None
    reason: str = session.lease_end["reason"]
    return reason


# --- the end of a lease ----------------------------------------------------------------------------------


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
        session = lock_session(session_id, skip_busy=skip_busy)
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
    ModelCall.objects.filter(session=session, state=ModelCallState.STARTED).update(
        state=ModelCallState.INTERRUPTED, ended_at=ClockTimestamp(), may_be_billed=True
    )
    settled = tool_port.Settled()
    if reason != EndReason.CANCELLED:
        # On cancel the whole turn's calls are closed by whoever cancels (I6).
        settled = tool_port.runtime().settle(session.id, attempt=lease.attempt)
        log.append(session, *entries.tool_results(settled.results), attempt=lease.attempt)
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
        session = lock_session(session_id)
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


# --- a worker that lives after all -----------------------------------------------------------------------


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
            session = lock_session(session_id)
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
