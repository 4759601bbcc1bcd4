"""Hostile bodies: each is refused with its place, or stored as what can be stored."""

import dataclasses
import json
from typing import Any

import pytest

from sessions_app.models import ApiKey
from tests.sessions_app.api.conftest import Api, problem


def refused(api: Api, body: bytes, code: str) -> dict[str, Any]:
    before = ApiKey.objects.count()
    document = problem(api.post("/api-keys", body), 400, code)
    assert ApiKey.objects.count() == before
    return document


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"name": {"ratio": [1, NaN]}}', "NaN"),
        (b'{"name": {"ratio": [1, Infinity]}}', "Infinity"),
        (b'{"name": {"ratio": [1, -Infinity]}}', "-Infinity"),
        (b'{"name": {"ratio": [1, 1e999]}}', "Infinity"),
    ],
)
def test_nan_and_infinity_are_refused_naming_the_place(api: Api, body: bytes, name: str) -> None:
    """C33: NaN and Infinity are 400 with the bad value's place, and nothing is stored. S8."""
    item = refused(api, body, "invalid")["errors"][0]
    assert item == {"path": "/name/ratio/1", "code": "nan", "message": f"{name} is not a JSON number"}


def test_broken_json_is_400_with_line_and_column(api: Api) -> None:
    document = refused(api, b'{\n  "name": "x",\n  oops}', "malformed")
    assert (document["line"], document["column"]) == (3, 3)


@pytest.mark.parametrize("body", [b"{", b"nul", b'{"a":}', b"'a'", b'{"a": 1} x', b"[1,]", b'"\x01"', b" "])
def test_what_is_not_json_is_400(api: Api, body: bytes) -> None:
    refused(api, body, "malformed")


def test_a_key_that_stands_twice_is_named_with_its_place(api: Api) -> None:
    document = refused(api, b'{"name": [{"a": 1}, {"b": 1, "a/b": 2, "a/b": 3}]}', "malformed")
    assert document["errors"][0]["path"] == "/name/1/a~1b"
    assert document["errors"][0]["code"] == "duplicate_key"


@pytest.mark.parametrize("body", [b'{"name": "\xff"}', b"\xfe\xff\x00{", b'{"name": "\xed\xa0\x80"}'])
def test_bytes_that_are_not_utf8_are_400(api: Api, body: bytes) -> None:
    assert refused(api, body, "malformed")["errors"][0]["code"] == "not_utf8"


@pytest.mark.parametrize("depth", [202, 5_000, 100_000, 1_000_000])
def test_deep_nesting_is_400_and_costs_no_stack(api: Api, depth: int) -> None:
    assert problem(api.post("/api-keys", b"[" * depth + b"]" * depth), 400, _code(depth))["errors"]


def _code(depth: int) -> str:
    # Where the decoder itself gives up depends on the interpreter; both are 400.
    from sessions_app.api.parsers import Malformed, loads
    from sessions_app.errors import Invalid

    try:
        loads(b"[" * depth + b"]" * depth)
    except Malformed:
        return "malformed"
    except Invalid:
        return "invalid"
    raise AssertionError


def test_integers_with_too_many_digits_are_400(api: Api) -> None:
    assert (
        refused(api, b'{"name": ' + b"9" * 5000 + b"}", "malformed")["errors"][0]["code"] == "too_many_digits"
    )


def test_a_body_over_the_limit_is_413(api: Api, settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, max_body_bytes=1024)
    problem(api.post("/api-keys", {"name": "x" * 2000}), 413, "too_large")
    problem(api.post("/configs", {"instructions": "x" * 2000, "model": "scripted:x"}), 413, "too_large")


def test_what_postgresql_cannot_store_is_replaced(api: Api) -> None:
    """S8: U+0000 and lone surrogates become U+FFFD; a pair in two escapes is one character."""
    made = api.post("/api-keys", b'{"name": "a\\u0000b\\ud800c\\ud83d\\ude00"}')
    assert made.status_code == 201
    assert made.json()["name"] == "a\ufffdb\ufffdc\U0001f600"


def test_a_byte_order_mark_is_overlooked(api: Api) -> None:
    assert api.post("/api-keys", b"\xef\xbb\xbf" + json.dumps({"name": "x"}).encode()).status_code == 201
