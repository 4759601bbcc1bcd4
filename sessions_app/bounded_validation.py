"""JSON Schema validation that does a bounded amount of work. Pure.

A few lines of a schema can ask for more steps than there are atoms: references that double at each level, a long
list of alternatives for each item of a long array. A worker that serves other projects too would stand still over
them, so each step counts, and after `MAX_STEPS` the schema can't be applied. No part of a schema can choose other
keywords for itself: naming a dialect inside would bring back those that `linear_patterns` replaced.
"""

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

MAX_STEPS = 50_000
"""Parts of a schema held against parts of a value; a second or two."""

_LISTED = 20
"""That many items of a list in a schema (of an `enum`, say) are another step."""

_left: ContextVar[int] = ContextVar("steps left", default=MAX_STEPS)


class TooManySteps(ValueError):
    """The schema asks for more work than it may."""


def start_counting() -> None:
    """Call it before each value."""
    _left.set(MAX_STEPS)


def with_bounds(kind: type[Validator]) -> type[Validator]:
    """The validator class with every step counted."""
    bounded: type[Validator] = extend(kind, validators={"uniqueItems": _unique})  # type: ignore[no-untyped-call]
    evolve = bounded.evolve

    def counted(self: Any, **changes: Any) -> Any:
        schema = changes.get("schema", self.schema)
        if isinstance(schema, Mapping):
            _count(1 + sum(len(part) for part in schema.values() if isinstance(part, list)) // _LISTED)
            if "$schema" in schema:
                changes["schema"] = {key: part for key, part in schema.items() if key != "$schema"}
        return evolve(self, **changes)

    bounded.evolve = counted  # type: ignore[method-assign]
    return bounded


def _count(steps: int) -> None:
    left = _left.get() - steps
    if left < 0:
        raise TooManySteps(f"more than {MAX_STEPS} steps")
    _left.set(left)


def _unique(
    validator: Any, wanted: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """In one pass; the library compares each item with each other where they can't be sorted."""
    is_asked = wanted is True and validator.is_type(instance, "array")
    if is_asked and len({_hashable(item) for item in instance}) < len(instance):
        yield ValidationError("the array has non-unique elements")


def _hashable(value: Any) -> Any:
    """Equal for equal JSON values: 1 is 1.0, but neither is true."""
    match value:
        case dict():
            return dict, frozenset((key, _hashable(item)) for key, item in value.items())
        case list():
            return list, tuple(_hashable(item) for item in value)
        case bool():
            return bool, value
    return value
