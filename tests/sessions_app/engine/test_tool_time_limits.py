"""T5: outside tools that take longer than they may, with a real worker in this process."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app import control
from sessions_app.entry_kinds import SYSTEM
from tests.acceptance import agents
from tests.sessions_app.engine.in_process import working
from tests.staging import eventually
from tools_app import registry
from tools_app.models import ToolCall
from tools_app.registry import ToolDefinition

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("tool", "arguments"), [("dev_append", {"file": "x"}), ("dev_lookup", {"key": "x"})])
def test_a_tool_that_takes_too_long_is_stopped_with_a_result_that_names_the_limit(
    settings: Any, tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    """T5: the turn goes on, also where the tool may run again: a limit is no crash."""
    call = agents.call(tool, **arguments, delay=30)
    session = agents.start({"tool_calls": [call]}, {"text": "Then without."})
    with working(settings, tool_time_limit=0.2, dev_tool_root=str(tmp_path)) as rested:
        assert rested(session).status == "idle"
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "failed"
    (block,) = result.data["content"]
    assert "time limit of 0.2 s" in block["text"]
    assert "may have happened" in block["text"]
    assert agents.said(session) == ["Then without."]
    assert agents.row(session).attempt == 1


def test_a_tool_may_have_a_limit_of_its_own_in_the_config(settings: Any, tmp_path: Path) -> None:
    """T5: per tool, before that of the deployment."""
    call = agents.call("dev_lookup", key="x", delay=30)
    session = agents.start(
        {"tool_calls": [call]}, {"text": "Then without."}, tools={"dev_lookup": {"time_limit": "1s"}}
    )
    with working(settings, tool_time_limit=600.0, dev_tool_root=str(tmp_path)) as rested:
        assert rested(session).status == "idle"
    (result,) = agents.log_of(session, "tool_result")
    assert "time limit of 1 s" in result.data["content"][0]["text"]


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """A tool `unstoppable`, a plain function that answers when this event is set."""
    told = threading.Event()

    def run(arguments: dict[str, Any], context: Any) -> str:
        assert told.wait(20)
        return "the late answer"

    tool = ToolDefinition(
        name="unstoppable",
        description="Slow.",
        input_schema={"type": "object"},
        run=run,
        permission="allow",
    )
    registry.register_tool(tool)
    yield told
    told.set()
    registry._tools.pop("unstoppable")


UNSTOPPABLE = {"tool_calls": [agents.call("unstoppable")]}


def test_a_late_answer_is_kept_beside_the_result_and_never_replaces_it(
    settings: Any, go_on: threading.Event
) -> None:
    """T5: as an entry, while the session is held; the call has its one result."""
    session = agents.start(
        UNSTOPPABLE, {"text": "Then without.", "delay": 1.5}, tools={"unstoppable": {}, "dev_append": {}}
    )
    with working(settings, tool_time_limit=0.2) as rested:
        (result,) = eventually(lambda: agents.log_of(session, "tool_result"), within=15)
        go_on.set()
        (late,) = eventually(lambda: agents.log_of(session, "tool_call_updated"))
        rested(session)
    stored = ToolCall.objects.get(session_id=session)
    assert (stored.outcome, stored.content) == ("failed", result.data["content"])
    assert late.data["tool_call"] == result.data["tool_call"]
    assert late.data["update"] == "late answer: succeeded"
    assert late.data["content"] == [{"type": "text", "text": "the late answer"}]
    assert late.turn_id == stored.turn_id
    entries = agents.log_of(session)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert agents.said(session) == ["Then without."]


def test_an_answer_that_comes_after_the_session_was_taken_is_not_written(
    settings: Any, go_on: threading.Event
) -> None:
    """T5, L3: whoever does not hold the session any more writes nothing."""
    session = agents.start(UNSTOPPABLE, {"text": "Never.", "delay": 30}, tools={"unstoppable": {}})
    with working(settings, tool_time_limit=0.2) as rested:
        eventually(lambda: agents.log_of(session, "tool_result"), within=15)
        control.cancel(session=session, actor=SYSTEM)
        rested(session)
        go_on.set()
        other = agents.start({"text": "I work."})
        rested(other)
    assert agents.log_of(session, "tool_call_updated") == []
    assert agents.outcomes(session) == [("unstoppable", "failed")]
