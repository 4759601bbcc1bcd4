"""Equality of JSON values, and a digest under which equal values are equal. Pure.

In Python `1 == True`; in JSON a number is never a boolean. And 1, 1.0 and 1e0 are one number, which the database
may give back in another form than it was given.
"""

import hashlib
import json
from decimal import Decimal
from typing import Any


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def digest(value: Any) -> str:
    """64 hexadecimal digits that stand for a JSON value, before and after it was stored."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))  # the digits that are written, as the database reads them
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
