"""Claiming: due sessions, fairly, in one short transaction (L2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from sessions_app.database import hot_cursor


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session this worker holds from now on. `limited`: it takes one of its project's places."""

    session: UUID
    attempt: int
    limited: bool = False


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
