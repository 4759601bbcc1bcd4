"""Whether a JSON value fits a JSON Schema, in words that a model can act on. Pure.

For a tool's arguments and for structured answers alike: both are made up by a model and held against a schema
that a project wrote. Patterns take linear time (`linear_patterns`), the whole takes a bounded number of steps
(`bounded_validation`), references are never fetched.
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

from sessions_app.bounded_validation import TooManySteps, start_counting, with_bounds
from sessions_app.linear_patterns import with_linear_patterns
from sessions_app.text import json_pointer

__all__ = ["Unusable", "Validator", "problems_with", "validator_for_schema"]

_MAX_PROBLEMS = 5
_MAX_MESSAGE = 300


class Unusable(ValueError):
    """The schema can't be applied to this value."""


def validator_for_schema(schema: Mapping[str, Any]) -> Validator:
    """Compiled once per schema text. References are looked up in the schema itself, never fetched."""
    return _compiled(json.dumps(schema, sort_keys=True))


def problems_with(validator: Validator, value: Any) -> str | None:
    """The first few places where the value doesn't fit, None where it fits; `Unusable` where nobody can say."""
    start_counting()
    try:
        problems = [_told(error) for error in islice(validator.iter_errors(value), _MAX_PROBLEMS)]
    except (RecursionError, TooManySteps, Unresolvable) as error:
        raise Unusable(str(error)) from None
    return "; ".join(problems) or None


def _told(error: ValidationError) -> str:
    message = error.message
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + "…"
    place = json_pointer(error.absolute_path)
    return f"at {place}: {message}" if place else message


@lru_cache(maxsize=2048)
def _compiled(schema: str) -> Validator:
    document = json.loads(schema)
    kind = validator_for(document, default=Draft202012Validator)
    kind = with_bounds(with_linear_patterns(kind, schema))
    return kind(document, registry=Registry())
