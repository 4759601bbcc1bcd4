"""Workers: their rows, their heartbeat, and their death."""

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction

from sessions_app import crashes
from sessions_app.errors import WorkerDead
from sessions_app.models import Liveness, Worker
from sessions_app.models.fields import ClockTimestamp
from sessions_app.version import VERSION

logger = structlog.get_logger(__name__)

LOCK_CLASS = 0x7E4E  # first half of a worker's two-part advisory lock; the second is the worker's id


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learned. `backend_pid` and `lock_held` tell whether the lock still proves anything."""

    draining: bool
    backend_pid: int
    lock_held: bool
    leases: frozenset[tuple[UUID, int]]


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
