"""Conditions on one JSON value."""

import json

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.database import dumps
from tests.tools_app.permissions.calls import then
from tools_app.permissions import digest
from tools_app.permissions.digests import same

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-9, 9).map(lambda x: round(x, 1))
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def matches(matcher: dict, value: object) -> bool:
    return then([{"tool": "t", "arguments": {"a": matcher}, "then": "allow"}], "t", {"a": value}) == "allow"


@pytest.mark.parametrize(
    ("wanted", "value", "equal"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1.0, 1, True),
        (1, True, False),
        (True, 1, False),
        (0, False, False),
        (0, -0.0, True),
        (0, None, False),
        (None, None, True),
        (None, "", False),
        ("1", 1, False),
        ("a", "a", True),
        ("a", "A", False),
        ("é", "e\u0301", False),
        ([], {}, False),
        ([1, [True]], [1.0, [True]], True),
        ([1, [True]], [1, [1]], False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        (2**53 - 1, float(2**53 - 1), True),
    ],
)
def test_values_are_equal_as_json(wanted, value, equal):
    """T7"""
    assert matches({"equals": wanted}, value) is equal
    assert matches({"in": ["x", wanted]}, value) is equal
    assert (digest(wanted) == digest(value)) is equal


@given(JSON, JSON)
def test_equal_values_have_one_digest_and_others_have_others(left, right):
    """T7"""
    assert same(left, left)
    assert same(left, right) == (digest(left) == digest(right))
    assert same(left, right) == same(right, left)


@pytest.mark.parametrize("value", [1e16, 1e300, 123456789012345678, 0.1, 1e-7, -0.0, {"b": [1.0], "a": "é"}])
@pytest.mark.django_db
def test_a_value_keeps_its_digest_in_the_database(value):
    """T7: what was approved is what is compared, whatever the database made of its numbers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [dumps(value)])
        (stored,) = cursor.fetchone()
    assert digest(json.loads(stored)) == digest(value)


@pytest.mark.parametrize(
    ("matcher", "value", "fits"),
    [
        ({"starts_with": "ab"}, "abc", True),
        ({"starts_with": "ab"}, "ab", True),
        ({"starts_with": ["x", "ab"]}, "abc", True),
        ({"starts_with": "ab"}, "a", False),
        ({"starts_with": "ab"}, "AB", False),
        ({"starts_with": "a b"}, "a  b", False),
        ({"starts_with": "a"}, ["a"], False),
        ({"starts_with": "1"}, 1, False),
        ({"matches": "a+"}, "aaa", True),
        ({"matches": "a+"}, "aab", False),
        ({"matches": "a+"}, "baa", False),
        ({"matches": "a|ab"}, "ab", True),
        ({"matches": "a+"}, "aa\n", False),
        ({"matches": ".*"}, "a\nb", False),
        ({"matches": "(?i)A"}, "a", True),
        ({"matches": "1"}, 1, False),
        ({"matches": ".*", "starts_with": "x"}, "y", False),
    ],
)
def test_conditions_on_text(matcher, value, fits):
    """T7: only text fulfils them; regular expressions are anchored at both ends."""
    assert matches(matcher, value) is fits


def test_a_deny_looks_into_lists_of_texts():
    """T7: an allow does not."""
    rules = [{"tool": "t", "arguments": {"a": {"matches": "x.*"}}, "then": "deny"}]
    assert then(rules, "t", {"a": ["y", ["xy"]]}, default="allow") == "deny"
    assert then(rules, "t", {"a": ["y"]}, default="allow") == "allow"
    assert not matches({"matches": "x.*"}, ["xy"])


@pytest.mark.parametrize(
    ("matcher", "value"),
    [
        ({"host": "evil.com"}, "https://docs.example.com/" + "a" * 8192),
        ({"under": "/etc"}, "/srv/" + "a" * 8192),
        ({"matches": "x"}, [f"y{number}" for number in range(201)]),
        ({"matches": "x"}, ["y"] * 300 + ["x"]),
    ],
)
def test_what_is_too_long_to_be_read_could_be_anything(matcher, value):
    """T7: nobody can make the rules work for minutes, or hide behind what is not looked at."""
    rules = [{"tool": "t", "arguments": {"a": matcher}, "then": "deny"}]
    assert then(rules, "t", {"a": value}, default="allow") == "deny"
    assert not matches(matcher, value)


@pytest.mark.parametrize("matcher", [{"host": "docs.example.com"}, {"under": "/srv"}])
def test_what_is_too_long_to_be_read_is_not_allowed(matcher):
    """T7"""
    assert not matches(matcher, "https://docs.example.com/" + "a" * 8192)
    assert not matches(matcher, "/srv/" + "a" * 8192)
