"""Structured answers."""

import pytest

from sessions_app.engine import structured
from sessions_app.engine.structured import Answer, ask_again

SCHEMA = {
    "type": "object",
    "properties": {
        "priority": {"type": "string", "enum": ["low", "high"]},
        "n": {"type": ["number", "null"]},
    },
    "required": ["priority"],
    "additionalProperties": False,
}


def read(*texts: str) -> Answer:
    return structured.read(SCHEMA, [{"type": "text", "text": text} for text in texts])


@pytest.mark.parametrize(
    "texts",
    [
        ['{"priority": "low"}'],
        ['  {"priority":', ' "low"}\n'],
        ['```json\n{"priority": "low"}\n```'],
        ['```\n{"priority": "low"}\n```\n'],
    ],
)
def test_an_answer_that_fits_is_a_data_block(texts):
    answer = read(*texts)
    assert answer.problem is None
    assert answer.data() == {"output": [{"type": "data", "value": {"priority": "low"}}]}


def test_reasoning_is_no_part_of_the_answer():
    blocks = [{"type": "reasoning", "text": "Hm"}, {"type": "text", "text": '{"priority": "high"}'}]
    assert structured.read(SCHEMA, blocks).value == {"priority": "high"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("It is low.", "not JSON"),
        ('{"priority": "low"', "not JSON"),
        ("```", "not JSON"),
        ('{"priority": "middle"}', "at /priority"),
        ("{}", "priority"),
        ('{"priority": "low", "more": 1}', "more"),
        ("[1]", "object"),
        ("[" * 100_000, "not JSON"),
        ('{"n":' * 300 + "1" + "}" * 300, "deep"),
    ],
)
def test_what_does_not_fit_is_said_in_words(text, said):
    """The model acts on them."""
    answer = read(text)
    assert answer.problem is not None
    assert said in answer.problem
    assert answer.data() == {"invalid_output": answer.problem}
    note = ask_again(answer.problem)
    assert answer.problem in note["text"]
    assert note["to_model"] is True


def test_what_json_cannot_say_is_null():
    """S8."""
    assert read('{"priority": "low", "n": NaN}').value == {"priority": "low", "n": None}


def test_a_hostile_pattern_takes_no_time():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    answer = structured.read(schema, [{"type": "text", "text": '{"a": "' + "a" * 40 + '!"}'}])
    assert answer.problem is not None


def test_a_long_problem_is_cut():
    schema = {"type": "object", "properties": {"a": {"enum": ["x" * 5000]}}}
    answer = structured.read(schema, [{"type": "text", "text": '{"a": "' + "y" * 5000 + '"}'}])
    assert answer.problem is not None
    assert len(answer.problem) < 2100
