"""Approvals: asked with the call that needs one, decided once, closed when nobody needs them (H1 to H5, T7).

The only module that writes approvals. Whoever writes holds the lock of the session, so of two decisions that
come at once one is first; a decision, what it does to its call and the news for the session are one transaction.

What is allowed is what was shown: the arguments are stored with the approval and hashed by the database when it
is asked, and the call goes on only while its own arguments have that hash (C99). An approval belongs to one call
and is used up by it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import psycopg
import structlog
from django.db import connection, transaction
from django.db.models import BooleanField, DurationField, ExpressionWrapper, F, Func, Q, QuerySet, TextField

from sessions_app import entries, entry_kinds, ids, leases, limit_asks, log, scheduling, wakeups
from sessions_app.database import dumps
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict, Invalid, NotFound
from sessions_app.models import Session
from sessions_app.models.fields import ClockTimestamp
from sessions_app.text import clean_text
from sessions_app.tool_port import Call, Closed, ToolOutcome
from tools_app import questions, remembered, tool_calls
from tools_app.models import Approval, ApprovalState, Outcome, ToolClass
from tools_app.people import by_whom, same_person
from tools_app.preparation import with_question

logger = structlog.get_logger(__name__)

MAX_REASON = 4000
MAX_AT_ONCE = 200
"""Decisions of one request."""

type Remember = Literal["no", "session", "always"]

# In the step's pipeline, behind the calls. The deadline of the call is the one time that counts, and the hash is
# made of what is stored, because numbers look different on their way.
_INSERT = """
INSERT INTO tools_app_approval (id, project_id, session_id, turn_id, tool_call_id, name, arguments, digest, state,
    rule, pattern, call_deadline, expires_at)
SELECT r.id, s.project_id, c.session_id, c.turn_id, c.id, c.name, c.arguments,
    encode(sha256(convert_to(c.arguments::text, 'UTF8')), 'hex'), 'open', r.rule, r.pattern, r.call_deadline, c.deadline
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, tool_call_id uuid, rule text, pattern jsonb,
        call_deadline float8)
    JOIN tools_app_toolcall c ON c.id = r.tool_call_id JOIN sessions_app_session s ON s.id = c.session_id
"""


_INSERT_LIMITS = """
INSERT INTO tools_app_approval (id, project_id, session_id, turn_id, name, arguments, digest, state)
SELECT r.id, s.project_id, s.id, r.turn_id, 'limit', r.arguments,
    encode(sha256(convert_to(r.arguments::text, 'UTF8')), 'hex'), 'open'
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, turn_id uuid, arguments jsonb)
    JOIN sessions_app_turn t ON t.id = r.turn_id JOIN sessions_app_session s ON s.id = t.session_id
"""


class _Digest(Func):
    """SHA-256 of a JSON column as PostgreSQL writes it, which is the same text for equal values."""

    template = "encode(sha256(convert_to((%(expressions)s)::text, 'UTF8')), 'hex')"
    output_field = TextField()


class ApprovalDecided(Conflict):
    """Somebody has decided this already. `current` shows the decision."""

    code = "approval_decided"


class ApprovalCancelled(Conflict):
    """Nobody waits for the decision any more. `current` shows the approval."""

    code = "approval_cancelled"


class ApprovalExpired(Conflict):
    """The decision came too late, and the call was not made. `current` shows the approval."""

    code = "approval_expired"


class ArgumentsChanged(Conflict):
    """The arguments of the call are not those that were shown; it can't be allowed."""

    code = "arguments_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    approval: UUID
    decision: Literal["allow", "deny"]
    reason: str | None = None
    remember: Remember = "no"


def insert(cursor: psycopg.Cursor[Any], calls: Sequence[Call]) -> None:
    """Store the approvals that new calls need, behind the calls themselves."""
    rows = [
        {
            "id": str(call.ask.id),
            "tool_call_id": str(call.id),
            "rule": call.ask.data["rule"],
            "pattern": call.ask.pattern,
            "call_deadline": call.ask.then_deadline,
        }
        for call in calls
        if call.ask is not None and call.ask.kind == "approval"
    ]
    if rows:
        cursor.execute(_INSERT, (dumps(rows),))


def ask_about_limits(
    cursor: psycopg.Cursor[Any], rows: Sequence[tuple[UUID, UUID, Mapping[str, str]]]
) -> None:
    """Store approvals to go on at a limit: (approval, turn, what is shown). No call waits for them (R8)."""
    document = [
        {"id": str(approval), "turn_id": str(turn), "arguments": shown} for approval, turn, shown in rows
    ]
    cursor.execute(_INSERT_LIMITS, (dumps(document),))


def decide(
    *,
    approval: UUID,
    decision: Literal["allow", "deny"],
    actor: Actor,
    reason: str | None = None,
    remember: Remember = "no",
) -> Approval:
    """Allow or deny a call; allowed it goes on, denied it has its result, with the reason.

    The first decision counts (H2): the same one again, `remember` included, by the same person gives back what is
    stored. Raises
    `NotFound`, `Invalid`, `ApprovalDecided`, `ApprovalCancelled`, `ApprovalExpired`, `ArgumentsChanged`.
    """
    one = Decision(approval=approval, decision=decision, reason=reason, remember=remember)
    (row,) = decide_all([one], actor=actor)
    return row


def decide_all(decisions: Sequence[Decision], *, actor: Actor) -> list[Approval]:
    """Several decisions in one transaction, all or none, in the given order. Raises as `decide` does."""
    wanted = [one.approval for one in decisions]
    if len(set(wanted)) != len(wanted):
        raise Invalid("an approval is decided twice in this request")
    if len(wanted) > MAX_AT_ONCE:
        raise Invalid(f"at most {MAX_AT_ONCE} decisions at once")
    for one in decisions:
        if one.decision not in {"allow", "deny"}:
            raise Invalid("the decision is allow or deny")  # nothing else is consent (C98)
        if one.decision == "deny" and one.remember != "no":
            raise Invalid("only an allowance can be remembered")
    with transaction.atomic(durable=not connection.in_atomic_block):
        sessions = _lock_sessions(wanted)
        rows = _read(wanted)
        for one in decisions:
            found = rows[one.approval]
            _decide(sessions[found.row.session_id], found, one, actor=actor)
        for session in sessions.values():
            if session.touched:
                scheduling.give_work(session.row)
                session.row.save()
                wakeups.after_commit(session.row)
        decided = Approval.objects.in_bulk(wanted)
    return [decided[one] for one in wanted]


@dataclass(slots=True)
class _Locked:
    row: Session
    touched: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """An approval as it is under the lock. `late`: its time is over. `intact`: the call is what was shown."""

    row: Approval
    late: bool
    intact: bool
    waited: timedelta


def _lock_sessions(approvals: Iterable[UUID]) -> dict[UUID, _Locked]:
    """Every session of these approvals, locked in the order of their ids (L11)."""
    wanted = set(Approval.objects.filter(pk__in=list(approvals)).values_list("session_id", flat=True))
    locked = {}
    for session_id in sorted(wanted):
        session = leases.lock_session(session_id)
        if session is not None:
            locked[session_id] = _Locked(session)
    return locked


def _read(approvals: Collection[UUID]) -> dict[UUID, _Found]:
    rows = Approval.objects.filter(pk__in=approvals).annotate(
        late=ExpressionWrapper(Q(expires_at__lte=ClockTimestamp()), output_field=BooleanField()),
        call_digest=_Digest(F("tool_call__arguments")),
        waited=ExpressionWrapper(ClockTimestamp() - F("created_at"), output_field=DurationField()),
    )
    found = {
        row.pk: _Found(
            row, bool(row.late), row.tool_call_id is None or row.call_digest == row.digest, row.waited
        )
        for row in rows
    }
    if len(found) != len(set(approvals)):
        raise NotFound("no such approval")
    return found


def _decide(session: _Locked, found: _Found, one: Decision, *, actor: Actor) -> None:
    row = found.row
    reason = clean_text(one.reason).strip()[:MAX_REASON] if one.reason else None
    state = ApprovalState.ALLOWED if one.decision == "allow" else ApprovalState.DENIED
    _must_be_open(found, state=state, reason=reason or None, remember=one.remember, actor=actor)
    if row.state != ApprovalState.OPEN:
        return  # the same answer again
    if row.tool_call_id is None and one.remember != "no":
        raise Invalid("what is allowed at a limit can't be remembered: change the limit instead")
    if state == ApprovalState.ALLOWED and not found.intact:
        raise ArgumentsChanged(current=row)
    Approval.objects.filter(pk=row.pk, state=ApprovalState.OPEN).update(
        state=state, reason=reason or None, decided_by=actor, decided_at=ClockTimestamp()
    )
    data = entry_kinds.ApprovalDecided(
        approval=ids.encode("apr", row.pk), decision=one.decision, reason=reason or None
    )
    if one.remember != "no":
        data["remember"] = one.remember
        remembered.remember(approval=row, scope=one.remember, actor=actor)
    decided = log.NewEntry(kind="approval_decided", data=data, actor=actor, turn=row.turn_id)
    log.append(session.row, decided)
    if row.tool_call_id is not None:
        if state == ApprovalState.ALLOWED:
            _go_on(session.row, row.tool_call_id, row)
        else:
            _deny(session.row, row.tool_call_id, row, reason, actor)
    else:
        limit_asks.decided(
            session.row,
            approval=row.pk,
            allowed=state == ApprovalState.ALLOWED,
            used=Decimal(row.arguments["used"]),
            waited=found.waited,
        )
    session.touched = True
    logger.info("approval.decided", session=str(row.session_id), approval=str(row.pk), state=state.value)


def _must_be_open(
    found: _Found, *, state: ApprovalState, reason: str | None, remember: Remember, actor: Actor
) -> None:
    """Raises unless the approval is open, or was decided just so by the same person."""
    row = found.row
    match row.state:
        case ApprovalState.ALLOWED | ApprovalState.DENIED:
            is_same = row.state == state and row.reason == reason and same_person(row.decided_by, actor)
            if is_same and remembered.scope_taken_with(row.pk) == remember:
                return
            who = by_whom(row.decided_by, row.decided_at)
            raise ApprovalDecided(f"this was {row.state} by {who}", current=row)
        case ApprovalState.CANCELLED:
            raise ApprovalCancelled(current=row)
        case ApprovalState.EXPIRED:
            raise _expired(row)
    if found.late:
        raise _expired(row)  # the sweeper has yet to say so


def _expired(row: Approval) -> ApprovalExpired:
    return ApprovalExpired(f"this approval expired at {row.expires_at:%Y-%m-%d %H:%M:%S} UTC", current=row)


def _go_on(session: Session, call_id: UUID, row: Approval) -> None:
    """The allowed call is ready; one that waits for a backend or a person does so from now on."""
    call = tool_calls.allow(call_id, deadline=row.call_deadline)
    if call.tool_class == ToolClass.HUMAN:
        questions.open_locked(session, with_question(call))


def _deny(session: Session, call_id: UUID, row: Approval, reason: str | None, actor: Actor) -> None:
    why = f"{row.name} was not called: {actor['name'] or 'a person'} denied it"
    text = f"{why}. The reason given: {reason}" if reason else f"{why} and gave no reason."
    result = ToolOutcome(Outcome.DENIED.value, [{"type": "text", "text": clean_text(text)}])
    call = tool_calls.complete_unapproved(call_id, result)
    log.append(session, entries.tool_result(call, result))
    session.crash_count = 0  # a result that is not an interruption (R9)


def assign(*, approval: UUID, assignee: str | None) -> Approval:
    """Say whose decision it is, for the inbox; anybody may still decide. Raises `NotFound`, `Conflict`."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        _lock_sessions([approval])
        row = _read([approval])[approval].row
        if row.state != ApprovalState.OPEN:
            raise Conflict("only an open approval can be assigned", current=row)
        row.assignee = assignee
        row.save(update_fields=["assignee"])
    return row


def close_of(calls: Collection[UUID], *, state: ApprovalState) -> list[Closed]:
    """Close the open approvals of these calls, whose session the caller has locked."""
    if not calls:
        return []
    return _close(Approval.objects.filter(tool_call_id__in=calls), state=state)


def close_limit(session_id: UUID) -> list[Closed]:
    """Close the open approval to go on at a limit, if the session has one; the caller has locked it."""
    return _close(Approval.objects.filter(session=session_id, tool_call=None), state=ApprovalState.CANCELLED)


def _close(which: QuerySet[Approval], *, state: ApprovalState) -> list[Closed]:
    rows = which.filter(state=ApprovalState.OPEN).order_by("id")
    closed = [Closed("approval", pk, turn, state.value) for pk, turn in rows.values_list("pk", "turn_id")]
    if closed:
        Approval.objects.filter(pk__in=[one.id for one in closed]).update(state=state)
    return closed
