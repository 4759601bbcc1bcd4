"""The demo's own checks notice what they are for: each is shown a log with one thing wrong."""

from pathlib import Path
from typing import Any

import pytest

from sessions_app.demo import agent, checks
from sessions_app.demo.api import Json

THINGS = agent.names("run")


class Followed:
    """As much of a follower as the checks look at."""

    def __init__(self, entries: list[Json]) -> None:
        self.entries = entries

    def of_kind(self, kind: str) -> list[Json]:
        return [entry for entry in self.entries if entry["kind"] == kind]


def entries(**changes: list[dict[str, Any]]) -> list[Json]:
    """The log of a demo that went as it should, as far as it is looked at."""
    log = {
        "user_message": [{}, {}, {}],
        "turn_ended": [{"status": "succeeded"}] * 3,
        "session_resumed": [{"reason": reason} for reason in ("crash", "crash", "drain", "crash")],
        "approval_decided": [{}],
        "question_answered": [{}],
        "tool_result": [{"name": name, "outcome": "succeeded"} for name in ("ask_user", "order_part")],
    } | changes
    return [{"kind": kind, "data": data} for kind, rows in log.items() for data in rows]


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    (tmp_path / THINGS.file).write_text(".")
    (tmp_path / f"lookup.{THINGS.during}").write_text("..")
    (tmp_path / f"lookup.{THINGS.allowed}").write_text("..")
    return tmp_path


def wrong(effects: Path, label: str = "done", **changes: list[dict[str, Any]]) -> list[str]:
    followed: Any = Followed(entries(**changes))
    return checks.promised(followed, {"labels": {"phase": label}}, effects, THINGS)


def test_a_demo_that_went_as_it_should_has_nothing_wrong(effects: Path) -> None:
    assert wrong(effects) == []


def test_an_effect_that_happened_twice_is_noticed(effects: Path) -> None:
    (effects / THINGS.file).write_text("..")
    assert wrong(effects) == ["dev_append should have written once, it wrote 2 times"]


@pytest.mark.parametrize("key", [THINGS.during, THINGS.allowed])
def test_a_lookup_that_did_not_run_again_is_noticed(effects: Path, key: str) -> None:
    (effects / f"lookup.{key}").write_text(".")
    assert "it ran 1 times" in wrong(effects)[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"turn_ended": [{"status": "succeeded"}]}, "three turns should have succeeded"),
        (
            {"turn_ended": [{"status": "succeeded"}, {"status": "failed"}]},
            "three turns should have succeeded",
        ),
        ({"user_message": [{}, {}, {}, {}]}, "4 deliveries"),
        ({"session_resumed": [{"reason": "crash"}, {"reason": "drain"}]}, "four attempts"),
        ({"approval_decided": []}, "one approval_decided, there are 0"),
        ({"question_answered": [{}, {}]}, "one question_answered, there are 2"),
        ({"tool_result": [{"name": "ask_user", "outcome": "cancelled"}]}, "should have succeeded, they are"),
        ({"label": "counting"}, "the label phase should be done"),
    ],
)
def test_anything_else_that_is_missing_is_noticed(effects: Path, changes: Any, said: str) -> None:
    (sentence,) = wrong(effects, **changes)
    assert said in sentence


def test_effects_are_counted_where_one_call_had_the_file_for_itself(tmp_path: Path) -> None:
    """What two calls wrote into one file says nothing about either."""
    (tmp_path / "mine").write_text("..")
    (tmp_path / "lookup.k").write_text(".")
    (tmp_path / "shared").write_text("..")
    calls = [
        ("tcl_1", "dev_append", {"file": "mine"}),
        ("tcl_2", "dev_lookup", {"key": "k"}),
        ("tcl_3", "dev_append", {"file": "shared"}),
        ("tcl_4", "dev_append", {"file": "shared"}),
        ("tcl_5", "set_label", {"key": "phase"}),
        ("tcl_6", "dev_append", {"file": "never"}),
    ]
    blocks = [
        {"type": "tool_call", "tool_call": call, "name": name, "arguments": arguments}
        for call, name, arguments in calls
    ]
    log = [{"kind": "assistant_message", "data": {"content": [{"type": "text", "text": "x"}, *blocks]}}]
    found = {effect.tool_call: (effect.times, effect.rerun_safe) for effect in checks.effects(log, tmp_path)}
    assert found == {"tcl_1": (2, False), "tcl_2": (1, True), "tcl_6": (0, False)}
