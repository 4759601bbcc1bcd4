"""The rows of many steps, table by table: one statement for each table that has any."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sessions_app import log, tool_port, tree_budgets
from sessions_app.database import Cursor, dumps
from sessions_app.steps.values import NO_USAGE, ModelCallEnd, Saved, StepWrite, Then, TurnEnd
from sessions_app.tool_port import Call, Completed

_UPDATE_SESSIONS = """
UPDATE sessions_app_session s SET
    next_seq = row.next_seq, head_seq = row.next_seq - 1, turn_id = row.turn_id, last_turn_id = row.last_turn_id,
    turn_count = row.turn_count, output_seq = row.output_seq, crash_count = row.crash_count,
    compact_requested = s.compact_requested AND NOT row.compaction_over,
    lease_end = row.lease_end, updated_at = row.now,
    limit_ask = CASE WHEN row.turn_over THEN NULL
        WHEN row.limit_ask IS NOT NULL THEN row.limit_ask || jsonb_build_object('since',
            to_char(row.now AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
        ELSE s.limit_ask END,
    model_calls = s.model_calls + row.model_calls, tool_calls = s.tool_calls + row.tool_calls,
    input_tokens = s.input_tokens + row.input_tokens, output_tokens = s.output_tokens + row.output_tokens,
    cached_tokens = s.cached_tokens + row.cached_tokens,
    reasoning_tokens = s.reasoning_tokens + row.reasoning_tokens,
    cost = CASE WHEN row.model_calls = 0 THEN s.cost WHEN s.model_calls = 0 THEN row.cost
        ELSE s.cost + row.cost END,
    retry_at = CASE row.retry WHEN 'set' THEN row.now + make_interval(secs => row.retry_in)
        WHEN 'clear' THEN NULL ELSE s.retry_at END,
    status = coalesce(row.status, s.status), waiting_on = coalesce(row.waiting_on, s.waiting_on),
    wake_at = CASE row.wake WHEN 'now' THEN row.now WHEN 'at' THEN row.wake_at
        WHEN 'retry' THEN row.now + make_interval(secs => row.retry_in) END
FROM (SELECT *, clock_timestamp() AS now FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, next_seq bigint, turn_id uuid, last_turn_id uuid, turn_count int, output_seq bigint,
    crash_count smallint, compaction_over boolean, turn_over boolean, limit_ask jsonb,
    lease_end jsonb, model_calls int, tool_calls int,
    input_tokens bigint,
    output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost numeric, retry text,
    retry_in float8, status text, waiting_on jsonb, wake text, wake_at timestamptz)) row
WHERE s.id = row.id
"""
_DELETE_LEASES = "DELETE FROM sessions_app_lease WHERE session_id = ANY(%s)"
_START_MODEL_CALLS = """
INSERT INTO sessions_app_modelcall (id, session_id, turn_id, config_id, purpose, attempt, covers_seq, reserved,
    state, may_be_billed, input_tokens, output_tokens, cached_tokens, reasoning_tokens)
SELECT id, session_id, turn_id, config_id, purpose, attempt, covers_seq, reserved, 'started', false, 0, 0, 0, 0
FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, session_id uuid, turn_id uuid, config_id uuid, purpose text, attempt int, covers_seq bigint,
    reserved bigint)
"""
_END_MODEL_CALLS = """
UPDATE sessions_app_modelcall c SET state = r.state, error = r.error, may_be_billed = r.may_be_billed,
    input_tokens = r.input_tokens, output_tokens = r.output_tokens, cached_tokens = r.cached_tokens,
    reasoning_tokens = r.reasoning_tokens, first_token_seconds = r.first_token_seconds,
    cost = r.cost, ended_at = clock_timestamp()
FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, state text, error jsonb, may_be_billed boolean, input_tokens bigint, output_tokens bigint,
    cached_tokens bigint, reasoning_tokens bigint, first_token_seconds float8, cost numeric)
WHERE c.id = r.id AND c.state = 'started'
"""
_START_TURNS = """
INSERT INTO sessions_app_turn (id, session_id, number, status, input_tokens, output_tokens, cached_tokens,
    reasoning_tokens, model_calls, tool_calls)
SELECT id, session_id, number, 'running', 0, 0, 0, 0, 0, 0
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, session_id uuid, number int)
"""
_UPDATE_TURNS = """
UPDATE sessions_app_turn t SET
    model_calls = t.model_calls + r.model_calls, tool_calls = t.tool_calls + r.tool_calls,
    input_tokens = t.input_tokens + r.input_tokens, output_tokens = t.output_tokens + r.output_tokens,
    cached_tokens = t.cached_tokens + r.cached_tokens, reasoning_tokens = t.reasoning_tokens + r.reasoning_tokens,
    cost = CASE WHEN r.model_calls = 0 THEN t.cost WHEN t.model_calls = 0 THEN r.cost ELSE t.cost + r.cost END,
    output_seq = coalesce(r.output_seq, t.output_seq), status = coalesce(r.status, t.status), reason = r.reason,
    error = r.error, ended_at = CASE WHEN r.status IS NOT NULL THEN clock_timestamp() END
FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, model_calls int, tool_calls int, input_tokens bigint, output_tokens bigint, cached_tokens bigint,
    reasoning_tokens bigint, cost numeric, output_seq bigint, status text, reason text, error jsonb)
WHERE t.id = r.id
"""
_DELIVER_INPUTS = """
UPDATE sessions_app_input i SET state = 'delivered', turn_id = r.turn_id
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, turn_id uuid) WHERE i.id = r.id AND i.state = 'received'
"""


@dataclass(frozen=True, slots=True)
class Locked:
    project: UUID
    work_rev: int
    next_seq: int
    head_seq: int
    turn: UUID | None
    last_turn: UUID | None
    turn_count: int
    output_seq: int | None
    crash_count: int
    ended_attempt: int | None
    ended_reason: str | None
    tree: UUID | None
    lease_end: dict[str, Any] | None


def locked_row(row: tuple[Any, ...]) -> Locked:
    locked = Locked(*row[1:])
    # Django has its connections hand JSON over as text.
    return replace(locked, lease_end=json.loads(row[-1])) if row[-1] else locked


class Batch:
    """The rows of all steps of one transaction, table by table."""

    def __init__(self, budgets: Mapping[UUID, tree_budgets.Locked] | None = None) -> None:
        self.budgets = budgets or {}
        self.entries: list[log.Placed] = []
        self.new_calls: list[tuple[Call, int, int]] = []
        self.started_calls: list[tuple[UUID, int]] = []
        self.results: list[Completed] = []
        self.model_call_ends: list[dict[str, Any]] = []
        self.model_call_starts: list[dict[str, Any]] = []
        self.turn_starts: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.inputs: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []
        self.released: list[UUID] = []
        self.limit_asks: list[tuple[UUID, UUID, dict[str, str]]] = []

    def add(self, step: StepWrite, row: Locked) -> Saved:
        budget = self.budgets.get(row.tree) if row.tree is not None else None
        _count(budget, step)
        moved = row.work_rev != step.work_rev or not _has_room(budget, step.then)
        then = Then() if moved else step.then
        placed = log.place(
            [*step.entries, *then.entries],
            session=step.session,
            project=row.project,
            next_seq=row.next_seq,
            head_seq=row.head_seq,
            attempt=step.attempt,
        )
        self.entries += placed
        next_seq = row.next_seq + len(placed)
        output_seq = row.output_seq
        if step.message is not None:
            output_seq = row.next_seq + step.message
            self.new_calls += [(call, output_seq, step.attempt) for call in step.calls]
        self.results += step.results
        self.started_calls += [(call, step.attempt) for call in then.start_calls]
        ended = step.model_call_end
        if ended is not None:
            self._end_model_call(
                ended, output_seq if step.message is not None else None, len(step.calls), then
            )
        elif then.turn_end is not None:
            self.turns.append(_turn_row(then.turn_end.id, None, 0, None, then.turn_end))
        turn, last_turn, turn_count = row.turn, row.last_turn, row.turn_count
        if then.turn_end is not None:
            turn, last_turn = None, then.turn_end.id
        if then.turn_start is not None:
            turn, turn_count = then.turn_start.id, then.turn_start.number
            self.turn_starts.append(
                {"id": str(turn), "session_id": str(step.session), "number": then.turn_start.number}
            )
        self.inputs += [{"id": str(item), "turn_id": str(turn)} for item in then.deliver]
        if then.model_call is not None:
            self.model_call_starts.append(
                {
                    "id": str(then.model_call.id),
                    "session_id": str(step.session),
                    "turn_id": str(then.model_call.turn) if then.model_call.turn else None,
                    "config_id": str(then.model_call.config),
                    "purpose": then.model_call.purpose,
                    "attempt": step.attempt,
                    "covers_seq": next_seq - 1,
                    "reserved": then.model_call.reserve,
                }
            )
        asked = then.limit_ask
        if asked is not None and turn is not None:
            shown = {"limit": asked.limit, "used": asked.used, "of": asked.of}
            self.limit_asks.append((asked.id, turn, shown))
        usage = ended.usage if ended is not None else NO_USAGE
        self.sessions.append(
            {
                "id": str(step.session),
                "next_seq": next_seq,
                "turn_id": str(turn) if turn else None,
                "last_turn_id": str(last_turn) if last_turn else None,
                "turn_count": turn_count,
                "output_seq": output_seq,
                "crash_count": 0 if step.resets_crashes or then.turn_end is not None else row.crash_count,
                "compaction_over": step.compaction_over or then.compaction_over,
                "turn_over": then.turn_end is not None,
                "limit_ask": (
                    {"approval": str(asked.id), "limit": asked.limit, "state": "open"}
                    if asked is not None
                    else None
                ),
                "lease_end": None if step.resumed or then.turn_end is not None else row.lease_end,
                "model_calls": 1 if ended is not None else 0,
                "tool_calls": len(step.calls),
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "cost": _amount(ended.cost_added) if ended is not None else None,
                **_schedule(then),
            }
        )
        if then.release is not None:
            self.released.append(step.session)
        tree = None
        if budget is not None:
            reserved = then.model_call.reserve if then.model_call is not None else None
            if reserved is not None:
                budget.reserve(reserved)
            tree = budget.used(without=reserved)
        return Saved(
            moved=moved, first_seq=row.next_seq, work_rev=row.work_rev, project=row.project, tree=tree
        )

    def _end_model_call(self, ended: ModelCallEnd, output_seq: int | None, calls: int, then: Then) -> None:
        usage = ended.usage
        self.model_call_ends.append(
            {
                "id": str(ended.id),
                "state": ended.state,
                "error": ended.error,
                "may_be_billed": ended.may_be_billed,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "first_token_seconds": ended.first_token_seconds,
                "cost": _amount(ended.cost),
            }
        )
        end = then.turn_end if then.turn_end is not None and then.turn_end.id == ended.turn else None
        if ended.turn is not None:
            self.turns.append(_turn_row(ended.turn, ended, calls, output_seq, end))

    def write(self, cursor: Cursor) -> None:
        runtime = tool_port.runtime()
        tree_budgets.write(cursor, self.budgets.values())
        log.insert_rows(cursor, self.entries)
        if self.new_calls:
            runtime.insert_calls(cursor, self.new_calls)
        if self.started_calls:
            runtime.start_calls(cursor, self.started_calls)
        if self.results:
            runtime.complete_calls(cursor, self.results)
        if self.limit_asks:
            runtime.ask_about_limits(cursor, self.limit_asks)
        for statement, rows in (
            (_END_MODEL_CALLS, self.model_call_ends),
            (_UPDATE_TURNS, self.turns),
            (_START_TURNS, self.turn_starts),
            (_START_MODEL_CALLS, self.model_call_starts),
            (_DELIVER_INPUTS, self.inputs),
            (_UPDATE_SESSIONS, self.sessions),
        ):
            if rows:
                cursor.execute(statement, (dumps(rows),))
        if self.released:
            cursor.execute(_DELETE_LEASES, (self.released,))


def _count(budget: tree_budgets.Locked | None, step: StepWrite) -> None:
    """What the step has used of its tree's budget."""
    ended = step.model_call_end
    if budget is not None and ended is not None:
        budget.settle(
            tokens=ended.usage.input_tokens + ended.usage.output_tokens,
            cost=ended.cost,
            tool_calls=len(step.calls),
            reserved=ended.reserved,
        )


def _has_room(budget: tree_budgets.Locked | None, then: Then) -> bool:
    """Whether the tree lets the model call be made that becomes due now."""
    return budget is None or then.model_call is None or budget.has_room(then.model_call.within)


def _turn_row(
    turn: UUID, ended: ModelCallEnd | None, tool_calls: int, output_seq: int | None, end: TurnEnd | None
) -> dict[str, Any]:
    usage = NO_USAGE if ended is None else ended.usage
    return {
        "id": str(turn),
        "model_calls": 0 if ended is None else 1,
        "tool_calls": tool_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost": None if ended is None else _amount(ended.cost_added),
        "output_seq": output_seq,
        "status": end.status if end else None,
        "reason": end.reason if end else None,
        "error": end.error if end else None,
    }


def _amount(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost:f}"


def _schedule(then: Then) -> dict[str, Any]:
    """The columns that say when the session is looked at again; all untouched while the lease goes on."""
    columns: dict[str, Any] = {
        "retry": "clear" if then.model_call is not None or then.turn_end is not None else None,
        "retry_in": then.retry_in,
        "status": None,
        "waiting_on": None,
        "wake": None,
        "wake_at": None,
    }
    if then.retry_in is not None:
        columns["retry"] = "set"
    release = then.release
    if release is None:
        return columns
    columns["status"] = release.status
    columns["waiting_on"] = list(release.waiting_on)
    if release.wake == "now":
        columns["wake"] = "now"
    elif isinstance(release.wake, datetime):
        columns |= {"wake": "at", "wake_at": release.wake.isoformat()}
    elif then.retry_in is not None:
        columns["wake"] = "retry"
    return columns
