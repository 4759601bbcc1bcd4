"""Who answered, and whether it is the same person again (H2). Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def same_person(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """By kind and id; names may change."""
    if one is None or other is None:
        return False
    return (one["kind"], one["id"]) == (other["kind"], other["id"])


def by_whom(actor: Mapping[str, Any] | None, at: datetime | None) -> str:
    """Such as "ann at 2026-11-30 16:20:00 UTC"."""
    name = (actor or {}).get("name") or (actor or {}).get("id") or "somebody"
    return name if at is None else f"{name} at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
