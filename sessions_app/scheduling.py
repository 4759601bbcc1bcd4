"""The due time of a locked session: facts from the tables, the decision from `due`, the columns set (S11).

Also where a subagent comes to rest, of which its parent is told in the same transaction (T8): that is one more
thing which follows from the same facts.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Least

from sessions_app import children, due, entries, entry_kinds, ids, limit_asks, log, tool_port, wakeups
from sessions_app.models import Delivery, Input, InputState, Lease, Session, SessionStatus
from sessions_app.models.fields import ClockTimestamp


def facts_of(session: Session) -> due.Facts:
    """What the due time depends on, read under the session's lock."""
    waiting = set(
        Input.objects.filter(session=session, state=InputState.RECEIVED)
        .values_list("delivery", flat=True)
        .distinct()
    )
    calls = tool_port.runtime().facts([session.id]).get(session.id, tool_port.CallFacts())
    return due.Facts(
        archived=session.archived_at is not None,
        open_turn=session.turn_id is not None,
        steering=Delivery.STEERING in waiting,
        queued=Delivery.QUEUED in waiting,
        crash_limited=session.crash_count >= settings.TENURE.crash_limit,
        ready_call=calls.ready,
        open_calls=calls.open_calls,
        awaiting=calls.awaiting,
        compaction=session.compact_requested,
        limit_asked=_limit_asked(session),
        retry_at=session.retry_at,
        deadline=calls.deadline,
    )


def _limit_asked(session: Session) -> tuple[dict[str, str], ...]:
    asked = session.limit_ask
    if asked is None or asked["state"] != limit_asks.OPEN:
        return ()
    return ({"kind": "limit", "id": ids.encode("apr", UUID(asked["approval"])), "since": asked["since"]},)


def reschedule(session: Session) -> None:
    """Set status, `waiting_on` and `wake_at` of a locked session without a lease; the caller saves it.

    A wait that is new is also an entry (S7). A leased session keeps its status: its worker reschedules.
    """
    facts = facts_of(session)
    if facts.deadline is not None:
        # Only the database knows whether it has passed; a call that is too late must not be waited for again.
        expired = tool_port.runtime().expire(session.id)
        if expired.results:
            log.append(session, *entries.of_settled(expired))
            facts = facts_of(session)
    if session.parent_id is not None:
        tell_parent(session, facts)
    decision = due.decide(facts)
    waiting_on = [dict(item) for item in decision.waiting_on]
    if decision.status == SessionStatus.WAITING and not _same_wait(session.waiting_on, waiting_on):
        log.append(session, entries.session_waiting(waiting_on, turn=session.turn_id))
    session.status = decision.status
    session.waiting_on = waiting_on
    if decision.wake == "now" and session.wake_at is not None:
        # Due already, perhaps: then more work does not send it to the back of the line.
        session.wake_at = Least(F("wake_at"), ClockTimestamp())
    else:
        session.wake_at = wake_value(decision.wake)
    session.updated_at = ClockTimestamp()


def give_work(session: Session) -> None:
    """A locked session has something new to look at; the caller saves it.

    The worker that holds it finds the moved `work_rev` when it saves its next step, and plans again; without a
    lease the due time says when it is looked at (S11).
    """
    session.work_rev += 1
    if not Lease.objects.filter(pk=session.pk).exists():
        reschedule(session)
    elif session.parent_id is not None:
        tell_parent(session)


def tell_parent(session: Session, facts: due.Facts | None = None) -> None:
    """A locked subagent has work again, or has come to rest: then its parent hears of it, once (T8).

    What the parent waited for gets its result. The parent's row, which has to be locked for that too (L11), is
    saved here.
    """
    if not due.rests(facts or facts_of(session)):
        children.begins(session)
        return
    ended = children.ends(session)
    if ended is None:
        return
    parent = children.locked_parent(session)
    if parent.archived_at is not None:
        return  # it can only be read
    data = entry_kinds.ChildEnded(
        child=ids.encode("ses", session.pk), status=ended.status or "", reason=ended.reason or ""
    )
    log.append(parent, log.NewEntry(kind="child_ended", data=data, turn=parent.turn_id))
    settled = tool_port.runtime().child_ended(parent.pk)
    if settled.results:
        log.append(parent, *entries.of_settled(settled))
        parent.crash_count = 0
        give_work(parent)
    elif parent.status == SessionStatus.WAITING:
        reschedule(parent)  # it waits for one less
    parent.save()
    wakeups.after_commit(parent)


def wake_value(wake: due.Wake) -> Any:
    """What is stored for a wake: "now" is the database's now."""
    return ClockTimestamp() if wake == "now" else wake


def _same_wait(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    def keys(items: list[dict[str, Any]]) -> set[tuple[Any, Any]]:
        return {(item.get("kind"), item.get("id")) for item in items}

    return keys(before) == keys(after)
