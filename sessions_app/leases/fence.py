"""The fence: every write of an attempt goes through it, or through the step commit, which does the same (L3).

Here are also the locks of more than one session, always taken in id order (L11). Who a session's parent is never
changes, so it is read without a lock; which sessions stand below it does, so that is read again under the locks.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, Subquery

from sessions_app import children
from sessions_app.errors import LeaseLost
from sessions_app.models import Lease, Session


def lock_session(session_id: UUID, *, skip_busy: bool = False, with_parent: bool = False) -> Session | None:
    """The locked session row; None if it does not exist, or is busy and may be skipped.

    `with_parent` locks the row of its parent as well, if it has one, in the same statement: needed by whoever
    may bring the session to rest (`children`). It stands in `session.parent`.
    """
    if not with_parent:
        rows = Session.objects.select_for_update(skip_locked=skip_busy, of=("self",))
        return rows.filter(pk=session_id).first()
    found = _lock(Q(pk=session_id) | _parent_of(session_id), skip_busy=skip_busy)
    session = found.get(session_id)
    if session is None or (session.parent_id is not None and session.parent_id not in found):
        return None
    return session


def lock_sessions(session_ids: Iterable[UUID]) -> dict[UUID, Session]:
    """The locked rows of these sessions, as far as they exist."""
    return _lock(Q(pk__in=list(session_ids)))


def lock_leases(session_ids: Iterable[UUID]) -> None:
    """Lock the leases that these sessions have, whose rows are locked already."""
    held = Lease.objects.select_for_update().filter(pk__in=list(session_ids)).order_by("session_id")
    list(held.values_list("pk", flat=True))


def lock_tree(session_id: UUID) -> dict[UUID, Session]:
    """A session, its parent and everything below it, locked; empty if it does not exist.

    In order: the parent where there is one, the session, then what is below, those nearer to it first. Where
    another child came into being while it waited for the locks, it lets go of them and starts again.
    """
    below = children.descendants(session_id)
    while True:
        with transaction.atomic():
            found = _lock(Q(pk__in=[session_id, *below]) | _parent_of(session_id))
            now_below = children.descendants(session_id)
            grown = not set(now_below) <= found.keys()
            if grown:
                transaction.set_rollback(True)  # which lets go of the locks
        if not grown:
            break
        below = now_below
    if session_id not in found:
        return {}
    parent = found[session_id].parent_id
    order = [*([parent] if parent is not None else []), session_id, *now_below]
    return {key: found[key] for key in order}


def _parent_of(session_id: UUID) -> Q:
    return Q(pk=Subquery(Session.objects.filter(pk=session_id).values("parent_id")[:1]))


def _lock(which: Q, *, skip_busy: bool = False) -> dict[UUID, Session]:
    """Lock rows in id order; each that has its parent among them has it in `parent`, as the same object."""
    rows = Session.objects.select_for_update(skip_locked=skip_busy, of=("self",)).filter(which)
    found = {row.pk: row for row in rows.order_by("pk")}
    for row in found.values():
        if row.parent_id in found:
            row.parent = found[row.parent_id]
    return found


@contextmanager
def fence(session_id: UUID, *, worker: int, attempt: int) -> Iterator[Session]:
    """A transaction in which this attempt, and nobody else, may write to the session (L3).

    Yields the locked session row; raises `LeaseLost` if the lease is another's or gone. Code inside touches
    the database only: the session is locked as long as it runs.
    """
    with fence_of_many(session_id, worker=worker, attempt=attempt) as rows:
        yield rows[session_id]


@contextmanager
def fence_of_many(
    session_id: UUID, *, worker: int, attempt: int, also: Iterable[UUID] = ()
) -> Iterator[dict[UUID, Session]]:
    """The same with further sessions locked beside, which the attempt does not hold; yields all rows by id.

    Those that do not exist are missing.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        others = set(also) - {session_id}
        if others:
            rows = lock_sessions({session_id, *others})
        else:
            alone = lock_session(session_id)
            rows = {} if alone is None else {session_id: alone}
        # A second statement: it sees what was committed while the first one waited.
        held = Lease.objects.select_for_update().filter(pk=session_id, worker_id=worker, attempt=attempt)
        if session_id not in rows or not held.exists():
            raise LeaseLost(reason=lost_because(rows.get(session_id), attempt))
        yield rows


def lost_because(session: Session | None, attempt: int) -> str | None:
    """Why `attempt` lost the session, where that is still known."""
    if session is None or session.ended_attempt != attempt:
        return None
    return session.ended_reason
