"""Storable text and JSON (S8), with the cases C29, C30, C31 and C33."""

import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.text import (
    MAX_JSON_DEPTH,
    UnstorableJson,
    clean_json,
    clean_text,
    cut_head_tail,
    json_pointer,
)

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=30)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(ANY_TEXT, children, max_size=4),
    max_leaves=12,
)


def test_a_nul_is_replaced_and_the_text_around_it_is_kept():
    """S8, C29."""
    assert clean_text("head\0tail") == "head\ufffdtail"
    assert clean_json({"k\0ey": ["v\0", {"deep\0": 1}]}) == {"k\ufffdey": ["v\ufffd", {"deep\ufffd": 1}]}


def test_text_that_only_looks_like_a_nul_escape_survives():
    """S8, C30."""
    text = "write \\u0000 or \\\\u0000 here"
    assert clean_text(text) is text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("ok \ud83d", "ok \ufffd"),
        ("\ude00 late", "\ufffd late"),
        ("\ud83dx\ude00", "\ufffdx\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\ud83d" + "\ude00", "😀"),
    ],
)
def test_lone_surrogates_are_replaced_and_rejoined_pairs_are_kept(text, stored):
    """S8, C31."""
    assert clean_text(text) == stored
    assert clean_json([text]) == [stored]


@pytest.mark.parametrize("text", ["", "plain", "größer ☃ 😀", "\ufffd", "tab\tline\n\x01\x7f\x85"])
def test_clean_text_comes_back_as_the_same_object(text):
    """S8: the hot path builds nothing."""
    assert clean_text(text) is text


def test_clean_json_comes_back_as_the_same_object():
    """S8: the hot path builds nothing."""
    value = {"a": [1, 2.5, None, True, "x", {"b": []}], "ü": {}}
    assert clean_json(value) is value


@pytest.mark.parametrize(
    ("value", "path", "name"),
    [
        ({"output": {"ratio": math.nan, "max": 1}}, "/output/ratio", "NaN"),
        ([[0, math.inf]], "/0/1", "Infinity"),
        (-math.inf, "", "-Infinity"),
        (json.loads('{"a/b": 1e999}'), "/a~1b", "Infinity"),
    ],
)
def test_nan_and_infinity_are_refused_with_their_place(value, path, name):
    """S8, C33."""
    with pytest.raises(UnstorableJson) as refused:
        clean_json(value)
    assert refused.value.errors == [{"path": path, "code": "nan", "message": refused.value.message}]
    assert name in refused.value.message


def test_nan_and_infinity_from_tools_become_null():
    """S8."""
    assert clean_json({"a": [math.nan, -math.inf, 1.5]}, on_nan="null") == {"a": [None, None, 1.5]}


def test_keys_that_become_equal_by_cleaning_lose_no_value():
    """S8."""
    cleaned = clean_json({"a\0": 1, "a\ufffd": 2, "a" + chr(0xD800): 3})
    assert sorted(cleaned.values()) == [1, 2, 3]
    assert cleaned["a\ufffd"] == 2


def test_nesting_is_bounded_without_using_up_the_stack():
    """S8."""
    value: list = []
    for _ in range(MAX_JSON_DEPTH - 1):
        value = [value]
    assert clean_json(value) is value
    for _ in range(100_000):
        value = [value]
    with pytest.raises(UnstorableJson) as refused:
        clean_json(value)
    assert refused.value.problem == "too_deep"
    while value:  # taken apart by hand: freeing it in one go is the interpreter's problem, not this test's
        value = value[0]


@pytest.mark.parametrize("value", [{1: "a"}, {"a": b"x"}, [object()]])
def test_types_that_json_lacks_are_a_mistake_of_ours(value):
    with pytest.raises(TypeError):
        clean_json(value)


@given(ANY_JSON)
def test_whatever_comes_in_can_be_stored_and_sent(value):
    """S8, C31: valid UTF-8 without U+0000, by one pass, and the input is left alone."""
    before = copy.deepcopy(value)
    cleaned = clean_json(value, on_nan="null")
    body = json.dumps(cleaned, ensure_ascii=False, allow_nan=False).encode()
    assert "\\u0000" not in body.decode().replace("\\\\", "")
    assert clean_json(cleaned) is cleaned
    assert repr(value) == repr(before)


def test_text_within_the_limit_is_not_cut():
    """S8."""
    text = "x" * 100
    assert cut_head_tail(text, 100) == (text, False)
    assert cut_head_tail(text, 100)[0] is text


def test_a_cut_keeps_both_ends_and_says_how_much_is_missing():
    """S8."""
    cut, was_cut = cut_head_tail("a" * 500 + "b" * 500, 100)
    assert was_cut
    head, mark, tail = cut.split("\n")
    assert set(head) == {"a"}
    assert set(tail) == {"b"}
    assert mark == f"[… {1000 - len(head) - len(tail)} characters left out …]"


@given(st.text(min_size=0, max_size=400), st.integers(64, 300))
def test_a_cut_never_exceeds_its_limit_and_never_splits_a_character(text, limit):
    """S8, C31."""
    cut, was_cut = cut_head_tail(text, limit)
    assert len(cut) <= limit
    assert was_cut == (len(text) > limit)
    cut.encode()


def test_a_limit_too_small_for_the_mark_is_refused():
    with pytest.raises(ValueError, match="at least 64"):
        cut_head_tail("x", 10)


def test_json_pointers_escape_their_separators():
    assert json_pointer(["tools", "a/b~c", 0]) == "/tools/a~1b~0c/0"
    assert json_pointer([]) == ""
