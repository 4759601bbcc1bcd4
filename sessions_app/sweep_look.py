"""What the sweeper sees: one statement, and so one transaction, whether or not there is something to do.

Its cost follows the number of workers, leases and runnable sessions. Idle sessions are in none of the partial
indexes it reads, and inputs that wait behind an open turn are walked through a few hundred at a time.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from sessions_app import tool_port
from sessions_app.leases import LOCK_CLASS

SESSIONS_A_LOOK = 200
INPUTS_A_LOOK = 500
LATE = 1.0
"""Seconds that a due time may lie ahead of what it should be; it was written by the clock of a moment ago."""

# `server`: right after a start nobody had a chance to renew or to lock, so nothing is concluded. A crash of one
# backend restarts all of them under the same postmaster; the checkpointer's age tells (where we may see it).
# `free_to_act` skips rows that are locked at this moment: somebody renews or reaps them right now (A8, A9). When
# nothing is wrong it locks none, and the look writes nothing.
# `stamped` is the first of the two looks at a free lock, and takes the stamp back from a lock that is held.
_LOOK = """
WITH server AS MATERIALIZED (
    SELECT now, now - greatest(pg_postmaster_start_time(), checkpointer.backend_start)
            >= make_interval(secs => %(grace)s) AS settled
    FROM (SELECT clock_timestamp() AS now) clock
        LEFT JOIN (SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer') checkpointer
        ON true
), locked AS MATERIALIZED (
    SELECT objid::bigint AS worker FROM pg_locks
    WHERE locktype = 'advisory' AND classid = %(class)s AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
), seen AS MATERIALIZED (
    SELECT id, expires_at <= (SELECT now FROM server) AS expired, lock_free_at,
        liveness = 'lock' AND id NOT IN (SELECT worker FROM locked) AS free
    FROM sessions_app_worker WHERE NOT dead AND (SELECT settled FROM server)
), free_to_act AS MATERIALIZED (
    SELECT id FROM sessions_app_worker
    WHERE id IN (SELECT id FROM seen WHERE expired OR free OR lock_free_at IS NOT NULL)
    FOR NO KEY UPDATE SKIP LOCKED
), stamped AS (
    UPDATE sessions_app_worker worker SET lock_free_at = CASE WHEN seen.free THEN clock_timestamp() END
    FROM seen JOIN free_to_act USING (id)
    WHERE worker.id = seen.id AND NOT worker.dead AND seen.free = (seen.lock_free_at IS NULL)
    RETURNING worker.id, seen.free
), inputs AS MATERIALIZED (
    SELECT session_id FROM sessions_app_input
    WHERE state = 'received' AND session_id > %(after)s ORDER BY session_id, rank LIMIT %(inputs)s
), candidate AS MATERIALIZED (
    (SELECT id FROM sessions_app_session WHERE status = 'queued' AND wake_at IS NULL LIMIT %(sessions)s)
    UNION
    (SELECT id FROM sessions_app_session
     WHERE status = 'queued' AND wake_at > (SELECT now FROM server) + make_interval(secs => %(late)s)
     LIMIT %(sessions)s)
    UNION
    (SELECT id FROM sessions_app_session WHERE status = 'backing_off' AND wake_at IS NULL LIMIT %(sessions)s)
    UNION
    (SELECT id FROM sessions_app_session s WHERE status = 'running'
     AND NOT EXISTS (SELECT FROM sessions_app_lease l WHERE l.session_id = s.id) LIMIT %(sessions)s)
    UNION
    (SELECT s.id FROM inputs JOIN sessions_app_session s ON s.id = inputs.session_id
     WHERE s.turn_id IS NULL AND s.crash_count < %(crash_limit)s)
    UNION
    (SELECT s.id FROM ({undue}) undue (id) JOIN sessions_app_session s USING (id) WHERE s.turn_id IS NOT NULL)
)
SELECT
    ARRAY(SELECT id FROM seen JOIN free_to_act USING (id) WHERE expired),
    ARRAY(SELECT id FROM seen JOIN free_to_act USING (id) WHERE NOT expired AND free AND lock_free_at
          <= (SELECT now FROM server) - make_interval(secs => %(apart)s)),
    ARRAY(SELECT id FROM stamped WHERE free),
    ARRAY(SELECT id FROM sessions_app_worker worker WHERE dead
          AND EXISTS (SELECT FROM sessions_app_lease l WHERE l.worker_id = worker.id)),
    ARRAY(SELECT s.id FROM candidate JOIN sessions_app_session s USING (id)
          WHERE s.archived_at IS NULL
          AND (s.wake_at IS NULL OR s.wake_at > (SELECT now FROM server) + make_interval(secs => %(late)s))
          AND NOT EXISTS (SELECT FROM sessions_app_lease l WHERE l.session_id = s.id)
          LIMIT %(sessions)s),
    (SELECT session_id FROM inputs OFFSET %(inputs)s - 1)
"""


@dataclass(frozen=True, slots=True)
class LookResult:
    """What there is to do: workers by number, sessions by id."""

    expired: tuple[int, ...] = ()  # the time to live has run out
    unlocked: tuple[int, ...] = ()  # the lock was free on two looks
    suspects: tuple[int, ...] = ()  # the lock is free for the first time
    dead: tuple[int, ...] = ()  # declared dead, with leases left
    undue: tuple[UUID, ...] = ()  # without a lease, and without the due time they should have
    inputs_up_to: UUID | None = None  # where the walk through waiting inputs goes on; None: from the start


def look(connection: psycopg.Connection[Any], *, inputs_after: UUID | None = None) -> LookResult:
    """One look, in one statement. Stamps workers whose lock is free; changes nothing else."""
    tenure = settings.TENURE
    undue = tool_port.runtime().undue_sql().replace("%", "%%")
    row = connection.execute(
        _LOOK.replace("{undue}", undue),
        {
            "grace": tenure.server_start_grace,
            "class": LOCK_CLASS,
            "apart": tenure.lock_free_looks_apart,
            "crash_limit": tenure.crash_limit,
            "late": LATE,
            "after": inputs_after or UUID(int=0),
            "inputs": INPUTS_A_LOOK,
            "sessions": SESSIONS_A_LOOK,
        },
    ).fetchone()
    if row is None:
        raise psycopg.InternalError("the look brought no row")
    expired, unlocked, suspects, dead, undue_ids, inputs_up_to = row
    return LookResult(
        tuple(expired), tuple(unlocked), tuple(suspects), tuple(dead), tuple(undue_ids), inputs_up_to
    )
