"""Remembered decisions: an allowance that stands for later calls like the one it was given for (T7).

The only module that writes them. A call is like another where the same pattern of the config asks about both, or
else where the arguments are equal; the tool is meant by its name. So a pattern never answers a rule with other
matchers than a person saw, it is remembered only where the call surely matches it (a compound command never does),
and a rule that denies is not asked at all.

Rows are never changed but to be revoked. Taken twice, a decision stands there twice, and a revocation takes back all
that say the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet, Value

from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid, NotFound
from sessions_app.models.fields import ClockTimestamp
from sessions_app.tool_port import Call
from tools_app.models import Approval, RememberedDecision, ToolClass
from tools_app.permissions import digest
from tools_app.preparation import first_state, with_question

logger = structlog.get_logger(__name__)

type State = Literal["holds", "expired", "revoked"]


def remember(
    *,
    approval: Approval,
    scope: Literal["session", "always"],
    actor: Actor,
    expires_after: float | None = None,
) -> RememberedDecision:
    """Let calls like that of an approval go on by themselves; inside the transaction that allows it.

    `expires_after` is in seconds; None is the setting `remember_for`, in which 0 means for ever.
    """
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "remember() belongs into the transaction of the decision"
        )
    if approval.tool_call_id is None:
        raise Invalid("only a decision on a tool call can be remembered")
    seconds = settings.TENURE.remember_for if expires_after is None else expires_after
    pattern = approval.pattern
    row = RememberedDecision.objects.create(
        project_id=approval.project_id,
        session_id=approval.session_id if scope == "session" else None,
        tool=approval.name,
        pattern=pattern,
        arguments=approval.arguments if pattern is None else None,
        key=_key_of_arguments(approval.arguments) if pattern is None else _key_of_pattern(pattern),
        approval=approval,
        created_by=actor,
        expires_at=ClockTimestamp() + Value(timedelta(seconds=seconds)) if seconds else None,
    )
    row.refresh_from_db()
    logger.info("permission.remembered", remembered=str(row.pk), tool=row.tool, scope=scope)
    return row


def scope_taken_with(approval: UUID) -> Literal["no", "session", "always"]:
    """What was remembered with a decision, whatever became of it since."""
    row = RememberedDecision.objects.filter(approval_id=approval).first()
    if row is None:
        return "no"
    return "always" if row.session_id is None else "session"


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a rule, with this pattern or without one, asks about."""

    tool: str
    arguments: Mapping[str, Any]
    pattern: Mapping[str, Any] | None

    def keys(self) -> list[tuple[str, str]]:
        keys = [(self.tool, _key_of_arguments(self.arguments))]
        return keys if self.pattern is None else [*keys, (self.tool, _key_of_pattern(self.pattern))]


def matching(
    *, project: UUID, session: UUID | None, asked: Sequence[Asked]
) -> list[RememberedDecision | None]:
    """For each call the allowance that holds for it, in one query."""
    wanted = [one.keys() for one in asked]
    flat = {key for keys in wanted for key in keys}
    if not flat:
        return [None for _ in asked]
    scope = Q(session=None) if session is None else Q(session=None) | Q(session_id=session)
    rows = holding(RememberedDecision.objects.filter(scope, project_id=project)).filter(
        tool__in={tool for tool, _ in flat}, key__in={key for _, key in flat}
    )
    found = {(row.tool, row.key): row for row in rows.order_by("id")}
    return [next((found[key] for key in keys if key in found), None) for keys in wanted]


def recall(calls: Sequence[Call], *, project: UUID, session: UUID) -> list[Call]:
    """The calls of a reply before they are stored: those that are allowed already ask nobody."""
    asking = [call for call in calls if call.ask is not None and call.ask.kind == "approval"]
    asked = [Asked(call.name, call.arguments, call.ask.pattern) for call in asking if call.ask is not None]
    rows = matching(project=project, session=session, asked=asked)
    allowed = {call.id: row for call, row in zip(asking, rows, strict=True) if row is not None}
    for call in asking:
        if call.id in allowed:
            logger.info("permission.recalled", tool_call=str(call.id), remembered=str(allowed[call.id].pk))
    return [_let_go(call) if call.id in allowed else call for call in calls]


def _let_go(call: Call) -> Call:
    assert call.ask is not None  # noqa: S101 - for the type checker; only calls that ask come here
    free = replace(call, state=first_state(call.tool_class).value, deadline=call.ask.then_deadline, ask=None)
    return with_question(free) if call.tool_class == ToolClass.HUMAN else free


def holding(rows: QuerySet[RememberedDecision]) -> QuerySet[RememberedDecision]:
    """Those that hold now, by the database's clock."""
    return in_state(rows, "holds")


def in_state(rows: QuerySet[RememberedDecision], state: State) -> QuerySet[RememberedDecision]:
    match state:
        case "revoked":
            return rows.filter(revoked_at__isnull=False)
        case "expired":
            return rows.filter(revoked_at=None, expires_at__lte=ClockTimestamp())
        case "holds":
            return rows.filter(Q(expires_at=None) | Q(expires_at__gt=ClockTimestamp()), revoked_at=None)


def get(*, project: UUID, remembered: UUID) -> RememberedDecision:
    """Raises `NotFound`."""
    row = RememberedDecision.objects.filter(project_id=project, pk=remembered).first()
    if row is None:
        raise NotFound("no such remembered decision")
    return row


def revoke(*, remembered: Collection[UUID], actor: Actor) -> int:
    """Take them back, with others that say the same; later calls ask again. Safe to repeat.

    Returns how many were taken back. What was let go before is not called back.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        rows = RememberedDecision.objects.filter(pk__in=remembered)
        same = Q(pk__in=[])
        for row in rows:
            same |= Q(project=row.project_id, session=row.session_id, tool=row.tool, key=row.key)
        count = RememberedDecision.objects.filter(same, revoked_at=None).update(
            revoked_at=ClockTimestamp(), revoked_by=actor
        )
    logger.info("permission.revoked", remembered=[str(one) for one in remembered], rows=count)
    return count


def _key_of_arguments(arguments: Mapping[str, Any]) -> str:
    return digest({"arguments": arguments})


def _key_of_pattern(pattern: Mapping[str, Any]) -> str:
    return digest({"pattern": pattern})
