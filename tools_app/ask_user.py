"""The form that `ask_user` puts to people, and what an answer to it has to be like (H3). Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.text import clean_text
from sessions_app.tool_port import Blocks

MAX_QUESTIONS = 20
MAX_OPTIONS = 100
MAX_TEXT = 4000
MAX_LABEL = 500
MAX_ANSWER = 20_000
"""Characters of a free text."""

DESCRIPTION = (
    "Ask the people who look after this session one or several questions, and wait for their answers. "
    "Give options where the answers you can use are known; with `multiple` more than one of them can be chosen, "
    "with `allow_text` people can write something of their own. A question without options is answered in words."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_QUESTIONS,
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT},
                    "options": {
                        "type": "array",
                        "maxItems": MAX_OPTIONS,
                        "items": {
                            "type": "object",
                            "properties": {
                                "label": {"type": "string", "minLength": 1, "maxLength": MAX_LABEL},
                                "description": {"type": "string", "maxLength": MAX_TEXT},
                            },
                            "required": ["label"],
                            "additionalProperties": False,
                        },
                    },
                    "multiple": {"type": "boolean"},
                    "allow_text": {"type": "boolean"},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["questions"],
    "additionalProperties": False,
}


def form_of(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions as they are stored and shown: {text, options, multiple, allow_text}, defaults filled in.

    What can't be chosen has to be written, so a question without options always takes text.
    """
    return [
        {
            "text": question["text"],
            "options": [dict(option) for option in question.get("options") or ()],
            "multiple": bool(question.get("multiple")),
            "allow_text": bool(question.get("allow_text")) or not question.get("options"),
        }
        for question in arguments["questions"]
    ]


def read_answers(
    form: Sequence[Mapping[str, Any]], answers: Any
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The answers in their stored form, and everything that is wrong with them as {path, code, message}.

    An answer is {options: [numbers from 0], text?}. The stored form has the numbers in order and no blank text,
    so that equal answers are equal.
    """
    if not isinstance(answers, list):
        return [], [_problem("/answers", "wrong_type", "must be a list, one answer for each question")]
    if len(answers) != len(form):
        message = f"there are {len(form)} questions, so there must be {len(form)} answers, not {len(answers)}"
        return [], [_problem("/answers", "out_of_range", message)]
    stored: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    for index, (question, answer) in enumerate(zip(form, answers, strict=True)):
        read, wrong = _read_answer(question, answer, f"/answers/{index}")
        stored.append(read)
        problems += wrong
    return stored, problems


def _read_answer(
    question: Mapping[str, Any], answer: Any, path: str
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    if not isinstance(answer, dict):
        return {}, [_problem(path, "wrong_type", "must be an object {options, text?}")]
    problems = [
        _problem(f"{path}/{key}", "unknown_field", "unknown field")
        for key in answer
        if key not in {"options", "text"}
    ]
    options, wrong = _read_options(question, answer.get("options"), f"{path}/options")
    problems += wrong
    text = answer.get("text")
    if text is not None and not isinstance(text, str):
        problems.append(_problem(f"{path}/text", "wrong_type", "must be a string"))
        text = None
    text = clean_text(text).strip() if text is not None else ""
    if text and not question["allow_text"]:
        problems.append(_problem(f"{path}/text", "not_allowed", "this question takes no text, only options"))
    if len(text) > MAX_ANSWER:
        message = f"longer than {MAX_ANSWER} characters"
        problems.append(_problem(f"{path}/text", "too_long", message))
    if not problems and not options and not text:
        how = "choose an option" if question["options"] else "write an answer"
        if question["options"] and question["allow_text"]:
            how = "choose an option or write an answer"
        problems.append(_problem(path, "required", how))
    return {"options": options} | ({"text": text} if text else {}), problems


def _read_options(
    question: Mapping[str, Any], chosen: Any, path: str
) -> tuple[list[int], list[dict[str, str]]]:
    if chosen is None:
        return [], []
    if not isinstance(chosen, list):
        return [], [_problem(path, "wrong_type", "must be a list of option numbers, from 0")]
    problems = []
    count = len(question["options"])
    for index, number in enumerate(chosen):
        if isinstance(number, bool) or not isinstance(number, int):
            problems.append(_problem(f"{path}/{index}", "wrong_type", "must be the number of an option"))
        elif not 0 <= number < count:
            known = f"the options are numbered 0 to {count - 1}" if count else "this question has no options"
            problems.append(_problem(f"{path}/{index}", "out_of_range", known))
    if problems:
        return [], problems
    if len(set(chosen)) != len(chosen):
        problems.append(_problem(path, "duplicate", "an option is chosen twice"))
    if len(chosen) > 1 and not question["multiple"]:
        problems.append(_problem(path, "too_long", "only one option can be chosen"))
    return sorted(chosen), problems


def _problem(path: str, code: str, message: str) -> dict[str, str]:
    return {"path": path, "code": code, "message": message}


def content_of(form: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> Blocks:
    """The result of the call: each question with its answer, in words."""
    said = []
    for question, answer in zip(form, answers, strict=True):
        chosen = [question["options"][number]["label"] for number in answer["options"]]
        if answer.get("text"):
            chosen.append(answer["text"])
        said.append(f"{question['text']}\n{'; '.join(chosen)}")
    return [{"type": "text", "text": "\n\n".join(said)}]
