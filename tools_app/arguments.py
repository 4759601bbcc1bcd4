"""What a model wrote as arguments of a call, and whether a tool can take it (T3). Pure.

What is wrong is said in words that a model can act on: where, and what was expected.
"""

import json
from collections.abc import Mapping
from typing import Any

from sessions_app.schema_validation import Unusable, Validator, problems_with, validator_for_schema
from sessions_app.text import UnstorableJson, clean_json

__all__ = ["BadArguments", "Validator", "problem_with", "read", "validator_for_schema"]


class BadArguments(ValueError):
    """The arguments can't be used; the message is for the model."""


def read(block: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call block as a storable object; `BadArguments` where they are none.

    Nothing at all (a blank text, null) means `{}`. Providers put text that is not an object into
    `arguments_raw`.
    """
    raw = block.get("arguments_raw")
    value = raw if raw is not None else block.get("arguments")
    if isinstance(value, str):
        value = _parsed(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments must be a JSON object, not {_kind(value)}")
    try:
        cleaned: dict[str, Any] = clean_json(value, on_nan="null")
    except UnstorableJson as error:
        raise BadArguments(f"the arguments are {error.message}") from None
    return cleaned


def _parsed(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"the arguments are not valid JSON: {error}") from None


def problem_with(validator: Validator, arguments: dict[str, Any]) -> str | None:
    """The first few places where the arguments don't fit the schema; None where they fit."""
    try:
        problems = problems_with(validator, arguments)
    except Unusable:
        return "the schema of this tool can't be applied to the arguments"
    return None if problems is None else f"the arguments do not fit the tool's schema: {problems}"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array"
