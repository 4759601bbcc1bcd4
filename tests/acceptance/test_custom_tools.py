"""Custom tools with real workers: a call outlives whoever made it, and its one result starts one continuation."""

import signal
from typing import Any
from uuid import UUID

import pytest

from sessions_app import leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import EndReason, ModelCall, SessionStatus
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.staging import eventually
from tools_app import claims, custom_tools
from tools_app.models import ToolCall

pytestmark = pytest.mark.processes

CUSTOM = {"class": "custom", "description": "Ask the backend.", "input_schema": {"type": "object"}}


def start(*replies: dict[str, Any], **tool: Any) -> UUID:
    tools = {"dev_append": {}, "dev_lookup": {}, "ask_backend": CUSTOM | tool}
    allow = [{"tool": "*", "then": "allow"}]
    return agents.start(*replies, tools=tools, permissions=allow)


def waiting(session: UUID) -> ToolCall:
    found: ToolCall = eventually(
        lambda: ToolCall.objects.filter(session_id=session, state="waiting").first(), within=15
    )
    return found


def submit(call: ToolCall, text: str = "forty-two") -> ToolCall:
    content = [{"type": "text", "text": text}]
    return custom_tools.submit_result(
        project=call.project_id, tool_call=call.pk, outcome="succeeded", content=content, actor=SYSTEM
    )


def test_a_call_waits_without_a_worker_and_its_result_is_read_once(workers: Workers) -> None:
    """T6, L10, C102: nobody holds the session meanwhile; however often it is posted, the model goes on once."""
    session = start({"tool_calls": [agents.call("ask_backend", what="answer")]}, {"text": "Thank you."})
    worker = workers.start()
    call = waiting(session)
    assert agents.wait_until_at_rest(session, worker).status == SessionStatus.WAITING
    submit(call)
    for text in ("forty-two", "forty-three"):
        with pytest.raises(custom_tools.ToolCallCompleted) as refused:
            submit(call, text)
        assert refused.value.data["current"].content == [{"type": "text", "text": "forty-two"}]
    eventually(lambda: agents.row(session).status == SessionStatus.IDLE, within=15)
    assert agents.outcomes(session) == [("ask_backend", "succeeded")]
    assert agents.said(session) == ["Thank you."]
    assert ModelCall.objects.filter(session_id=session).count() == 2
    assert check(session, workers.folder / "effects", resumed=()) == []


def test_a_restart_leaves_a_waiting_call_as_it_is(workers: Workers) -> None:
    """C77: the lookup runs again, the deployment does not, and the backend's call notices nothing."""
    session = start(
        {
            "tool_calls": [
                agents.call("dev_lookup", key="sx1", delay=1),
                agents.call("dev_append", file="sx2", delay=30),
                agents.call("ask_backend", id=7),
            ]
        },
        {"text": "Done."},
    )
    first = workers.start()
    call = waiting(session)
    looked_up = workers.folder / "effects" / "lookup.sx1"
    eventually(lambda: agents.times(looked_up) == 1, within=10)
    token = claims.claim(project=call.project_id, names=None, limit=1, lease_seconds=60, actor=SYSTEM).token
    first.kill()
    leases.end_worker(owner=first.owner, reason=EndReason.CRASH)
    second = workers.start()
    assert agents.wait_until_at_rest(session, second).status == SessionStatus.WAITING
    assert agents.times(looked_up) == 2
    assert agents.times(workers.folder / "effects" / "sx2") == 0
    call.refresh_from_db()
    assert (call.state, call.attempt) == ("waiting", None)
    claims.extend(project=call.project_id, tool_call=call.pk, token=token, lease_seconds=60)
    submit(call)
    eventually(lambda: agents.row(session).status == SessionStatus.IDLE, within=15)
    assert sorted(agents.outcomes(session)) == [
        ("ask_backend", "succeeded"),
        ("dev_append", "interrupted"),
        ("dev_lookup", "succeeded"),
    ]
    assert agents.said(session) == ["Done."]


def test_a_result_that_comes_while_other_tools_run_is_not_lost(workers: Workers) -> None:
    """S11, T2: the worker holds the session and plans again when its own tool is done."""
    session = start(
        {"tool_calls": [agents.call("ask_backend"), agents.call("dev_append", file="slow", delay=1)]},
        {"text": "Both."},
    )
    worker = workers.start()
    call = waiting(session)
    eventually(lambda: agents.started(session, "dev_append"), within=10)
    assert agents.row(session).status == SessionStatus.RUNNING
    submit(call)
    agents.wait_until_at_rest(session, worker)
    eventually(lambda: agents.row(session).status == SessionStatus.IDLE, within=15)
    assert agents.said(session) == ["Both."]
    assert check(session, workers.folder / "effects", resumed=()) == []


def test_a_result_that_comes_while_nobody_works_waits_for_a_worker(workers: Workers) -> None:
    """T6: also when the service was away for long."""
    session = start({"tool_calls": [agents.call("ask_backend")]}, {"text": "At last."})
    first = workers.start()
    call = waiting(session)
    agents.wait_until_at_rest(session, first)
    first.stop()
    submit(call)
    assert agents.row(session).status == SessionStatus.QUEUED
    second = workers.start()
    eventually(lambda: agents.row(session).status == SessionStatus.IDLE, within=15)
    assert agents.said(session) == ["At last."]
    second.send(signal.SIGTERM)


def test_after_the_deadline_the_agent_goes_on_and_the_late_answer_is_kept(workers: Workers) -> None:
    """C103, S12: the sweeper settles it; the model is told that the booking may have happened."""
    session = start(
        {"tool_calls": [agents.call("ask_backend", book="room")]},
        {"text": "I can't tell whether it is booked."},
        deadline="1s",
    )
    worker, sweeper = workers.start(), workers.start("sweeper")
    call = waiting(session)
    eventually(lambda: agents.row(session).status == SessionStatus.IDLE, within=15)
    assert worker.status is None
    assert sweeper.status is None
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "failed"
    assert "may have happened" in result.data["content"][0]["text"]
    with pytest.raises(custom_tools.ToolCallCompleted, match="expired"):
        submit(call, "booked")
    assert custom_tools.keep_late_answer(
        project=call.project_id,
        tool_call=call.pk,
        outcome="succeeded",
        content=[{"type": "text", "text": "booked"}],
        actor=SYSTEM,
    )
    (late,) = agents.log_of(session, "tool_call_updated")
    assert late.data["content"] == [{"type": "text", "text": "booked"}]
    assert agents.said(session) == ["I can't tell whether it is booked."]


def test_a_deadline_that_keeps_waiting_changes_nothing(workers: Workers) -> None:
    """T6: `on_deadline: keep_waiting`."""
    session = start(
        {"tool_calls": [agents.call("ask_backend")]},
        {"text": "Late, but fine."},
        deadline="100ms",
        on_deadline="keep_waiting",
    )
    worker, _ = workers.start(), workers.start("sweeper")
    call = waiting(session)
    agents.wait_until_at_rest(session, worker)
    # Another session's deadline has come and gone meanwhile, so this one's has as well.
    other = start({"tool_calls": [agents.call("ask_backend")]}, {"text": "No."}, deadline="500ms")
    eventually(lambda: agents.row(other).status == SessionStatus.IDLE, within=15)
    assert agents.row(session).status == SessionStatus.WAITING
    submit(call)
    eventually(lambda: agents.row(session).status == SessionStatus.IDLE, within=15)
    assert agents.outcomes(session) == [("ask_backend", "succeeded")]
