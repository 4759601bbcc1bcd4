"""`GET /usage`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from django.utils import timezone
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import ids, usage
from sessions_app.api.base import ApiView
from sessions_app.api.fields import Moment, Query
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import InvalidCursor
from sessions_app.api.shapes import Money, money

_CURSOR = re.compile(r"from-([0-9]{1,9})", re.ASCII)


class UsageShape(TypedDict):
    """One group. `cost` is of the calls whose price is known, null where it is of none."""

    day: Annotated[str | None, Field(description="in UTC, where grouped by it")]
    profile: Annotated[str | None, Field(description="id; null also for sessions without one")]
    session: str | None
    model: Annotated[str | None, Field(description="provider:name", examples=["openai:gpt-5"])]
    calls: Annotated[int, Field(description="attempts at model calls, also failed and interrupted ones")]
    failed_calls: int
    unpriced_calls: Annotated[int, Field(description="calls whose cost nobody knows")]
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: Money | None


def _dimensions(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    names = value.split(",") if value else []
    for name in names:
        if name not in usage.DIMENSIONS:
            known = ", ".join(usage.DIMENSIONS)
            raise PydanticCustomError("not_allowed", "must be some of {known}, with commas", {"known": known})
    return names


class UsageQuery(Query):
    group_by: Annotated[
        list[usage.Dimension],
        BeforeValidator(_dimensions),
        WithJsonSchema({"type": "string", "examples": ["day,model"]}),
        Field(description="day, profile, session, model; one or more, with commas"),
    ] = ["day"]
    start: Annotated[Moment | None, Field(alias="from", description="30 days before `to`, unless given")] = (
        None
    )
    end: Annotated[Moment | None, Field(alias="to", description="now, unless given")] = None
    limit: Annotated[int, Field(ge=1, le=1000, description="groups a page")] = 1000
    cursor: Annotated[str, Field(max_length=100, description="`next_cursor` of the page before")] | None = (
        None
    )


class UsageView(ApiView):
    @operation("get_usage", "Add up usage", tag="usage", query=UsageQuery, answers={200: page_of(UsageShape)})
    def get(self, request: Request) -> Response:
        """Tokens, cost and calls of the project in a range of at most 366 days, in the order of the groups."""
        query = self.query(UsageQuery)
        end = query.end or timezone.now()
        start = query.start or _before(end, timedelta(days=30))
        offset = _offset(query.cursor)
        rows = usage.usage(
            project=self.project,
            start=start,
            end=end,
            group_by=query.group_by,
            limit=query.limit + 1,
            offset=offset,
        )
        following = f"from-{offset + query.limit}" if len(rows) > query.limit else None
        return Response({"data": [_shape(row) for row in rows[: query.limit]], "next_cursor": following})


def _before(moment: datetime, span: timedelta) -> datetime:
    try:
        return moment - span
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidCursor
    return int(match[1])


def _shape(row: usage.Row) -> UsageShape:
    return {
        "day": row.day.isoformat() if row.day else None,
        "profile": ids.encode("prf", row.profile) if row.profile else None,
        "session": ids.encode("ses", row.session) if row.session else None,
        "model": row.model,
        "calls": row.calls,
        "failed_calls": row.failed_calls,
        "unpriced_calls": row.unpriced_calls,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cached_tokens": row.cached_tokens,
        "reasoning_tokens": row.reasoning_tokens,
        "cost": money(row.cost),
    }
