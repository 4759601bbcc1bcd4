"""Going back on a session's branch: rewind to an entry, and retry of the last turn.

Going back appends: a `branch_moved` entry follows the entry it goes back to, and everything after it follows
that one. What was left behind stays in the log, and one can go back to it in the same way.

A turn that somebody works on is not pulled from under its worker: while the session runs, or is about to, both
are refused (`SessionBusy`). A turn that only waits (for a person, a backend, a retry) is cancelled first, in
the same transaction. Any entry can be gone back to, also one between a call and its result: the next attempt
finds such calls by `plan_resume`, settles them as interrupted and names them in `session_resumed`.
"""

from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Min

from sessions_app import branches, entries, entry_kinds, inputs, leases, log, scheduling, tool_port, wakeups
from sessions_app.entry_kinds import Actor, Blocks
from sessions_app.errors import Conflict, Invalid, NotFound, SessionArchived
from sessions_app.inputs import RANK_STEP, NewInput
from sessions_app.models import (
    BRANCH,
    Entry,
    Input,
    InputState,
    Session,
    SessionStatus,
    TurnReason,
    TurnStatus,
)
from sessions_app.turns import end_turn_locked

logger = structlog.get_logger(__name__)


class SessionBusy(Conflict):
    """A turn is running or about to run: cancel it, or wait until it rests. `current` shows the session."""

    code = "session_busy"


class NothingToRetry(Conflict):
    """No turn of this session is on its branch that could be repeated. `current` shows the session."""

    code = "nothing_to_retry"


def rewind(*, session: UUID, to_seq: int, actor: Actor) -> Session:
    """Go on behind the entry `to_seq` of this session's own log; 0 is before its first entry.

    In a fork 0 is where it was forked from. Raises `NotFound`, `SessionArchived`, `SessionBusy`, or `Invalid`
    for a seq that the log does not have.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _lock(session)
        if row.status == SessionStatus.RUNNING or (
            row.status == SessionStatus.QUEUED and row.turn_id is not None
        ):
            raise SessionBusy(current=row)
        if not 0 <= to_seq < row.next_seq:
            message = f"must be 0 to {row.next_seq - 1}, an entry of this session"
            error = {"path": "/to_seq", "code": "out_of_range", "message": message}
            raise Invalid(f"to_seq {message}", errors=[error])
        _cancel_resting_turn(row, actor)
        _move(row, to_seq, actor)
        scheduling.give_work(row)
        row.save()
        wakeups.after_commit(row)
        logger.info("session.rewound", session=str(row.id), to_seq=to_seq)
    return row


def retry(*, session: UUID, actor: Actor) -> Session:
    """Repeat the last turn of the branch: go back to before it, and say again what was said in it.

    What was said in it, steering included, becomes one new input in front of others that wait. Where the
    session had crashed too often (R9) this is its new chance, and inherited inputs go first. Raises
    `NotFound`, `SessionArchived`, `SessionBusy` or `NothingToRetry`.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _lock(session)
        if row.status in {SessionStatus.RUNNING, SessionStatus.QUEUED}:
            raise SessionBusy(current=row)
        waiting = Input.objects.filter(session=row, state=InputState.RECEIVED)
        first_rank = waiting.aggregate(first=Min("rank"))["first"]
        inherited_first = row.crash_count >= settings.TENURE.crash_limit
        started = branches.newest(_own_path(row), "turn_started", session=row.pk)
        said = _said_in(row, started) if started is not None else []
        if started is not None and said:
            _cancel_resting_turn(row, actor)
            _move(row, started.parent_seq, actor)
            made = inputs.add_locked(row, NewInput(content=said, actor=actor))
            if first_rank is not None and not inherited_first:
                Input.objects.filter(pk=made.pk).update(rank=first_rank - RANK_STEP)
        elif not (inherited_first and first_rank is not None):
            raise NothingToRetry(current=row)
        row.crash_count = 0
        scheduling.give_work(row)
        row.save()
        wakeups.after_commit(row)
        logger.info("session.retried", session=str(row.id), turn=str(started.turn_id) if started else None)
    return row


def _lock(session: UUID) -> Session:
    row = leases.lock_session(session, with_parent=True)
    if row is None:
        raise NotFound("no such session")
    if row.archived_at is not None:
        raise SessionArchived(current=row)
    return row


def _cancel_resting_turn(row: Session, actor: Actor) -> None:
    if row.turn_id is None:
        return
    closed = tool_port.runtime().close(row.id, reason="cancelled")
    log.append(row, *entries.of_settled(closed))
    end_turn_locked(row, status=TurnStatus.CANCELLED, reason=TurnReason.CANCELLED, actor=actor)


def _move(row: Session, to_seq: int, actor: Actor) -> None:
    from_seq = row.head_seq
    row.head_seq = to_seq
    data = entry_kinds.BranchMoved(to_seq=to_seq, from_seq=from_seq)
    log.append(row, log.NewEntry(kind="branch_moved", data=data, actor=actor))
    row.rewound = True
    # The next attempt looks at what this branch ends in before it goes on (S9).
    row.lease_end = {"reason": BRANCH, "settled": []}
    reply = branches.newest(_own_path(row, to_seq), "assistant_message", session=row.pk)
    row.output_seq = reply.seq if reply is not None else None


def _own_path(row: Session, until: int | None = None) -> list[branches.Segment]:
    """The session's own part of the branch that ends in `until`, or in its head."""
    own = branches.of_session(row.pk, head_seq=row.head_seq if until is None else until)
    return [segment for segment in own if segment.session == row.pk]


def _said_in(row: Session, started: Entry) -> Blocks:
    """All that people said in the turn that began there, as far as it is on the branch."""
    path = _own_path(row)
    said = Entry.objects.filter(
        session_id=row.pk, turn=started.turn_id, kind="user_message", seq__gt=started.seq
    )
    return [
        block
        for seq, data in said.order_by("seq").values_list("seq", "data")
        if branches.holds(path, row.pk, seq)
        for block in data["content"]
    ]
