"""Two ways to page: lists by an opaque cursor, logs by sequence.

A cursor names the last row of a page by its place in the order (time of creation and id), so rows that come or
go meanwhile shift nothing. It also names its list: a cursor of another one is an error, not a surprise.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from django.db.models import Model, Q, QuerySet
from pydantic import Field

from sessions_app.api.fields import Query
from sessions_app.errors import Invalid

MAX_CURSOR = 1024
MAX_SEQ = 2**53 - 1


class PageQuery(Query):
    """Of every list."""

    limit: Annotated[int, Field(ge=1, le=200, description="rows a page")] = 50
    cursor: (
        Annotated[str, Field(max_length=MAX_CURSOR, description="`next_cursor` of the page before")] | None
    ) = None


class SeqQuery(Query):
    """Of every log: `after` reads on, `before` reads back; either way rows come in rising order."""

    after: Annotated[int, Field(ge=0, le=MAX_SEQ, description="only rows behind this one")] | None = None
    before: (
        Annotated[int, Field(ge=1, le=MAX_SEQ, description="the last rows in front of this one")] | None
    ) = None
    limit: Annotated[int, Field(ge=1, le=500, description="rows a page")] = 100


class InvalidCursor(Invalid):
    """This cursor is none of this list."""

    code = "invalid_cursor"

    def __init__(self) -> None:
        error = {"path": "/cursor", "code": "malformed", "message": "not a cursor of this list"}
        super().__init__(errors=[error])


def page[Row: Model](
    rows: QuerySet[Row],
    query: PageQuery,
    shape: Callable[[Row], Any],
    *,
    name: str,
    newest_first: bool = True,
    place: str = "created_at",
) -> dict[str, Any]:
    """`{"data", "next_cursor"}`, in the order of `place` (a time) and id."""
    comparison = "lt" if newest_first else "gt"
    if query.cursor is not None:
        moment, number = _decode(query.cursor, name)
        rows = rows.filter(
            Q(**{f"{place}__{comparison}": moment}) | Q(**{place: moment, f"id__{comparison}": number}),
            **{f"{place}__{comparison}e": moment},  # lets the index jump to the place
        )
    sign = "-" if newest_first else ""
    found = list(rows.order_by(f"{sign}{place}", f"{sign}id")[: query.limit + 1])
    data = found[: query.limit]
    following = _encode(name, getattr(data[-1], place), data[-1].pk) if len(found) > query.limit else None
    return {"data": [shape(row) for row in data], "next_cursor": following}


def seq_page[Row: Model](
    rows: QuerySet[Row],
    query: SeqQuery,
    shape: Callable[[Row], Any],
    *,
    field: str = "seq",
) -> dict[str, Any]:
    """`{"data", "has_more"}`, rising. With `before` alone the last rows in front of it, and more is further back."""
    if query.after is not None:
        rows = rows.filter(**{f"{field}__gt": query.after})
    if query.before is not None:
        rows = rows.filter(**{f"{field}__lt": query.before})
    backwards = query.before is not None and query.after is None
    found = list(rows.order_by(f"-{field}" if backwards else field)[: query.limit + 1])
    data = found[: query.limit]
    if backwards:
        data.reverse()
    return {"data": [shape(row) for row in data], "has_more": len(found) > query.limit}


def _encode(name: str, moment: datetime, number: UUID | int) -> str:
    last = number.hex if isinstance(number, UUID) else number
    text = json.dumps([name, moment.isoformat(), last], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str, name: str) -> tuple[datetime, UUID | int]:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        listed, moment, last = found
        if listed != name:
            raise InvalidCursor
        place = datetime.fromisoformat(moment)
        if place.tzinfo is None:
            raise InvalidCursor
        place = place.astimezone(UTC)
        return place, UUID(hex=last) if isinstance(last, str) else _number(last)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise InvalidCursor from None


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidCursor
    return value
