"""Inputs: what is said to an agent. Stored first, delivered later (I1).

An input and the due time it gives its session are one transaction under the session's row lock, the lock that
the end of a turn takes too. Either the input is there when the turn looks for more work, or the turn has ended
when the input comes and the session is due again: no interleaving leaves it lying (I5). The place in the queue
is given under that lock as well, so the order is that of the locks and not that of the requests (A144).

While an input waits it can be taken back, moved, promoted and demoted (I3). All of it moves `work_rev` under the
lock: a worker that planned to deliver the queue as it was has to plan again, and one that has delivered already
makes the change a conflict. None of it moves a retry, except that a promoted input is steering (R6).

Delivery is a step's business (`steps`): it takes an input and writes the user message in one transaction.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max

from sessions_app import content as contents
from sessions_app import entries, entry_kinds, ids, leases, log, scheduling, tool_port, wakeups
from sessions_app.entry_kinds import Actor, Blocks
from sessions_app.errors import Conflict, Invalid, NotFound, SessionArchived
from sessions_app.models import Delivery, Input, InputState, Session

RANK_STEP = 1 << 16
"""Between two neighbours in the queue, so that a move has room and touches one row."""


class InputTaken(Conflict):
    """The input no longer waits. `current` shows what became of it."""

    code = "input_taken"


class AnchorGone(Conflict):
    """The input that this one was to stand next to does not wait in the same queue. Nothing was moved."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the queue: at an end, or next to another waiting input (`anchor`)."""

    side: Literal["first", "last", "before", "after"]
    anchor: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInput:
    """What is to be said, with parsed content (`content.parse`).

    `cancel_open` goes with steering: it closes the questions and approvals that are open at that moment.
    """

    content: Blocks
    actor: Actor
    delivery: str = Delivery.QUEUED
    cancel_open: bool = False


def submit_input(
    *,
    session: UUID,
    content: Blocks,
    actor: Actor,
    delivery: str = Delivery.QUEUED,
    cancel_open: bool = False,
) -> Input:
    """Store an input; the session is due for it when this commits.

    Raises `NotFound`, `SessionArchived`, or `Invalid` for files that are not there and for `cancel_open` on a
    queued input.
    """
    new = NewInput(content=content, actor=actor, delivery=delivery, cancel_open=cancel_open)
    with transaction.atomic(durable=not connection.in_atomic_block):
        # Bytes are stored before the session is locked: that may take a while.
        project = Session.objects.filter(pk=session).values_list("project_id", flat=True).first()
        if project is None:
            raise NotFound("no such session")
        kept = replace(new, content=contents.keep_files(new.content, project=project))
        row = leases.lock_session(session)
        if row is None:
            raise NotFound("no such session")
        if row.archived_at is not None:
            raise SessionArchived(current=row)
        made = add_locked(row, kept)
        scheduling.give_work(row)
        row.save()
        wakeups.after_commit(row)
    return made


def add_locked(session: Session, new: NewInput) -> Input:
    """Put an input at the end of a locked session's queue; the caller gives the session work and saves it."""
    if new.cancel_open and new.delivery != Delivery.STEERING:
        raise Invalid(
            "cancel_open goes with steering only",
            errors=[{"path": "/cancel_open", "code": "not_allowed", "message": "goes with steering only"}],
        )
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
    if new.cancel_open:
        data["cancel_open"] = True
    log.append(session, log.NewEntry(kind="input_received", data=data, actor=new.actor))
    if new.cancel_open:
        _close_prompts(session)
    # Somebody speaks to it: what crashed before gets another chance (R9).
    session.crash_count = 0
    return made


def cancel_input(*, input: UUID, actor: Actor) -> Input:  # noqa: A002 - the noun of the field
    """Take back an input that nobody has seen yet. Repeating it is safe.

    Raises `NotFound`, `SessionArchived`, or `InputTaken` once it was delivered.
    """
    with _changing(input, settled=InputState.CANCELLED) as (session, found):
        if found.state == InputState.RECEIVED:
            _cancel(session, [found], actor=actor, reason="cancelled")
    return found


def promote_input(*, input: UUID, actor: Actor, cancel_open: bool = False) -> Input:  # noqa: A002 - as above
    """Make a queued input steering: it keeps its place and joins the current turn. Repeating it changes nothing.

    With `cancel_open` the questions and approvals that are open now are closed. Raises as `cancel_input`.
    """
    with _changing(input) as (session, found):
        if found.delivery != Delivery.STEERING:
            _deliver_as(session, found, Delivery.STEERING, actor=actor, cancel_open=cancel_open)
    return found


def demote_input(*, input: UUID, actor: Actor) -> Input:  # noqa: A002 - as above
    """Make a steering input queued: it keeps its place and waits for a turn of its own. Raises as `cancel_input`."""
    with _changing(input) as (session, found):
        if found.delivery != Delivery.QUEUED:
            _deliver_as(session, found, Delivery.QUEUED, actor=actor)
    return found


def move_input(*, input: UUID, to: Place, actor: Actor) -> Input:  # noqa: A002 - as above
    """Give a waiting input another place in its queue. Raises as `cancel_input`.

    Raises `AnchorGone` where the input that it shall stand next to does not wait in this queue (any more), and
    `Invalid` for a place next to itself.
    """
    with _changing(input) as (session, found):
        if to.anchor == found.pk:
            raise Invalid("an input can't stand next to itself")
        queue = list(Input.objects.filter(session=session, state=InputState.RECEIVED).order_by("rank"))
        before = [row.pk for row in queue].index(found.pk)
        others = queue[:before] + queue[before + 1 :]
        at = _index(others, to)
        if at is None:
            raise AnchorGone(current=found)
        if at != before:
            _place(found, others, at)
            _updated(session, found, {"position": at + 1}, actor=actor)
    return found


def drop_waiting_locked(session: Session, *, actor: Actor, reason: str, of_actor: str | None = None) -> bool:
    """Cancel what waits in a locked session's queue, all or what this actor said; False if there is none.

    The caller reschedules and saves the session.
    """
    waiting = Input.objects.filter(session=session, state=InputState.RECEIVED).order_by("rank")
    if of_actor is not None:
        waiting = waiting.filter(actor__id=of_actor)
    dropped = list(waiting)
    _cancel(session, dropped, actor=actor, reason=reason)
    return bool(dropped)


@contextmanager
def _changing(input_id: UUID, *, settled: InputState | None = None) -> Iterator[tuple[Session, Input]]:
    """A transaction with the input's session locked, for a change of an input that waits.

    An input in the state `settled` passes too: what is asked for has happened already. If the block wrote to
    the log, the session is given the news.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        session_id = Input.objects.filter(pk=input_id).values_list("session_id", flat=True).first()
        session = leases.lock_session(session_id, with_parent=True) if session_id is not None else None
        if session is None:
            raise NotFound("no such input")
        # Read under the lock: a step that delivers it holds the same one.
        found = Input.objects.get(pk=input_id)
        if found.state != settled:
            if session.archived_at is not None:
                raise SessionArchived(current=session)
            if found.state != InputState.RECEIVED:
                raise InputTaken(f"the input is {found.state}", current=found)
        before = session.next_seq
        yield session, found
        if session.next_seq != before:
            scheduling.give_work(session)
            session.save()
            wakeups.after_commit(session)


def _cancel(session: Session, rows: Sequence[Input], *, actor: Actor, reason: str) -> None:
    Input.objects.filter(pk__in=[row.pk for row in rows]).update(state=InputState.CANCELLED)
    news = []
    for row in rows:
        row.state = InputState.CANCELLED
        data = entry_kinds.InputCancelled(input=ids.encode("inp", row.pk), reason=reason)
        news.append(log.NewEntry(kind="input_cancelled", data=data, actor=actor))
    log.append(session, *news)


def _deliver_as(
    session: Session, found: Input, delivery: Delivery, *, actor: Actor, cancel_open: bool = False
) -> None:
    found.delivery = delivery
    found.save(update_fields=["delivery"])
    changes: dict[str, Any] = {"delivery": delivery.value}
    if cancel_open:
        changes["cancel_open"] = True
    _updated(session, found, changes, actor=actor)
    if cancel_open:
        _close_prompts(session)


def _updated(session: Session, found: Input, changes: dict[str, Any], *, actor: Actor) -> None:
    data = entry_kinds.InputUpdated(input=ids.encode("inp", found.pk), changes=changes)
    log.append(session, log.NewEntry(kind="input_updated", data=data, actor=actor))


def _close_prompts(session: Session) -> None:
    """Close what waits for a person in the open turn; other calls of the batch go on (H5)."""
    closed = tool_port.runtime().close(session.id, reason="superseded", only="open_prompts")
    log.append(session, *entries.of_settled(closed))
    session.limit_ask = None


# --- places in the queue ---------------------------------------------------------------------------------


def _index(others: Sequence[Input], to: Place) -> int | None:
    """The place among the others; None where the anchor is not one of them."""
    if to.side == "first":
        return 0
    if to.side == "last":
        return len(others)
    places = {row.pk: index for index, row in enumerate(others)}
    if to.anchor not in places:
        return None
    return places[to.anchor] + (to.side == "after")


def _place(found: Input, others: Sequence[Input], at: int) -> None:
    """Write the rank for place `at`; where its neighbours leave no room, the whole queue gets new ranks."""
    lower = others[at - 1].rank if at > 0 else None
    upper = others[at].rank if at < len(others) else None
    rank = rank_between(lower, upper)
    if rank is not None:
        found.rank = rank
        found.save(update_fields=["rank"])
        return
    queue = [*others[:at], found, *others[at:]]
    for number, row in enumerate(queue, start=1):
        row.rank = number * RANK_STEP
    Input.objects.bulk_update(queue, ["rank"])


def rank_between(lower: int | None, upper: int | None) -> int | None:
    """A rank between two neighbours, None for an end of the queue; None if there is no room."""
    if lower is None:
        return RANK_STEP if upper is None else upper - RANK_STEP
    if upper is None:
        return lower + RANK_STEP
    middle = (lower + upper) // 2
    return middle if lower < middle < upper else None
