"""Turns: from one delivered input to its answer. The end of a turn is written here and in `steps`."""

from typing import Any

from sessions_app import entries, log
from sessions_app.entry_kinds import Actor
from sessions_app.models import Session, Turn, TurnStatus
from sessions_app.models.fields import ClockTimestamp


def drop_compaction_locked(session: Session, *, because: str) -> bool:
    """Give up the compaction that a locked session was asked for; False if it was not. The caller saves it."""
    if not session.compact_requested:
        return False
    session.compact_requested = False
    if session.turn_id is None:
        session.retry_at = None
    text = f"The compaction that was asked for was given up: {because}."
    log.append(session, entries.note(text, turn=session.turn_id))
    return True


def end_turn_locked(
    session: Session,
    *,
    status: str,
    reason: str,
    error: dict[str, Any] | None = None,
    actor: Actor | None = None,
) -> bool:
    """End the open turn of a session this transaction has locked; False if none is open.

    The caller has settled the turn's calls, reschedules and saves the session.
    """
    if session.turn_id is None:
        return False
    turn = Turn.objects.get(pk=session.turn_id)
    Turn.objects.filter(pk=turn.pk, status=TurnStatus.RUNNING).update(
        status=status, reason=reason, error=error, ended_at=ClockTimestamp()
    )
    log.append(
        session,
        entries.turn_ended(
            turn=turn.pk, number=turn.number, status=status, reason=reason, error=error, actor=actor
        ),
    )
    session.last_turn_id = turn.pk
    session.turn_id = None
    session.limit_ask = None
    session.retry_at = None
    session.crash_count = 0
    session.lease_end = None
    return True
