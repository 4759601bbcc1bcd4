"""The fence: every write of an attempt goes through it, or through the step commit, which does the same (L3)."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connection, transaction

from sessions_app.errors import LeaseLost
from sessions_app.models import Lease, Session


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
    if session is None or session.ended_attempt != attempt:
        return None
    return session.ended_reason
