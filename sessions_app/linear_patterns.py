"""JSON Schema validation whose patterns take linear time. Pure.

A schema is written by one project and applied to text that a model made up, inside a worker that serves others
too. Python's regular expressions can take for ever on thirty characters and hold the interpreter while they do,
so patterns run on RE2 here. What RE2 does not have (look-around, back references) is not checked: the pattern
was meant to help the model, and the tool sees the value in any case.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from sessions_app.agent_config.patterns import InvalidPattern, compile_pattern


def with_linear_patterns(kind: type[Validator], schema: str) -> type[Validator]:
    """The validator class with every keyword replaced that runs a pattern of `schema` (its JSON text)."""
    if '"pattern' not in schema:
        return kind
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    if '"patternProperties"' in schema:
        # It would look for the properties that patterns have covered with patterns of its own.
        keywords["unevaluatedProperties"] = _nothing
    made: type[Validator] = extend(kind, validators=keywords)  # type: ignore[no-untyped-call]
    return made


def _matches(pattern: str, text: str, *, unknown: bool) -> bool:
    try:
        return compile_pattern(pattern).search(text) is not None
    except InvalidPattern:
        return unknown


def _pattern(
    validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance, unknown=True):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, below in patterns.items():
        for key, value in instance.items():
            if _matches(pattern, key, unknown=False):
                yield from validator.descend(value, below, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    extra = [
        key
        for key in instance
        if key not in known and not any(_matches(pattern, key, unknown=True) for pattern in patterns)
    ]
    if validator.is_type(additional, "object"):
        for key in extra:
            yield from validator.descend(instance[key], additional, path=key)
    elif not additional and extra:
        yield ValidationError(f"unexpected properties: {', '.join(map(repr, sorted(extra)))}")


def _nothing(
    validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    return iter(())
