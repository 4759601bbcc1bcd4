"""Control of a session from outside its turns: cancel (I6)."""

from uuid import UUID

import structlog
from django.db import connection, transaction

from sessions_app import entries, leases, log, scheduling, tool_port, wakeups
from sessions_app.entry_kinds import Actor
from sessions_app.errors import NotFound, SessionArchived
from sessions_app.models import EndReason, Session, TurnReason, TurnStatus
from sessions_app.turns import end_turn_locked

logger = structlog.get_logger(__name__)


def cancel(*, session: UUID, actor: Actor) -> Session:
    """End the current turn now, whoever works on it and whatever it waits for; one transaction.

    Nothing is left pending: the lease is gone, so what its worker still brings fails at the fence. Input that
    waits then starts the next turn. Repeated, or without a turn, it writes nothing to the log. A turn that
    finishes at the same moment ends once: as finished if its step came first, else as cancelled.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = leases.lock_session(session)
        if row is None:
            raise NotFound("no such session")
        if row.archived_at is not None:
            raise SessionArchived(current=row)
        turn = row.turn_id
        released = leases.end_lease_locked(row, reason=EndReason.CANCELLED)
        if turn is not None:
            closed = tool_port.runtime().close(row.id, reason="cancelled")
            log.append(row, *entries.tool_results(closed.results))
            end_turn_locked(row, status=TurnStatus.CANCELLED, reason=TurnReason.CANCELLED, actor=actor)
            logger.info("turn.cancelled", session=str(row.id), turn=str(turn))
        if turn is not None or released:
            scheduling.reschedule(row)
            row.save()
            wakeups.after_commit(row)
    return row
