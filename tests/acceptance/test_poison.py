"""R9: a session that kills workers, among others that do not, with real processes."""

import signal
from typing import Any

import pytest

from sessions_app import configs, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Lease, Session, Worker
from tests import factories
from tests.acceptance import agents
from tests.processes.workers import Process, Workers
from tests.staging import eventually

pytestmark = pytest.mark.processes


def start(*replies: dict[str, Any]) -> Any:
    document = {
        "instructions": "x",
        "model": "scripted:poison",
        "tools": {"kill_worker": {}, "dev_lookup": {}},
        "script": {"replies": list(replies)},
    }
    project = factories.project().pk
    config = configs.create_config(project=project, document=document).row
    first = NewInput(content=[{"type": "text", "text": "go"}], actor=SYSTEM)
    return session_service.start_session(project=project, actor=SYSTEM, config=config.pk, input=first).pk


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def keep_two(workers: Workers, done: Any) -> list[Process]:
    """Two loops, each replaced when it dies, until `done`; returns all that there were."""
    running = [workers.start(), workers.start()]
    started = list(running)

    def turn() -> bool:
        for at, process in enumerate(running):
            if process.status is not None:
                assert process.status == -signal.SIGKILL, process.story()
                running[at] = workers.start()
                started.append(running[at])
        return bool(done())

    eventually(turn, within=60)
    return started


def test_two_loops_find_out_who_kills_them(workers: Workers) -> None:
    """R9: one session kills whoever runs it; five deaths later it has stopped, and all others are done."""
    poison = start(call("kill_worker", file="poison", seconds=0.05))
    good = [start(call("dev_lookup", key=f"k{at}", delay=0.3), {"text": "fine"}) for at in range(6)]
    workers.start("sweeper")

    def done() -> bool:
        rows = Session.objects.filter(pk__in=[poison, *good])
        return all(row.turn_id is None and row.last_turn_id is not None for row in rows)

    started = keep_two(workers, done)
    row = agents.row(poison)
    assert (row.last_turn.status, row.last_turn.reason) == ("failed", "crash_limit")
    assert row.crash_count == 5
    assert agents.times(workers.folder / "effects" / "poison") == 5
    assert len(started) <= 2 + 5
    for session in good:
        other = agents.row(session)
        assert (other.last_turn.status, other.last_turn.reason) == ("succeeded", "done")
        assert other.crash_count == 0


def test_a_worker_that_was_only_thought_dead_takes_its_crashes_off(workers: Workers) -> None:
    """R9, L5: stopped for longer than its time to live, reaped, and back: nobody has crashed."""
    session = start(call("dev_lookup", key="slow", delay=1.5), {"text": "fine"})
    frozen = workers.start(worker_ttl=1.0, heartbeat_interval=0.2)
    agents.wait_for_lease(session)
    number = frozen.worker.pk
    frozen.send(signal.SIGSTOP)
    try:
        workers.start("sweeper")
        eventually(lambda: Worker.objects.get(pk=number).dead and not Lease.objects.exists(), within=15)
        assert agents.row(session).crash_count == 1
    finally:
        frozen.send(signal.SIGCONT)
    eventually(lambda: Worker.objects.get(pk=number).came_back, within=15)
    eventually(lambda: agents.row(session).crash_count == 0, within=15)
    rested = agents.wait_until_at_rest(session)
    assert (rested.last_turn.status, rested.crash_count) == ("succeeded", 0)
