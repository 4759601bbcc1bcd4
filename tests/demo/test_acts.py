"""What the demo shows is what happened: an act that came too late is no success."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from bench.report import Report
from sessions_app.demo import acts
from sessions_app.demo.acts import Missed, Stage
from sessions_app.demo.follower import FellShort
from sessions_app.demo.timeline import Timeline


class Scene:
    """A follower without a session: what it would see is given."""

    def __init__(self, state: str) -> None:
        self.timeline = Timeline(say=lambda _: None, keep=lambda _: None)
        self.state = state

    def until(self, condition: Any, **_: Any) -> Any:
        return condition()

    def state_of(self, _call: object) -> str:
        return self.state

    def open_call(self) -> None:
        return None

    def at_rest(self) -> bool:
        return True

    def of_kind(self, _kind: str) -> list[Any]:
        return []


def stage(*, scripted: bool, state: str = "succeeded") -> Stage:
    scene: Any = Scene(state)
    nothing: Any = None
    return Stage(
        follower=scene,
        report=Report("demo", StringIO()),
        scripted=scripted,
        file=Path("nowhere"),
        looked_up=Path("nowhere"),
        start_worker=nothing,
        wait_ready=nothing,
    )


def too_late(on: Stage) -> None:
    caught: Any = acts.Caught(call=None, held=None)  # type: ignore[arg-type]
    acts._was_cut(on, caught)


def test_a_kill_that_came_too_late_is_noticed() -> None:
    with pytest.raises(Missed, match="too late: the model call had succeeded"):
        too_late(stage(scripted=True))
    too_late(stage(scripted=True, state="interrupted"))


def test_with_the_scripted_agent_a_missed_act_ends_the_demo() -> None:
    with pytest.raises(FellShort, match="killing a loop: the kill came too late"):
        stage(scripted=True).play(too_late, "killing a loop")


def test_with_a_real_model_a_missed_act_is_reported_as_skipped() -> None:
    on = stage(scripted=False)
    assert on.play(too_late, "killing a loop") is False
    (row,) = on.report.rows
    assert row["what"] == "skipped"
    assert "too late" in row["why"]


@pytest.mark.parametrize("act", [acts.kill_loop, acts.kill_tree])
def test_a_turn_that_ends_before_the_moment_is_noticed(act: Any) -> None:
    with pytest.raises(Missed, match="the turn ended before"):
        act(stage(scripted=True))
