"""Schemas that would keep a worker busy for ever, and values that they are held against."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.json_schema import MAX_REFERENCES, check_object_schema
from sessions_app.schema_validation import Unusable, problems_with, validator_for_schema


def held_against(schema: Mapping[str, Any], value: Any) -> str | None:
    begun = time.process_time()
    try:
        return problems_with(validator_for_schema(schema), value)
    finally:
        assert time.process_time() - begun < 20  # each of these took minutes or longer


def test_references_that_double_at_each_level_are_given_up() -> None:
    levels = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    schema = {"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": {**levels, "a40": {"type": "string"}}}
    with pytest.raises(Unusable, match="steps"):
        held_against(schema, {"x": 5})
    assert held_against(schema, {"x": "text"}) is None, "the count begins anew with each value"


def test_many_alternatives_for_many_items_are_given_up() -> None:
    schema = {"items": {"enum": list(range(20_000))}}
    with pytest.raises(Unusable, match="steps"):
        held_against(schema, [19_999] * 3000)


def test_a_part_that_names_a_dialect_still_runs_its_patterns_in_linear_time() -> None:
    for dialect in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema"):
        schema = {"properties": {"a": {"$schema": dialect, "pattern": "^(a+)+$"}}}
        assert held_against(schema, {"a": "a" * 60 + "!"}) is not None
        assert held_against(schema, {"a": "a" * 60}) is None


def test_an_array_of_many_kinds_is_found_unique_in_one_pass() -> None:
    many = [item for number in range(30_000) for item in (number, str(number))]
    assert held_against({"uniqueItems": True}, many) is None
    assert held_against({"uniqueItems": True}, [*many, 7]) is not None


@pytest.mark.parametrize(
    ("array", "unique"),
    [
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        ([1, 1.0], False),
        ([[1], [1.0]], False),
        ([[1], [True]], True),
        ([{"a": 1, "b": [2]}, {"b": [2], "a": 1}], False),
        ([{"a": 1}, {"a": 1, "b": 1}], True),
        ([["a", 1], {"a": 1}], True),
    ],
)
def test_equal_means_what_json_schema_means(array: list[Any], unique: bool) -> None:
    assert (held_against({"uniqueItems": True}, array) is None) is unique


def test_ordinary_values_of_some_size_fit_an_ordinary_schema() -> None:
    item = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"items": {"type": "string"}}},
    }
    schema = {"$defs": {"item": item}, "items": {"$ref": "#/$defs/item"}}
    assert held_against(schema, [{"id": n, "tags": ["a", "b"]} for n in range(5000)]) is None


def test_a_config_names_a_bounded_number_of_references() -> None:
    same = {f"p{n}": {"$ref": "#/$defs/a"} for n in range(5000)}
    check_object_schema({"type": "object", "properties": same, "$defs": {"a": {}}})
    chain = {f"p{n}": {"$ref": f"#/properties/p{n + 1}"} for n in range(MAX_REFERENCES + 1)}
    with pytest.raises(PydanticCustomError, match="different references"):
        check_object_schema({"type": "object", "properties": {**chain, f"p{MAX_REFERENCES + 1}": {}}})
