"""What a project's model calls took: tokens, cost and number, in a range of time, grouped.

Read from the rows of the attempts themselves, so failed and repeated ones count as what they are. A price that is
not known is not zero: `cost` sums the known ones and is None where there are none, `unpriced_calls` says how many
calls it leaves out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args
from uuid import UUID

from django.db.models import CharField, Count, F, Q, Sum, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Concat, TruncDate

from sessions_app.errors import Invalid
from sessions_app.models import ModelCall, ModelCallState

Dimension = Literal["day", "profile", "session", "model"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

LONGEST = timedelta(days=366)

_MODEL = KeyTransform("model", "config__document")
_KEYS: dict[str, Any] = {
    "day": TruncDate("started_at"),
    "profile": F("session__profile_id"),
    "session": F("session_id"),
    "model": Concat(
        KeyTextTransform("provider", _MODEL),
        Value(":"),
        KeyTextTransform("name", _MODEL),
        output_field=CharField(),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One group. A dimension that was not asked for is None; so is the profile of sessions without one."""

    day: date | None
    profile: UUID | None
    session: UUID | None
    model: str | None
    calls: int
    failed_calls: int
    unpriced_calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: Decimal | None


def usage(
    *,
    project: UUID,
    start: datetime,
    end: datetime,
    group_by: Sequence[Dimension],
    limit: int,
    offset: int = 0,
) -> list[Row]:
    """Groups of the calls that started in [start, end), in the order of their keys, days in UTC."""
    if end <= start or end - start > LONGEST:
        error = {"path": "/to", "code": "out_of_range", "message": f"0 to {LONGEST.days} days behind from"}
        raise Invalid(f"`to` has to be behind `from`, by at most {LONGEST.days} days", errors=[error])
    unknown = Q(cost=None) & (
        Q(state__in=[ModelCallState.SUCCEEDED, ModelCallState.FAILED]) | Q(may_be_billed=True)
    )
    keys = {f"by_{name}": _KEYS[name] for name in DIMENSIONS if name in group_by} or {"by_nothing": Value(1)}
    groups = (
        ModelCall.objects.filter(session__project_id=project, started_at__gte=start, started_at__lt=end)
        .annotate(**keys)
        .values(*keys)
        .annotate(
            calls=Count("pk"),
            failed_calls=Count("pk", filter=Q(state=ModelCallState.FAILED)),
            unpriced_calls=Count("pk", filter=unknown),
            input_sum=Sum("input_tokens"),
            output_sum=Sum("output_tokens"),
            cached_sum=Sum("cached_tokens"),
            reasoning_sum=Sum("reasoning_tokens"),
            cost_sum=Sum("cost"),
        )
        .order_by(*keys)
    )
    return [
        Row(
            day=group.get("by_day"),
            profile=group.get("by_profile"),
            session=group.get("by_session"),
            model=group.get("by_model"),
            calls=group["calls"],
            failed_calls=group["failed_calls"],
            unpriced_calls=group["unpriced_calls"],
            input_tokens=group["input_sum"],
            output_tokens=group["output_sum"],
            cached_tokens=group["cached_sum"],
            reasoning_tokens=group["reasoning_sum"],
            cost=group["cost_sum"],
        )
        for group in groups[offset : offset + limit]
        if group["calls"]  # without dimensions there is one group, of whatever there is
    ]
