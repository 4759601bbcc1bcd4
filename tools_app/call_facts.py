"""What the engine knows of calls without a result. Only reads; `tool_calls` moves them.

`facts` is what a session's due time follows from (S11): whether a call is ready, the nearest deadline, and whom the
others wait for.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from sessions_app import children, ids
from sessions_app.tool_port import Call, CallFacts
from tools_app.models import ToolCall, ToolCallState, ToolClass


def open_calls(session_ids: Iterable[UUID]) -> dict[UUID, list[Call]]:
    """Calls without a result, by session, in call order."""
    found: dict[UUID, list[Call]] = {}
    for call in in_order(_open(session_ids)):
        found.setdefault(call.session, []).append(call)
    return found


_FIELDS = (
    "id",
    "session_id",
    "turn_id",
    "call_id",
    "name",
    "tool_class",
    "rerun_safe",
    "arguments",
    "position",
    "state",
    "config_id",
    "time_limit",
)


def in_order(rows: QuerySet[ToolCall]) -> Iterator[Call]:
    """Calls as the engine holds them, in call order."""
    names = ("id", "session", "turn", *_FIELDS[3:-2], "config", "time_limit")
    for values in rows.order_by("session_id", "message_seq", "position").values_list(*_FIELDS):
        yield Call(**dict(zip(names, values, strict=True)))


def _open(session_ids: Iterable[UUID]) -> QuerySet[ToolCall]:
    rows = ToolCall.objects.filter(session_id__in=list(session_ids))
    return rows.exclude(state=ToolCallState.COMPLETED)


# A call that was allowed waits for its answer only from then on.
_SINCE = Coalesce("question__created_at", "approval__decided_at", "created_at")


def facts(session_ids: Iterable[UUID]) -> dict[UUID, CallFacts]:
    """For the due time; one query for any number of sessions. Those without open calls are missing."""
    rows = (
        _open(session_ids)
        .annotate(since=_SINCE)
        .order_by("session_id", "message_seq", "position")
        .values_list(
            "session_id",
            "id",
            "state",
            "deadline",
            "since",
            "tool_class",
            "approval__id",
            "question__id",
            "child_wait__children",
        )
    )
    open_rows = list(rows)
    busy = children.at_work({UUID(child) for *_, wanted in open_rows for child in wanted or ()})
    found: dict[UUID, CallFacts] = {}
    for session, call, state, deadline, since, tool_class, approval, question, wanted in open_rows:
        before = found.get(session, CallFacts())
        found[session] = CallFacts(
            open_calls=before.open_calls + 1,
            ready=before.ready or state == ToolCallState.READY,
            deadline=min(filter(None, (before.deadline, deadline)), default=None),
            awaiting=before.awaiting
            + _awaiting(
                state,
                _Whom(call, tool_class, approval, question, [UUID(child) for child in wanted or ()]),
                since,
                busy,
            ),
        )
    return found


class _Whom(NamedTuple):
    """What an open call may wait for."""

    call: UUID
    tool_class: str
    approval: UUID | None
    question: UUID | None
    children: list[UUID]


def _awaiting(state: str, whom: _Whom, since: datetime, busy: Collection[UUID]) -> tuple[dict[str, str], ...]:
    """Whom an open call waits for, as `waiting_on` shows it; nobody, where it is ready or running."""
    if state == ToolCallState.AWAITING_APPROVAL and whom.approval is not None:
        named = [("approval", ids.encode("apr", whom.approval))]
    elif state == ToolCallState.WAITING and whom.tool_class == ToolClass.HUMAN and whom.question is not None:
        named = [("question", ids.encode("qst", whom.question))]
    elif state == ToolCallState.WAITING and whom.children:
        named = [("child", ids.encode("ses", child)) for child in whom.children if child in busy]
    elif state in {ToolCallState.WAITING, ToolCallState.AWAITING_APPROVAL}:
        named = [("tool", ids.encode("tcl", whom.call))]
    else:
        return ()
    at = since.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return tuple({"kind": kind, "id": id_, "since": at} for kind, id_ in named)


def undue_sql() -> str:
    """The sessions that have work by this app's table: ready calls and past deadlines (S11, S12).

    Both halves read a partial index that holds nothing else. The clock stands in a subquery because a
    volatile function can't be an index condition.
    """
    return (
        "SELECT session_id FROM tools_app_toolcall WHERE state = 'ready' UNION "
        "SELECT session_id FROM tools_app_toolcall "
        "WHERE state <> 'completed' AND deadline <= (SELECT clock_timestamp())"
    )
