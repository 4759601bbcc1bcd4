"""The demo's agent: one set of tools, and either a script that plays its part or a real model that is asked to.

Both do the same work in three turns, so that the same things can happen to their workers: look up, append (the
tool whose effect nobody may repeat), look again; label; and at last what others have a say in, a call that a
person has to allow, a question, and a tool of the team's own backend.
"""

from dataclasses import dataclass
from typing import Any

type Json = dict[str, Any]

INSTRUCTIONS = (
    "You take stock in a small shop. Do the steps that you are asked for in their order, one tool call at a time, "
    "and say in one short sentence what you do. Never repeat a dev_append whose outcome is unknown."
)
MODEL_SECONDS = 2
APPEND_DELAY = 1.5
LOOKUP_DELAY = 2.5

_TOOLS: Json = {"set_label": {}, "dev_append": {}, "dev_lookup": {}}
_PERMISSIONS = [{"tool": "dev_append", "then": "allow"}, {"tool": "dev_lookup", "then": "allow"}]
_OF_OTHERS: Json = {
    "ask_user": {},
    "order_part": {
        "class": "custom",
        "description": "Order a part from the supplier; the team's backend does it and reports back.",
        "input_schema": {
            "type": "object",
            "properties": {"part": {"type": "string"}},
            "required": ["part"],
        },
    },
}
QUESTION = {"text": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}


@dataclass(frozen=True, slots=True)
class Names:
    """What this run calls its things, so that runs don't meet, not even in what an earlier one left unfinished."""

    file: str
    before: str
    during: str
    after: str
    allowed: str  # what is looked up only once a person has allowed it


def names(run: str) -> Names:
    return Names(
        file=f"ledger-{run}",
        before=f"stock-{run}",
        during=f"price-{run}",
        after=f"check-{run}",
        allowed=f"supplier-{run}",
    )


def first_input(things: Names) -> str:
    return (
        "Set the label phase to counting. "
        f"Then look up {things.before} with dev_lookup. "
        f"Then append to the file {things.file} with dev_append, with a delay of 3 seconds. "
        f"Then look up {things.after} and tell me that you are done."
    )


def second_input() -> str:
    return "Set the label phase to done and tell me so."


def third_input(things: Names) -> str:
    return (
        f"In one reply, look up {things.allowed} with dev_lookup and a delay of 2 seconds, ask with ask_user which "
        "colour (Red or Blue), and order the part wheel with order_part. Then tell me what came of it."
    )


def document(model: Json | None, things: Names) -> Json:
    """The agent config; `model` is None for the scripted agent."""
    base: Json = {
        "version": 1,
        "instructions": INSTRUCTIONS,
        "tools": _TOOLS | _OF_OTHERS,
        "permissions": [
            {"tool": "dev_lookup", "arguments": {"key": {"matches": "supplier.*"}}, "then": "ask"},
            *_PERMISSIONS,
        ],
    }
    if model is not None:
        return base | {"model": model}
    return base | {"model": "scripted:demo", "script": {"replies": _replies(things)}}


def _replies(things: Names) -> list[Json]:
    return [
        {
            "text": "I start counting.",
            "delay": 0.3,
            "tool_calls": [_label("counting"), _lookup(things.before)],
        },
        # Here a loop is killed: this reply is asked for twice and saved once.
        {
            "text": "Now the price, and one line into the ledger.",
            "delay": MODEL_SECONDS,
            # Here a whole tree is killed, when the byte is written and its result is not.
            "tool_calls": [
                _lookup(things.during, delay=LOOKUP_DELAY),
                {"name": "dev_append", "arguments": {"file": things.file, "delay": APPEND_DELAY}},
            ],
        },
        {
            "when": {"contains": "interrupted"},
            "text": "Nobody knows whether the line was written, so I look instead of writing it twice.",
            "delay": 0.3,
            "tool_calls": [_lookup(things.after)],
        },
        {"text": "The line is there. Counted."},
        # Here a runworker is told to stop: this reply is still saved, by the one that stops.
        {"text": "I close the count.", "delay": MODEL_SECONDS, "tool_calls": [_label("done")]},
        {"text": "Done.", "delay": 0.3},
        # Here the session waits for three answers, and a loop is killed while they come.
        {
            "text": "That is not mine alone to decide.",
            "delay": 0.3,
            "tool_calls": [
                _lookup(things.allowed, delay=LOOKUP_DELAY),
                {"name": "ask_user", "arguments": {"questions": [QUESTION]}},
                {"name": "order_part", "arguments": {"part": "wheel"}},
            ],
        },
        {"text": "The supplier is known, the colour is chosen, the wheel is ordered.", "delay": 0.3},
    ]


def _label(phase: str) -> Json:
    return {"name": "set_label", "arguments": {"key": "phase", "value": phase}}


def _lookup(key: str, *, delay: float = 0) -> Json:
    return {"name": "dev_lookup", "arguments": {"key": key, "delay": delay}}


def answering_document(model: Json | None) -> Json:
    """The agent of `make run`: answers whatever it is told, again and again."""
    base: Json = {
        "version": 1,
        "instructions": "Answer briefly. Use your tools when they help.",
        "tools": _TOOLS,
        "permissions": _PERMISSIONS,
    }
    if model is not None:
        return base | {"model": model}
    replies: list[Json] = [
        {
            "text": "Let me look that up.",
            "tool_calls": [_label("looking"), _lookup("greeting")],
        },
        {"text": "I am a scripted agent: this answer was written beforehand, everything around it is real."},
    ]
    return base | {"model": "scripted:demo", "script": {"replies": replies, "loop": True}}
