"""JSON Schemas in an agent config: checked when the config is made, so that no session fails on one later.

A schema must describe an object (what the providers' tools and structured outputs take), be valid in its
dialect, and be whole: a reference to another document would be fetched by whoever validates with it.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from pydantic import AfterValidator, StrictStr
from pydantic_core import PydanticCustomError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from sessions_app.text import json_pointer

_DIALECTS = {
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
}
_NEWEST = "https://json-schema.org/draft/2020-12/schema"
MAX_REFERENCES = 1000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, or a pydantic error with code `invalid_schema` that names the place inside it."""
    dialect = schema.get("$schema", _NEWEST)
    if not isinstance(dialect, str) or dialect.rstrip("#") not in _DIALECTS:
        raise _invalid("/$schema", "an unknown dialect; use draft 2020-12, 2019-09 or 7")
    try:
        validator_for({"$schema": dialect}).check_schema(schema)
    except SchemaError as error:
        raise _invalid(json_pointer(error.absolute_path), error.message) from None
    if schema.get("type", "object") != "object":
        raise _invalid("/type", "must be object")
    _check_references(schema)
    return schema


def _check_references(schema: dict[str, Any]) -> None:
    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    known: set[str] = set()
    for path, reference in _references(schema, ()):
        if reference in known:
            continue
        known.add(reference)
        if len(known) > MAX_REFERENCES:
            raise _invalid(json_pointer(path), f"more than {MAX_REFERENCES} different references")
        if not reference.startswith("#"):
            raise _invalid(json_pointer(path), "refers to another document")
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise _invalid(json_pointer(path), f"there is nothing at {reference}") from None


def _references(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _REFERENCES and isinstance(item, str):
                yield (*path, key), item
            yield from _references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*path, index))


def _invalid(place: str, message: str) -> PydanticCustomError:
    shown = message if len(message) <= 300 else message[:300] + "…"
    return PydanticCustomError(
        "invalid_schema", "not a valid JSON Schema for an object: at {place}: {message}",
        {"place": place or "/", "message": shown},
    )  # fmt: skip


ObjectSchema = Annotated[dict[StrictStr, Any], AfterValidator(check_object_schema)]
