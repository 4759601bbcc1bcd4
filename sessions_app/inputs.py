"""Inputs: what is said to an agent. Stored first, delivered later (I1).

An input and the due time it gives its session are one transaction under the session's row lock, the lock that
the end of a turn takes too. Either the input is there when the turn looks for more work, or the turn has ended
when the input comes and the session is due again: no interleaving leaves it lying (I5). The place in the queue
is given under that lock as well, so the order is that of the locks and not that of the requests (A144).

Delivery is a step's business (`steps`): it takes an input and writes the user message in one transaction.
"""

from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max

from sessions_app import content as contents
from sessions_app import entry_kinds, ids, leases, log, scheduling, wakeups
from sessions_app.entry_kinds import Actor, Blocks
from sessions_app.errors import Conflict, NotFound, SessionArchived
from sessions_app.models import Delivery, Input, InputState, Session

RANK_STEP = 1 << 16
"""Between two neighbours in the queue, so that a move has room and touches one row."""


class InputTaken(Conflict):
    """The input no longer waits. `current` shows what became of it."""

    code = "input_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInput:
    """What is to be said, with parsed content (`content.parse`)."""

    content: Blocks
    actor: Actor
    delivery: str = Delivery.QUEUED


def submit_input(*, session: UUID, content: Blocks, actor: Actor, delivery: str = Delivery.QUEUED) -> Input:
    """Store an input; the session is due for it when this commits.

    Raises `NotFound`, `SessionArchived`, or `Invalid` for files that are not there.
    """
    new = NewInput(content=content, actor=actor, delivery=delivery)
    with transaction.atomic(durable=not connection.in_atomic_block):
        # Bytes are stored before the session is locked: that may take a while.
        project = Session.objects.filter(pk=session).values_list("project_id", flat=True).first()
        if project is None:
            raise NotFound("no such session")
        kept = contents.keep_files(new.content, project=project)
        row = leases.lock_session(session)
        if row is None:
            raise NotFound("no such session")
        if row.archived_at is not None:
            raise SessionArchived(current=row)
        made = add_locked(row, NewInput(content=kept, actor=actor, delivery=delivery))
        scheduling.give_work(row)
        row.save()
        wakeups.after_commit(row)
    return made


def add_locked(session: Session, new: NewInput) -> Input:
    """Put an input at the end of a locked session's queue; the caller gives the session work and saves it."""
    last = Input.objects.filter(session=session, state=InputState.RECEIVED).aggregate(last=Max("rank"))
    made = Input.objects.create(
        session=session,
        content=new.content,
        delivery=Delivery(new.delivery),
        rank=(last["last"] or 0) + RANK_STEP,
        actor=new.actor,
    )
    data = entry_kinds.InputReceived(
        input=ids.encode("inp", made.pk), delivery=made.delivery, content=new.content
    )
    log.append(session, log.NewEntry(kind="input_received", data=data, actor=new.actor))
    # Somebody speaks to it: what crashed before gets another chance (R9).
    session.crash_count = 0
    return made


def cancel_input(*, input: UUID, actor: Actor) -> Input:  # noqa: A002 - the noun of the field
    """Take back an input that nobody has seen yet. Repeating it is safe.

    Raises `NotFound`, `SessionArchived`, or `InputTaken` once it was delivered.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        session = Input.objects.filter(pk=input).values_list("session_id", flat=True).first()
        row = leases.lock_session(session) if session is not None else None
        if row is None:
            raise NotFound("no such input")
        # Read under the lock: a step that delivers it holds the same one.
        found = Input.objects.get(pk=input)
        if found.state == InputState.CANCELLED:
            return found
        if row.archived_at is not None:
            raise SessionArchived(current=row)
        if found.state != InputState.RECEIVED:
            raise InputTaken(f"the input is {found.state}", current=found)
        found.state = InputState.CANCELLED
        found.save(update_fields=["state"])
        data = entry_kinds.InputCancelled(input=ids.encode("inp", found.pk), reason="cancelled")
        log.append(row, log.NewEntry(kind="input_cancelled", data=data, actor=actor))
        # Less to do is news as well: a worker that planned to deliver it has to plan again.
        scheduling.give_work(row)
        row.save()
        wakeups.after_commit(row)
    return found
