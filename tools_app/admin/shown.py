"""How the admin shows JSON and people."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Model

from tools_app.people import by_whom


def as_json(value: Any, *, indent: int | None = 2) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def who(actor: Mapping[str, Any] | None, at: datetime | None) -> str:
    return "-" if actor is None else by_whom(actor, at)


def chosen(rows: Iterable[Model]) -> list[str]:
    """The hidden fields of a bulk action that asks something first."""
    return [str(row.pk) for row in rows]
