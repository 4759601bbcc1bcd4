"""Outside tools whose worker dies, stops, loses its lease or takes too long, in real processes."""

import signal
from pathlib import Path

import pytest

from sessions_app import control, leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import EndReason, Lease, Worker
from sessions_app.tool_port import INTERRUPTED
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.staging import eventually, holding, wait_until_blocked
from tools_app.models import ToolCall

pytestmark = pytest.mark.processes


def effects(workers: Workers) -> Path:
    return workers.folder / "effects"


def test_a_tool_that_blocks_longer_than_the_time_to_live_runs_once(workers: Workers) -> None:
    """C65: the heart beats apart from the work, also where a tool blocks the whole event loop."""
    short = {"worker_ttl": 1.5, "heartbeat_interval": 0.4}
    session = agents.start(
        {
            "tool_calls": [
                agents.call("block_loop", file="loop", seconds=2.0),
                agents.call("block_thread", file="thread", seconds=2.0),
            ]
        },
        {"text": "Done."},
    )
    first = workers.start(owner="first", **short)
    eventually(lambda: agents.started(session, "block_loop"), within=10)
    second, sweeper = workers.start(owner="second", **short), workers.start("sweeper", **short)
    rested = agents.wait_until_at_rest(session, first, second, sweeper)
    assert (rested.attempt, rested.crash_count) == (1, 0)
    assert agents.outcomes(session).count(("block_loop", "succeeded")) == 1
    assert agents.outcomes(session).count(("block_thread", "succeeded")) == 1
    assert agents.times(effects(workers) / "loop") == agents.times(effects(workers) / "thread") == 1
    assert not Worker.objects.filter(dead=True).exists()
    assert check(session, effects(workers), resumed=()) == []


def test_a_restart_repeats_only_what_may_be_repeated(workers: Workers) -> None:
    """C77, C72, A75: killed in the middle of both, the lookup runs again and the deployment does not."""
    session = agents.start(
        {
            "tool_calls": [
                agents.call("dev_lookup", key="sx1", delay=30),
                agents.call("dev_append", file="sx2", delay=30),
            ]
        },
        {"text": "Done."},
    )
    first = workers.start()
    looked_up = effects(workers) / "lookup.sx1"
    eventually(lambda: agents.times(looked_up) == 1, within=10)
    first.kill()
    # The delay is frozen in the call: the next run of the lookup is not waited out but cancelled.
    assert leases.end_worker(owner=first.owner, reason=EndReason.CRASH) == 1
    deployed = ToolCall.objects.get(session_id=session, name="dev_append")
    assert (deployed.outcome, deployed.content) == ("interrupted", [{"type": "text", "text": INTERRUPTED}])
    second = workers.start()
    eventually(lambda: agents.times(looked_up) == 2, within=10)
    assert agents.times(effects(workers) / "sx2") == 0
    assert ToolCall.objects.get(session_id=session, name="dev_append").attempt == 1
    control.cancel(session=session, actor=SYSTEM)
    agents.wait_until_at_rest(session, second)
    assert agents.outcomes(session) == [("dev_append", "interrupted"), ("dev_lookup", "cancelled")]
    assert agents.resumed(session) == [(2, "crash")]


def test_cancelled_before_the_resume_nothing_runs_again(workers: Workers) -> None:
    """C77: `if_cancelled_before_resume: none run`."""
    session = agents.start(
        {"tool_calls": [agents.call("dev_lookup", key="sx1", delay=30)]}, {"text": "Never said."}
    )
    first = workers.start()
    looked_up = effects(workers) / "lookup.sx1"
    eventually(lambda: agents.times(looked_up) == 1, within=10)
    first.kill()
    leases.end_worker(owner=first.owner, reason=EndReason.CRASH)
    control.cancel(session=session, actor=SYSTEM)
    other = agents.start({"text": "I was due later."})
    second = workers.start()
    agents.wait_until_at_rest(other, second)
    assert agents.times(looked_up) == 1
    assert agents.outcomes(session) == [("dev_lookup", "cancelled")]
    assert agents.said(session) == []
    assert agents.row(session).attempt == 1


def test_a_tool_whose_lease_is_taken_stops_and_is_not_called_again(workers: Workers) -> None:
    """A75, L4, L9: forced away in the middle of an outside call."""
    session = agents.start(
        {"tool_calls": [agents.call("dev_append", file="x", delay=1.0)]}, {"text": "Done."}
    )
    worker = workers.start()
    eventually(lambda: agents.started(session, "dev_append"), within=10)
    assert leases.force_release(session)
    agents.wait_until_at_rest(session, worker)
    assert agents.outcomes(session) == [("dev_append", "interrupted")]
    # Aborted well before its byte: the delay before it outlasts all that has happened since.
    eventually(lambda: "lease.lost" in worker.story())
    assert agents.times(effects(workers) / "x") == 0
    assert check(session, effects(workers), resumed=(2,)) == []


def test_a_late_result_of_a_lost_attempt_is_refused(workers: Workers) -> None:
    """C79: a step that nobody could stop ends beside its retry; the result is the retry's."""
    session = agents.start(
        {"tool_calls": [agents.call("block_again", file="twice", seconds=0.8)]}, {"text": "Done."}
    )
    trace = effects(workers) / "twice"
    first = workers.start(owner="first")
    eventually(lambda: agents.times(trace) == 1, within=10)
    leases.force_release(session)
    second = workers.start(owner="second")
    eventually(lambda: agents.times(trace) == 2, within=10)
    agents.wait_until_at_rest(session, first, second)
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["content"] == [{"type": "text", "text": "attempt 2"}]
    assert agents.resumed(session) == [(2, "forced")]
    first.stop()
    second.stop()
    assert len(agents.log_of(session, "tool_result")) == 1
    assert check(session, effects(workers), resumed=(2,)) == []


def test_a_planned_stop_keeps_what_is_finished_and_interrupts_the_rest(workers: Workers) -> None:
    """A75, A76, L8: of two calls one is over when the time is up."""
    session = agents.start(
        {
            "tool_calls": [
                agents.call("dev_append", file="quick"),
                agents.call("dev_append", file="slow", delay=30),
            ]
        },
        {"text": "Done."},
    )
    worker = workers.start(worker_drain_timeout=1.5, worker_drain_margin=1.0)
    quick = effects(workers) / "quick"
    eventually(lambda: agents.times(quick) == 1, within=10)
    worker.stop()
    assert agents.outcomes(session) == [("dev_append", "succeeded"), ("dev_append", "interrupted")]
    assert agents.times(effects(workers) / "slow") == 0
    assert agents.row(session).crash_count == 0


def test_a_result_on_its_way_is_not_overtaken_by_the_end_of_its_lease(workers: Workers) -> None:
    """A76: the step with the result waits for the session's lock when the worker has to abort."""
    session = agents.start(
        {"tool_calls": [agents.call("dev_append", file="x", delay=0.4)]}, {"text": "Done."}
    )
    worker = workers.start()
    eventually(lambda: agents.started(session, "dev_append"), within=10)
    with holding("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", session):
        wait_until_blocked()
        worker.send(signal.SIGTERM)
        eventually(lambda: "worker.drains" in worker.story())
        worker.send(signal.SIGTERM)
        eventually(lambda: "worker.aborts" in worker.story())
    assert worker.wait() == 0, worker.story()
    assert agents.outcomes(session) == [("dev_append", "succeeded")]
    assert agents.times(effects(workers) / "x") == 1
    assert not Lease.objects.exists()


def test_a_killed_worker_is_found_by_the_sweeper_alone(workers: Workers) -> None:
    """L6, L7: no supervisor; the free lock of a dead process ends its lease, the effect is not repeated."""
    session = agents.start(
        {"tool_calls": [agents.call("dev_append", file="x", delay=0.2)]}, {"text": "Done."}
    )
    first = workers.start(crash_at="tool.after")
    assert first.wait() == -signal.SIGKILL
    sweeper, second = workers.start("sweeper"), workers.start()
    agents.wait_until_at_rest(session, sweeper, second)
    assert agents.outcomes(session) == [("dev_append", "interrupted")]
    assert agents.times(effects(workers) / "x") == 1
    assert check(session, effects(workers), resumed=(2,)) == []
