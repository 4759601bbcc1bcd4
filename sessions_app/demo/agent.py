"""The demo's agent: one set of tools, and either a script that plays its part or a real model that is asked to.

Both do the same work in two turns, so that the same things can happen to their workers: look up, append (the
tool whose effect nobody may repeat), look again, label.
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


@dataclass(frozen=True, slots=True)
class Names:
    """What this run calls its things, so that runs don't meet, not even in what an earlier one left unfinished."""

    file: str
    before: str
    during: str
    after: str


def names(run: str) -> Names:
    return Names(file=f"ledger-{run}", before=f"stock-{run}", during=f"price-{run}", after=f"check-{run}")


def first_input(things: Names) -> str:
    return (
        "Set the label phase to counting. "
        f"Then look up {things.before} with dev_lookup. "
        f"Then append to the file {things.file} with dev_append, with a delay of 3 seconds. "
        f"Then look up {things.after} and tell me that you are done."
    )


def second_input() -> str:
    return "Set the label phase to done and tell me so."


def document(model: Json | None, things: Names) -> Json:
    """The agent config; `model` is None for the scripted agent."""
    base: Json = {
        "version": 1,
        "instructions": INSTRUCTIONS,
        "tools": _TOOLS,
        "permissions": _PERMISSIONS,
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
