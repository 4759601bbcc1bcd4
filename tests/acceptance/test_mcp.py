"""MCP calls of whole sessions: one call each, whatever happens to the worker, the lease or the config."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sessions_app import configs, leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import EndReason, SessionStatus, Worker
from sessions_app.tool_port import INTERRUPTED
from tests.acceptance import agents
from tests.acceptance.test_steering_and_config import change_config, requests
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.sessions_app.engine.in_process import working
from tests.staging import eventually, holding, wait_until_blocked
from tests.tools_app.mcp.bad_server import BadServer
from tests.tools_app.mcp.conftest import Peer, peer
from tools_app import approvals
from tools_app.models import Approval, ToolCall

__all__ = ["peer", "requests"]

pytestmark = pytest.mark.django_db(transaction=True)

ALLOW = [{"tool": "mcp__*", "then": "allow"}]
NEARBY: dict[str, Any] = {"allowed_networks": ("127.0.0.0/8",)}
WAYS = ["new", "old-sse"]


@pytest.fixture(params=WAYS)
def url(request: Any, peer: Peer) -> str:
    return f"{peer.url}/{request.param}"


def start(url: str, *replies: dict[str, Any], **document: Any) -> UUID:
    return agents.start(*replies, mcp={"peer": {"url": url}}, **{"permissions": ALLOW} | document)


def append(file: str, seconds: float = 0) -> dict[str, Any]:
    return agents.call("mcp__peer__append", file=file, seconds=seconds)


def begun(peer: Peer, file: str) -> Callable[[], bool]:
    return lambda: peer.times(f"{file}.begun") > 0


# --- in one process --------------------------------------------------------------------------------------


def test_an_agent_calls_a_tool_of_a_server(settings: Any, url: str, peer: Peer, requests: Any) -> None:
    """The model is offered what the server lists, its call runs once, and the answer is the result."""
    session = start(url, {"tool_calls": [agents.call("mcp__peer__plus", a=1, b=2)]}, {"text": "Three."})
    with working(settings, **NEARBY) as rested:
        assert rested(session).status == "idle"
    assert "mcp__peer__plus" in [spec.name for spec in requests[0].tools]
    (result,) = agents.log_of(session, "tool_result")
    assert (result.data["outcome"], result.data["content"]) == ("succeeded", [{"type": "text", "text": "3"}])
    assert agents.said(session) == ["Three."]


def test_a_tool_of_a_server_asks_unless_a_rule_allows_it(
    settings: Any, url: str, peer: Peer, tmp_path: Path
) -> None:
    """T7: the default of MCP; a hint of the server counts where a rule says so."""
    file = f"asked.{tmp_path.name}"
    rule = {"tool": "mcp__*", "annotations": {"read_only": True}, "then": "allow"}
    session = start(
        url,
        {"tool_calls": [agents.call("mcp__peer__echo", text="hi"), append(file)]},
        {"text": "Done."},
        permissions=[rule],
    )
    with working(settings, **NEARBY) as rested:
        assert rested(session).status == SessionStatus.WAITING
        assert agents.outcomes(session) == [("mcp__peer__echo", "succeeded")]
        assert peer.times(f"{file}.begun") == 0
        approval = Approval.objects.get(tool_call__session_id=session)
        approvals.decide(approval=approval.pk, decision="allow", actor=SYSTEM)
        eventually(lambda: agents.said(session) == ["Done."], within=15)
    assert peer.times(file) == 1
    assert agents.outcomes(session)[-1] == ("mcp__peer__append", "succeeded")


def test_another_set_of_servers_counts_after_the_pending_call(
    settings: Any, url: str, peer: Peer, requests: Any, tmp_path: Path
) -> None:
    """A66: the call that runs is finished with the server it was made to; the next request has the new tools."""
    file = f"pending.{tmp_path.name}"
    session = start(url, {"tool_calls": [append(file, 0.7)]}, {"text": "old"})
    document = {
        "instructions": "Be other.",
        "model": "scripted:other",
        "mcp": {"second": {"url": url, "tools": ["plus"]}},
        "permissions": ALLOW,
        "script": {
            "replies": [
                {"text": "never"},
                {"tool_calls": [agents.call("mcp__second__plus", a=2, b=2), append(file)]},
                {"text": "new"},
            ]
        },
    }
    with working(settings, **NEARBY) as rested:
        eventually(begun(peer, file), within=15)
        made = configs.create_config(project=agents.row(session).project_id, document=document).row.pk
        change_config(session, made)
        assert rested(session).status == "idle"
    offered = [[spec.name for spec in request.tools if spec.name.startswith("mcp__")] for request in requests]
    assert "mcp__peer__append" in offered[0]
    assert offered[1:] == [["mcp__second__plus"]] * 2
    assert agents.outcomes(session) == [
        ("mcp__peer__append", "succeeded"),
        ("mcp__peer__append", "failed"),  # of the server that is gone
        ("mcp__second__plus", "succeeded"),
    ]
    assert peer.times(file) == 1
    assert agents.said(session) == ["new"]


def test_a_server_that_is_down_gives_the_model_an_error_and_the_session_goes_on(
    settings: Any, requests: Any
) -> None:
    """Nobody listens at the address: the model is answered, its call of a tool there has failed and says why."""
    session = start("http://127.0.0.1:9/mcp", {"tool_calls": [append("x")]}, {"text": "Then without."})
    with working(settings, **NEARBY) as rested:
        assert rested(session).status == "idle"
    assert not any(spec.name.startswith("mcp__") for spec in requests[0].tools)
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "failed"
    assert "the MCP server peer can't be reached" in result.data["content"][0]["text"]
    assert agents.said(session) == ["Then without."]


def test_a_call_past_its_time_limit_fails_and_is_not_repeated(
    settings: Any, url: str, peer: Peer, tmp_path: Path
) -> None:
    """T5"""
    file = f"slow.{tmp_path.name}"
    session = agents.start(
        {"tool_calls": [append(file, 30)]},
        {"text": "Then without."},
        mcp={"peer": {"url": url, "time_limit": "500ms"}},
        permissions=ALLOW,
    )
    with working(settings, **NEARBY) as rested:
        assert rested(session).status == "idle"
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["outcome"] == "failed"
    assert "time limit of 0.5 s" in result.data["content"][0]["text"]
    assert (peer.times(f"{file}.begun"), peer.times(file)) == (1, 0)


@pytest.fixture
def deaf() -> Iterator[BadServer]:
    """A server that takes a call and says nothing any more, to nothing; in a thread of its own."""
    server = BadServer()
    server.on |= dict.fromkeys(["tools/call", "notifications/cancelled", "DELETE"], "hang")
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        async with server:
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(10)
    yield server
    down.set()
    thread.join(10)
    assert not thread.is_alive()


# --- real processes --------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_killed_worker_leaves_an_interrupted_call_and_no_second_one(
    workers: Workers, url: str, peer: Peer, tmp_path: Path
) -> None:
    """A72, A75: the reply's call is one call, also where its worker dies while the server works on it."""
    file = f"killed.{tmp_path.name}"
    session = start(url, {"tool_calls": [append(file, 30)]}, {"text": "Done."})
    first = workers.start(**NEARBY)
    eventually(begun(peer, file), within=15)
    first.kill()
    assert leases.end_worker(owner=first.owner, reason=EndReason.CRASH) == 1
    second = workers.start(**NEARBY)
    agents.wait_until_at_rest(session, second)
    (call,) = ToolCall.objects.filter(session_id=session)
    assert (call.outcome, call.content) == ("interrupted", [{"type": "text", "text": INTERRUPTED}])
    assert peer.times(f"{file}.begun") == 1
    assert agents.said(session) == ["Done."]
    assert check(session, workers.folder / "effects", resumed=(2,)) == []


@pytest.mark.processes
def test_a_lease_that_is_lost_in_the_middle_of_a_call_ends_it_without_another(
    workers: Workers, url: str, peer: Peer, tmp_path: Path
) -> None:
    """A75, A77, L9: no reconnect and no second call; the result says that the outcome is unknown."""
    file = f"lost.{tmp_path.name}"
    session = start(url, {"tool_calls": [append(file, 2)]}, {"text": "Done."})
    worker = workers.start(**NEARBY)
    eventually(begun(peer, file), within=15)
    assert leases.force_release(session)
    agents.wait_until_at_rest(session, worker)
    assert agents.outcomes(session) == [("mcp__peer__append", "interrupted")]
    eventually(lambda: "lease.lost" in worker.story())
    assert peer.times(f"{file}.begun") == 1
    assert check(session, workers.folder / "effects", resumed=(2,)) == []


@pytest.mark.processes
def test_a_lease_that_is_lost_before_the_call_means_no_call(
    workers: Workers, url: str, peer: Peer, tmp_path: Path
) -> None:
    """A73: the step that would have begun the call is refused; only the attempt that holds the session calls."""
    file = f"none.{tmp_path.name}"
    session = start(url, {"delay": 1.0, "tool_calls": [append(file)]}, {"text": "Done."})
    first = workers.start(owner="first", **NEARBY)
    agents.wait_until_asking(session)
    first.send(signal.SIGSTOP)
    leases.end_worker(owner="first", reason=EndReason.CRASH)
    second = workers.start(owner="second", **NEARBY)
    agents.wait_until_at_rest(session, second)
    first.send(signal.SIGCONT)
    eventually(lambda: Worker.objects.filter(owner__startswith="first", dead=False).exists(), within=10)
    (call,) = ToolCall.objects.filter(session_id=session)
    assert (call.attempt, call.outcome) == (2, "succeeded")
    assert peer.times(f"{file}.begun") == 1


@pytest.mark.processes
def test_a_planned_stop_keeps_the_result_that_is_there_and_interrupts_the_rest(
    workers: Workers, url: str, peer: Peer, tmp_path: Path
) -> None:
    """A75, A76, L8: of two calls one is over when the time is up."""
    quick, slow = f"quick.{tmp_path.name}", f"slow.{tmp_path.name}"
    session = start(url, {"tool_calls": [append(quick), append(slow, 30)]}, {"text": "Done."})
    worker = workers.start(worker_drain_timeout=1.5, worker_drain_margin=1.0, **NEARBY)
    eventually(lambda: peer.times(quick) == 1 and begun(peer, slow)(), within=15)
    eventually(lambda: ("mcp__peer__append", "succeeded") in agents.outcomes(session))
    worker.stop()
    assert agents.outcomes(session) == [
        ("mcp__peer__append", "succeeded"),
        ("mcp__peer__append", "interrupted"),
    ]
    assert (peer.times(f"{slow}.begun"), peer.times(slow)) == (1, 0)
    assert agents.row(session).crash_count == 0


@pytest.mark.processes
def test_a_server_that_says_nothing_any_more_does_not_hold_up_a_planned_stop(
    workers: Workers, deaf: BadServer
) -> None:
    """L8: the worker is gone when its time is up, and the call is interrupted."""
    session = start(deaf.url, {"tool_calls": [agents.call("mcp__peer__deploy")]}, {"text": "Done."})
    worker = workers.start(worker_drain_timeout=4.0, worker_drain_margin=3.0, **NEARBY)
    eventually(lambda: deaf.calls == 1, within=15)
    at = time.monotonic()
    worker.stop()
    assert time.monotonic() - at < 4.0
    assert agents.outcomes(session) == [("mcp__peer__deploy", "interrupted")]
    assert deaf.calls == 1


@pytest.mark.processes
def test_a_result_in_hand_when_the_worker_has_to_stop_is_saved(
    workers: Workers, url: str, peer: Peer, tmp_path: Path
) -> None:
    """A76: the call has brought its result, and the step that saves it waits for the session's lock."""
    file = f"hand.{tmp_path.name}"
    session = start(url, {"tool_calls": [append(file, 0.5)]}, {"text": "Done."})
    worker = workers.start(**NEARBY)
    eventually(begun(peer, file), within=15)
    with holding("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", session):
        wait_until_blocked()
        worker.send(signal.SIGTERM)
        eventually(lambda: "worker.drains" in worker.story())
        worker.send(signal.SIGTERM)
        eventually(lambda: "worker.aborts" in worker.story())
    assert worker.wait() == 0, worker.story()
    assert agents.outcomes(session) == [("mcp__peer__append", "succeeded")]
    assert peer.times(file) == 1
