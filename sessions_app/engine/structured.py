"""Structured answers: the reply that ends a turn, held against the config's `output_schema`. Pure.

The reply is saved as the model gave it; what it means stands beside it: `output`, the value as a data block,
or `invalid_output`, what is wrong with it. The first answer of a turn that does not fit is followed by a note
that tells the model and whoever reads the log what was wrong, and the model is asked again; the second ends
the turn (`invalid_output`). Both steps are in the log, so a crash in between changes nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.schema_validation import Unusable, problems_with, validator_for_schema
from sessions_app.text import UnstorableJson, clean_json

ASKS = 2
"""How often a turn asks for its answer in all."""
_FENCE = "```"
_LONGEST_PROBLEM = 2000


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a reply: its value, or the problem with it."""

    value: Any = None
    problem: str | None = None

    def data(self) -> dict[str, Any]:
        """What the `assistant_message` entry says of it."""
        if self.problem is not None:
            return {"invalid_output": self.problem}
        return {"output": [{"type": "data", "value": self.value}]}


def read(schema: Mapping[str, Any], content: Sequence[Mapping[str, Any]]) -> Answer:
    """The answer in the text of a reply."""
    text = "".join(block["text"] for block in content if block["type"] == "text")
    try:
        value = clean_json(json.loads(_without_fence(text)), on_nan="null")
    except (ValueError, RecursionError) as error:
        return _wrong(f"it is not JSON: {error}")
    except UnstorableJson as error:
        return _wrong(error.message)
    try:
        problems = problems_with(validator_for_schema(schema), value)
    except Unusable:
        return _wrong("the schema can't be applied to it")
    return Answer(value=value) if problems is None else _wrong(problems)


def ask_again(problem: str) -> dict[str, Any]:
    """The data of the note behind an answer that does not fit."""
    text = (
        f"The answer does not fit the schema that was asked for: {problem}\n"
        "Answer again, with a JSON value that fits the schema and nothing else."
    )
    return {"text": text, "to_model": True}


def _wrong(problem: str) -> Answer:
    return Answer(problem=problem if len(problem) <= _LONGEST_PROBLEM else problem[:_LONGEST_PROBLEM] + "…")


def _without_fence(text: str) -> str:
    """Models that are only told the schema like to dress their JSON up as a code block."""
    stripped = text.strip()
    if stripped.startswith(_FENCE) and stripped.endswith(_FENCE) and "\n" in stripped:
        return stripped[stripped.index("\n") : -len(_FENCE)]
    return stripped
