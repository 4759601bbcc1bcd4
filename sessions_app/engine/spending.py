"""What a claimed session has used so far, read from the tables, and what its limits let a reply do (R8).

Calls and tokens stand in the rows of the session and its turn, which are read at a claim anyway. Which warnings
the log holds, what calls cost and how long earlier turns took is asked only where limits need it.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Q, Sum

from sessions_app import tree_budgets
from sessions_app.engine import limits
from sessions_app.engine.limits import Meter, Used
from sessions_app.models import Entry, ModelCall, ModelCallState, Turn
from sessions_app.models.fields import ClockTimestamp
from sessions_app.providers.port import Category, ModelCallFailed
from sessions_app.tool_port import Call, ToolOutcome

SLACK = 0.01
"""Seconds by which a call may outlast its turn's time, so that the time is over when it is looked at again."""

COLUMNS = (
    "id", "turn_id", "limits", "model_calls", "tool_calls", "input_tokens", "output_tokens", "turn__model_calls",
    "turn__tool_calls", "turn__input_tokens", "turn__output_tokens", "tree",
    "limit_grants",
)  # fmt: skip
"""Of the session and its open turn; with `turn_age` from `age_of_turn()`."""


def age_of_turn() -> "ExpressionWrapper[Any]":
    """How long the open turn has taken, by the database's clock; null without one."""
    return ExpressionWrapper(ClockTimestamp() - F("turn__started_at"), output_field=DurationField())


def read(meter: Meter, row: Mapping[str, Any], document: Mapping[str, Any], *, now: float) -> None:
    """Bring the totals up to what `row` says; `now` is the monotonic time of reading it."""
    plain = limits.of(document, row["limits"])
    if row["tree"] is not None and row["tree"] == row["id"]:
        # At the top of a tree the session limits are those of the tree, but for time.
        plain = dataclasses.replace(plain, session=limits.Budget(wall_time=plain.session.wall_time))
    meter.later_turns = plain.turn
    turn = str(row["turn_id"]) if row["turn_id"] is not None else None
    meter.limits = limits.with_grants(plain, row["limit_grants"], turn)
    meter.ask = limits.asks(document, row["limits"])
    age: timedelta | None = row["turn_age"]
    meter.began = None if age is None else now - age.total_seconds()
    meter.session = Used(
        model_calls=row["model_calls"],
        tool_calls=row["tool_calls"],
        tokens=row["input_tokens"] + row["output_tokens"],
    )
    meter.turn = Used()
    if row["turn_id"] is not None:
        meter.turn = Used(
            model_calls=row["turn__model_calls"],
            tool_calls=row["turn__tool_calls"],
            tokens=row["turn__input_tokens"] + row["turn__output_tokens"],
        )
    meter.shared = None if row["tree"] is None else tree_budgets.read(row["tree"])
    if meter.limits is limits.NONE and (meter.shared is None or meter.shared.most == limits.Budget()):
        return
    _read_warnings(meter, row)
    if meter.limits.costs:
        _read_costs(meter, row)
    if meter.limits.session.wall_time is not None:
        _read_time(meter, row)


def _read_warnings(meter: Meter, row: Mapping[str, Any]) -> None:
    """On whatever branch they stand: what was used stays used."""
    meter.told = set()
    told = Entry.objects.filter(session_id=row["id"], kind="limit_warning")
    for turn, data in told.values_list("turn_id", "data"):
        if turn == row["turn_id"] or not data["limit"].startswith(f"{limits.TURN}."):
            meter.tell(data)


def _read_costs(meter: Meter, row: Mapping[str, Any]) -> None:
    ended = ModelCall.objects.filter(
        session_id=row["id"], state__in=[ModelCallState.SUCCEEDED, ModelCallState.FAILED]
    )
    of_turn = Q(turn_id=row["turn_id"]) if row["turn_id"] is not None else Q(pk=None)
    known = ended.aggregate(
        session=Sum("cost"),
        turn=Sum("cost", filter=of_turn),
        unpriced=Count("pk", filter=Q(cost=None)),
        turn_unpriced=Count("pk", filter=Q(cost=None) & of_turn),
    )
    meter.session.cost_usd = known["session"] or Decimal(0)
    meter.session.unpriced = known["unpriced"] > 0
    meter.turn.cost_usd = known["turn"] or Decimal(0)
    meter.turn.unpriced = known["turn_unpriced"] > 0


def _read_time(meter: Meter, row: Mapping[str, Any]) -> None:
    earlier = Turn.objects.filter(session_id=row["id"], ended_at__isnull=False)
    taken = earlier.aggregate(taken=Sum(F("ended_at") - F("started_at")))["taken"]
    meter.session.wall_time = taken.total_seconds() if taken is not None else 0.0


@asynccontextmanager
async def in_time(left: float | None) -> AsyncIterator[None]:
    """A model call within what is left of the time; when that is over, it has failed by the limit."""
    bound = asyncio.timeout(None if left is None else left + SLACK)
    try:
        async with bound:
            yield
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise ModelCallFailed(
            "the time limit was reached while the model was answering, so the call was stopped",
            category=Category.LIMIT,
            may_be_billed=True,
        ) from error


def refuse_beyond(calls: Sequence[Call], allowed: tuple[int, str] | None) -> list[Call]:
    """The calls of a reply, those beyond the limit with the result that says so: they never run."""
    if allowed is None or len(calls) <= allowed[0]:
        return list(calls)
    left, limit = allowed
    text = f"The call was not made: the limit on tool calls is reached ({limit})."
    refused = [
        call
        if call.result is not None
        else dataclasses.replace(call, state="completed", result=failed(text), ask=None)
        for call in calls[left:]
    ]
    return [*calls[:left], *refused]


def failed(text: str) -> ToolOutcome:
    """A result that the runtime gives in the place of a tool."""
    return ToolOutcome("failed", [{"type": "text", "text": text}])


NOT_STARTED = "The call was not made: the time limit of the turn or the session is reached."
STOPPED = (
    "The tool was stopped: the time limit of the turn or the session is reached. What it had begun outside may "
    "have happened."
)
