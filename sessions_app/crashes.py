"""The poison guard: what counts as a crash of a session, and what follows from too many (R9).

A worker that dies takes all its sessions along, and one of them may be the cause. Each gets a crash counted.
From the second on a session is a suspect: `leases.claim` gives a process at most one, and when a process dies
that held one, only the suspect's count grows. So what kills workers is soon alone with the blame and stops at
the limit, while what merely ran beside it goes on; whatever makes progress is acquitted, because its count
starts again at zero (a reply, a result, the end of a turn, new input).

`crashed_with` remembers which dead worker stands behind each crash of the count. A worker that was declared
dead and comes back takes its crashes off again (`leases.take_back_crashes`).

All functions work on a session that the caller has locked, reschedules and saves.
"""

from uuid import UUID

from django.conf import settings

from sessions_app import entries, log, tool_port
from sessions_app.models import Session, TurnReason, TurnStatus, Worker
from sessions_app.turns import drop_compaction_locked, end_turn_locked


def suspect_of(worker: int) -> UUID | None:
    """The suspect that a worker holds, which takes the blame for its death."""
    held = Session.objects.filter(
        lease__worker_id=worker, crash_count__gte=settings.TENURE.crash_suspect_from
    )
    return held.order_by("-crash_count", "pk").values_list("pk", flat=True).first()


def counts(session: Session, worker: Worker) -> bool:
    """Whether a lease of this worker that ends by a crash is one more crash of its session.

    A crash under a worker that lives is the session's own: its step failed, not its process.
    """
    if worker.came_back:
        return False
    return not worker.dead or worker.suspect in {None, session.pk}


def count(session: Session, worker: Worker) -> None:
    """One more crash; at the limit an open turn ends, so that it cannot kill workers for ever.

    Also before a turn has begun: what kills the worker that reads it must not be claimed for ever either.
    """
    before = session.crashed_with if session.crash_count else None
    limit = settings.TENURE.crash_limit
    session.crashed_with = [*(before or []), worker.pk if worker.dead else None][-limit:]
    session.crash_count += 1
    if session.crash_count < limit:
        return
    if session.turn_id is None and session.compact_requested:
        # All there can be between turns is a compaction that somebody asked for.
        drop_compaction_locked(session, because=f"its worker died {session.crash_count} times")
        session.crash_count = 0
        return
    closed = tool_port.runtime().close(session.id, reason="crash_limit")
    log.append(session, *entries.of_settled(closed))
    end_turn_locked(
        session,
        status=TurnStatus.FAILED,
        reason=TurnReason.CRASH_LIMIT,
        error={"code": "crash_limit", "detail": f"its worker died {limit} times while this turn ran"},
    )
    session.crash_count = limit  # inherited input waits until somebody resets it


def take_back(session: Session, worker: int) -> bool:
    """Take off the crash that this worker's death was; False if none of the count is (any more)."""
    crashed_with = session.crashed_with or []
    if session.crash_count == 0 or worker not in crashed_with:
        return False
    session.crashed_with = [other for other in crashed_with if other != worker]
    session.crash_count = max(0, session.crash_count - 1)
    return True
