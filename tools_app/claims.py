"""Claims: one worker of a backend says that it is at a custom call, so that no other takes it (T6).

    claim -> (extend ...) -> the result, or release; or the claim expires and the call is free again

A claim never stands in the way of a result. Whoever posts one first has answered the call, claim or not. So a claim
is only a hint with an end: three columns of a call that waits, moved by this module alone, under no other lock
than that of the row. The call's state stays `waiting`.

The token is shown once and stored as its digest. Time is the database's.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import connection, transaction

from sessions_app import wakeups
from sessions_app.database import dumps, hot_cursor
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict
from sessions_app.models.fields import ClockTimestamp
from tools_app import tool_calls
from tools_app.models import ToolCall, ToolCallState, ToolClass

# Free calls, in order of age, tool by tool: the oldest that nobody has claimed yet, and those whose claim ran out
# longest ago. Each part reads its own partial index in that index's order and stops after a few rows, so neither
# calls that are done or claimed nor those of other tools cost anything; the tools are found by hopping through the
# same indexes. Any wider condition lets the planner prefer to read all that is open. Rows are locked one by one
# until there are enough; competing claims skip the locked ones and find the next. The clock stands in a CTE because
# a volatile function can't be an index condition.
_UNCLAIMED = """c.project_id = %(project)s
            AND c.state = 'waiting' AND c.tool_class = 'custom' AND c.claim_expires_at IS NULL"""
_CLAIM = """
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), tool (name) AS ({tools}
), candidate AS MATERIALIZED (
    SELECT found.id, found.created_at FROM tool CROSS JOIN LATERAL (
        (SELECT c.id, c.created_at FROM tools_app_toolcall c
        WHERE {unclaimed} AND c.name = tool.name
        ORDER BY c.created_at, c.id LIMIT %(look)s)
        UNION ALL
        (SELECT c.id, c.created_at FROM tools_app_toolcall c
        WHERE {claimed} AND c.name = tool.name AND c.claim_expires_at <= (SELECT now FROM clock)
        ORDER BY c.claim_expires_at LIMIT %(look)s)) found
), picked AS MATERIALIZED (
    SELECT free.id FROM (SELECT id FROM candidate ORDER BY created_at, id) candidate
    CROSS JOIN LATERAL (
        SELECT c.id FROM tools_app_toolcall c
        WHERE c.id = candidate.id AND c.state = 'waiting'
            AND (c.claim_expires_at IS NULL OR c.claim_expires_at <= clock_timestamp())
        LIMIT 1 FOR UPDATE SKIP LOCKED) free
    LIMIT %(limit)s
)
UPDATE tools_app_toolcall c SET claim_token = %(token)s, claimed_by = %(actor)s::jsonb,
    claim_expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE c.id = ANY(ARRAY(SELECT id FROM picked)) RETURNING c.id
"""
_NEXT = """least(
        (SELECT c.name FROM tools_app_toolcall c WHERE {unclaimed}{after} ORDER BY c.name LIMIT 1),
        (SELECT c.name FROM tools_app_toolcall c WHERE {claimed}{after} ORDER BY c.name LIMIT 1))"""
_ALL_TOOLS = """
    SELECT {first}
    UNION ALL
    SELECT {following} FROM tool WHERE tool.name IS NOT NULL"""
_THESE_TOOLS = """
    SELECT DISTINCT unnest(%(names)s::text[])"""


def _claim_of(tools: str) -> str:
    parts = {
        "{tools}": tools,
        "{first}": _NEXT.replace("{after}", ""),
        "{following}": _NEXT.replace("{after}", " AND c.name > tool.name"),
        "{unclaimed}": _UNCLAIMED,
        "{claimed}": _UNCLAIMED.replace("IS NULL", "IS NOT NULL"),
    }
    statement = _CLAIM
    for mark, part in parts.items():
        statement = statement.replace(mark, part)
    return statement


CLAIM_ANY = _claim_of(_ALL_TOOLS)
CLAIM_NAMED = _claim_of(_THESE_TOOLS)


class ClaimLost(Conflict):
    """This claim no longer holds: it has expired, was given back, or the call is completed."""

    code = "claim_lost"


@dataclass(frozen=True, slots=True)
class Claimed:
    """Calls, oldest first, and the token that all of them were claimed with."""

    token: str
    calls: list[ToolCall]


def claim(
    *, project: UUID, names: Sequence[str] | None, limit: int, lease_seconds: float, actor: Actor
) -> Claimed:
    """Take up to `limit` custom calls that wait and that nobody else is at, the oldest first; perhaps none."""
    token = secrets.token_urlsafe(24)
    values = {
        "project": project,
        "names": None if names is None else list(names),
        "limit": limit,
        # Looking at more than it takes leaves something for those who look at the same moment.
        "look": 2 * limit + 8,
        "token": _digest(token),
        "actor": dumps(actor),
        "seconds": lease_seconds,
    }
    with transaction.atomic(durable=not connection.in_atomic_block), hot_cursor() as cursor:
        cursor.execute(CLAIM_ANY if names is None else CLAIM_NAMED, values)
        taken = [row[0] for row in cursor]
        if not taken:
            return Claimed(token, [])
        return Claimed(token, list(tool_calls.rows().filter(pk__in=taken).order_by("created_at", "pk")))


def extend(*, project: UUID, tool_call: UUID, token: str, lease_seconds: float) -> ToolCall:
    """Count the claim for `lease_seconds` from now. Raises `NotFound` or `ClaimLost`."""
    until = ClockTimestamp() + timedelta(seconds=lease_seconds)
    with transaction.atomic(durable=not connection.in_atomic_block):
        # The row is locked first: an UPDATE would judge the expiry by the time before it had to wait.
        held = hold(project=project, tool_call=tool_call, token=token)
        ToolCall.objects.filter(pk=held.pk).update(claim_expires_at=until)
        return tool_calls.read(project=project, tool_call=tool_call)


def release(*, project: UUID, tool_call: UUID, token: str) -> ToolCall:
    """Give the call back; the next one who claims may have it. Raises `NotFound` or `ClaimLost`."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        held = hold(project=project, tool_call=tool_call, token=token)
        free = {"claim_token": None, "claimed_by": None, "claim_expires_at": None}
        ToolCall.objects.filter(pk=held.pk).update(**free)
        transaction.on_commit(lambda: wakeups.ring_calls([project]), robust=True)
        return tool_calls.read(project=project, tool_call=tool_call)


def hold(*, project: UUID, tool_call: UUID, token: str) -> ToolCall:
    """Lock a call whose claim this token holds; nobody else gets the claim before the transaction ends."""
    mine = ToolCall.objects.filter(
        pk=tool_call,
        project_id=project,
        state=ToolCallState.WAITING,
        tool_class=ToolClass.CUSTOM,
        claim_token=_digest(token),
    )
    locked = mine.select_for_update().first()
    # Expiry is judged by a statement of its own, behind the lock.
    if locked is None or not mine.filter(claim_expires_at__gt=ClockTimestamp()).exists():
        raise ClaimLost(current=tool_calls.read(project=project, tool_call=tool_call))
    return locked


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
