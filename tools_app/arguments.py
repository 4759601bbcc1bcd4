"""What a model wrote as arguments of a call, and whether a tool can take it (T3). Pure.

What is wrong is said in words that a model can act on: where, and what was expected.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from sessions_app.text import UnstorableJson, clean_json, json_pointer
from tools_app.linear_patterns import with_linear_patterns

__all__ = ["BadArguments", "Validator", "problem_with", "read", "validator_for_schema"]

_MAX_PROBLEMS = 5
_MAX_MESSAGE = 300


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
        problems = [_told(error) for error in islice(validator.iter_errors(arguments), _MAX_PROBLEMS)]
    except (RecursionError, Unresolvable):
        return "the schema of this tool can't be applied to the arguments"
    return "the arguments do not fit the tool's schema: " + "; ".join(problems) if problems else None


def _told(error: ValidationError) -> str:
    message = error.message
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + "…"
    place = json_pointer(error.absolute_path)
    return f"at {place}: {message}" if place else message


def validator_for_schema(schema: Mapping[str, Any]) -> Validator:
    """Compiled once per schema text. References are looked up in the schema itself, never fetched."""
    return _compiled(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=2048)
def _compiled(schema: str) -> Validator:
    document = json.loads(schema)
    kind = with_linear_patterns(validator_for(document, default=Draft202012Validator), schema)
    return kind(document, registry=Registry())


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
