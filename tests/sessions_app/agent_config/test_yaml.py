"""Reading YAML and JSON documents: JSON types only, and nothing that two readers understand differently."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agent_config.yaml import UnreadableDocument, load_json, load_yaml

# libyaml knows no surrogate pairs in escapes, the one place where it doesn't read all of JSON.
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Cc"]), max_size=10)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+1", 1),
        ("-3", -3),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ('"1"', "1"),
        ("'true'", "true"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("! 1", "1"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("\ufeffa: 1", {"a": 1}),
    ],
)
def test_yaml_is_read_by_the_core_schema(text, value):
    loaded = load_yaml(text.encode())
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("text", "problem", "line", "column"),
    [
        ("a: 1\na: 2", "stands twice", 2, 1),
        ("a: 1\n'a': 2", "stands twice", 2, 1),
        ("b: 1\n1: a", "key must be text", 2, 1),
        ("? [a]\n: b", "key must be text", 1, 5),
        ("a: .nan", "not a JSON number", 1, 4),
        ("a:\n  - -.inf", "not a JSON number", 2, 5),
        ("1e999", "too large for a number", 1, 1),
        ("9" * 500, "too many digits", 1, 1),
        ("--- 1\n--- 2", "more than one document", 2, 1),
        ("a: !!binary aGk=", "no meaning in JSON", 1, 4),
        ("a: !!timestamp 2024-01-01", "no meaning in JSON", 1, 4),
        ("a: !!python/object/apply:os.getpid []", "no meaning in JSON", 1, 4),
        ("a: !!set {x}", "no meaning in JSON", 1, 4),
        ("a: !!int x", "no meaning in JSON", 1, 4),
        ("a: &x [*x]", "contains itself", 1, 8),
        ("a: *x", "stands for nothing", 1, 4),
        ("a: b: c", "not allowed", 1, 5),
        ("a: [", "node content", 2, 1),
        ("[" * 70 + "]" * 70, "nested more than 64", 1, 65),
    ],
)
def test_what_can_not_be_read_is_told_with_its_place(text, problem, line, column):
    with pytest.raises(UnreadableDocument, match=problem) as refused:
        load_yaml(text)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert refused.value.data == {"line": line, "column": column}


def test_aliases_that_multiply_are_refused():
    lines = ["a0: &a0 [x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 4)}]" for level in range(1, 30)]
    with pytest.raises(UnreadableDocument, match="aliases written out"):
        load_yaml("\n".join(lines))
    long_text = "a: &a " + "x" * 100_000 + "\n" + "\n".join(f"b{number}: *a" for number in range(1000))
    with pytest.raises(UnreadableDocument, match="aliases written out"):
        load_yaml(long_text)


@pytest.mark.parametrize("data", [b"a: \xff", b"a: \x00", "a: \ud800", b"x" * (1 << 20) + b"x"])
@pytest.mark.parametrize("load", [load_yaml, load_json])
def test_bytes_that_are_no_document_are_refused(load, data):
    with pytest.raises(UnreadableDocument):
        load(data)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('[{"b": {"c": 1, "c": 1}}]', "'c' stands twice"),
        ("[NaN]", "NaN is not"),
        ("[-Infinity]", "-Infinity is not"),
        ("[1e999]", "too large"),
        ("9" * 5000, "too many digits"),
        ("[" * 200_000, "too deeply"),
        ("", "Expecting value"),
    ],
)
def test_json_that_two_readers_understand_differently_is_refused(text, problem):
    with pytest.raises(UnreadableDocument, match=problem):
        load_json(text)


def test_a_mistake_in_json_is_told_with_its_place():
    with pytest.raises(UnreadableDocument) as refused:
        load_json('{\n  "a": 1,\n}')
    assert refused.value.line in {2, 3}  # the interpreter's versions point at the comma or at the brace
    assert refused.value.status == 400


@given(JSON_VALUES)
def test_every_json_document_is_the_same_in_yaml(value):
    text = json.dumps(value)
    assert load_yaml(text) == load_json(text) == value
