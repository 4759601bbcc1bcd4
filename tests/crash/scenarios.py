"""What the crash tests play: one scripted agent for each class of tool, and where each of them can die."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EVERYWHERE = (
    "claim.before",
    "claim.committed",
    "load.done",
    "step.locked",
    "step.written",
    "step.committed",
    "model.before",
    "model.streaming",
    "model.after",
    "release.before",
)
_OUTSIDE = ("tool.before", "tool.after")
_INTERNAL = ("internal.before", "internal.effect", "internal.committed")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`replies` may hold `{case}`, which makes the traces of one case its own."""

    replies: tuple[dict[str, Any], ...]
    points: tuple[str, ...]
    tools: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    """Tools whose calls a person has to allow first."""

    skills: tuple[str, ...] = ()
    """Skills that the config lists and that exist."""

    limits: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    steps: int
    """How many steps a worker commits for the first input and the second."""

    again: Mapping[str, int] | None = None
    """Points to die at also the second to this time, beside the steps."""

    waits: bool = False
    """It waits for people, who answer at once; a worker lets go of it then."""

    slow: int = 0
    """The reply that takes its time where a worker is asked to stop while it waits for one."""

    def document(self, case: str, *, delay: float | None = None) -> dict[str, Any]:
        replies = [_named(reply, case) for reply in self.replies]
        if delay:
            replies[self.slow] = replies[self.slow] | {"delay": delay}
        document: dict[str, Any] = {
            "instructions": "Be brief.",
            "model": {"provider": "scripted", "name": "crash"},
            "tools": {tool: _CUSTOM.get(tool, {}) for tool in self.tools},
            "script": {"replies": replies},
        }
        if self.asks:
            document["permissions"] = [{"tool": tool, "then": "ask"} for tool in self.asks]
        if self.skills:
            document["skills"] = list(self.skills)
        if self.limits:
            document["limits"] = dict(self.limits)
        return document | ({"output_schema": dict(self.output_schema)} if self.output_schema else {})

    def cuts(self) -> list[str]:
        """Every place to die at, as `TENURE_CRASH_AT` says it."""
        again = {"model.before": 2, **(self.again or {})}
        later = [f"{point}:{time}" for point, times in again.items() for time in range(2, times + 1)]
        steps = [f"{point}:{time}" for point in STEPS for time in range(2, self.steps + 1)]
        return [*self.points, *later, *steps]


_CUSTOM = {
    "file_ticket": {
        "class": "custom",
        "description": "File a ticket.",
        "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}},
    }
}

STEPS = ("step.locked", "step.written", "step.committed")


def _named(value: Any, case: str) -> Any:
    if isinstance(value, str):
        return value.replace("{case}", case)
    if isinstance(value, dict):
        return {key: _named(item, case) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item, case) for item in value]
    return value


def _call(name: str, number: int) -> dict[str, Any]:
    # Different delays: results that are never there together, so the number of steps is always the same.
    arguments = {
        "set_label": {"key": f"label{number}", "value": "set"},
        "update_todos": {"todos": [{"text": f"todo {number}", "state": "in_progress"}]},
        "skill": {"name": "notes"},
        "create_skill": {"name": "{case}." + str(number), "description": "New.", "instructions": "Do it."},
        "dev_append": {"file": "{case}." + str(number), "delay": 0.1 * number},
        "file_ticket": {"title": f"Ticket {number}"},
        "ask_user": {"questions": [{"text": f"Question {number}?", "options": [{"label": "Yes"}]}]},
        "dev_lookup": {"key": "{case}." + str(number), "delay": 0.23 * number},
    }
    return {"name": name, "arguments": arguments[name]}


def _calls(*names: str, start: int = 0) -> list[dict[str, Any]]:
    return [_call(name, number) for number, name in enumerate(names, start=start)]


def _of_one_class(tool: str, other: str | None = None) -> tuple[dict[str, Any], ...]:
    return (
        {"text": "First.", "tool_calls": _calls(tool)},
        {"reasoning": "Two at once.", "tool_calls": _calls(other or tool, tool, start=1)},
        {"text": "Done."},
        {"text": "The second answer."},
    )


SCENARIOS = {
    "no tools": Scenario(
        replies=({"reasoning": "Hm.", "text": "The first answer."}, {"text": "The second answer."}),
        points=_EVERYWHERE,
        steps=3,
    ),
    "internal": Scenario(
        replies=_of_one_class("set_label", "update_todos"),
        points=(*_EVERYWHERE, *_INTERNAL),
        tools=("set_label", "update_todos"),
        steps=7,
        again=dict.fromkeys(_INTERNAL, 3),
    ),
    "outside": Scenario(
        replies=_of_one_class("dev_append"),
        points=(*_EVERYWHERE, *_OUTSIDE),
        tools=("dev_append",),
        steps=8,
        again=dict.fromkeys(_OUTSIDE, 3),
    ),
    "outside, rerun_safe": Scenario(
        replies=_of_one_class("dev_lookup"),
        points=(*_EVERYWHERE, *_OUTSIDE),
        tools=("dev_lookup",),
        steps=8,
        again=dict.fromkeys(_OUTSIDE, 3),
    ),
    "one batch of all": Scenario(
        replies=(
            {"text": "All.", "tool_calls": _calls("dev_append", "set_label", "dev_lookup", "set_label")},
            {"text": "Done."},
            {"text": "The second answer."},
        ),
        points=(*_EVERYWHERE, *_OUTSIDE, *_INTERNAL),
        tools=("dev_append", "dev_lookup", "set_label"),
        steps=6,
        again=dict.fromkeys(_INTERNAL, 2) | dict.fromkeys(_OUTSIDE, 2),
    ),
    "human": Scenario(
        replies=_of_one_class("ask_user"),
        points=_EVERYWHERE,
        tools=("ask_user",),
        waits=True,
        steps=7,
        again={"release.before": 2},
    ),
    "custom": Scenario(
        replies=_of_one_class("file_ticket"),
        points=_EVERYWHERE,
        tools=("file_ticket",),
        waits=True,
        steps=7,
        again={"release.before": 2},
    ),
    "approved": Scenario(
        replies=(
            {"text": "All.", "tool_calls": _calls("dev_append", "set_label", "dev_lookup", "set_label")},
            {"text": "Done."},
            {"text": "The second answer."},
        ),
        points=(*_EVERYWHERE, *_OUTSIDE, *_INTERNAL),
        tools=("dev_append", "dev_lookup", "set_label"),
        asks=("dev_*", "set_label"),
        waits=True,
        steps=7,
    ),
    "asked at a limit": Scenario(
        replies=(
            {"text": "First.", "tool_calls": _calls("set_label")},
            {"text": "Done."},
            {"text": "The second."},
        ),
        points=(*_EVERYWHERE, *_INTERNAL),
        tools=("set_label",),
        limits={"turn": {"model_calls": 1}, "on_limit": "ask"},
        waits=True,
        steps=6,
    ),
    "skills": Scenario(
        replies=_of_one_class("skill", "create_skill"),
        points=(*_EVERYWHERE, *_INTERNAL),
        tools=("create_skill",),  # a person reviews what it writes
        skills=("notes",),
        waits=True,
        steps=7,
        again=dict.fromkeys(_INTERNAL, 3),
    ),
    "failing model": Scenario(
        replies=(
            {"error": {"status": 529}},
            {"text": "Cut off in the middle of it.", "cut": True},
            {"text": "The first answer."},
            {"text": "The second answer."},
        ),
        points=_EVERYWHERE,
        steps=7,
        slow=2,
    ),
    "an answer that does not fit": Scenario(
        replies=({"text": "It is one."}, {"text": '{"n": 1}'}, {"text": '{"n": 2}'}),
        points=_EVERYWHERE,
        output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        steps=4,
        again={"model.before": 3, "model.streaming": 3, "model.after": 3},
    ),
    "compaction": Scenario(
        replies=(
            {"text": "The first answer, which is long enough to be worth a summary. " * 4},
            {"error": {"status": 400, "code": "context_length_exceeded"}},
            {"text": "What was said so far."},
            {"text": "The second answer."},
        ),
        points=_EVERYWHERE,
        steps=5,
        again={"model.before": 4, "model.streaming": 3, "model.after": 3},
    ),
}
