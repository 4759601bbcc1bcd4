"""Workers that lose a session, or the database, while they run it; and workers beside each other."""

import signal
import time
from collections.abc import Iterator

import pytest

from sessions_app import control, leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import EndReason, Lease, ModelCall, SessionStatus, Worker
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.staging import Relay, eventually

pytestmark = pytest.mark.processes


def test_a_held_session_is_nobody_elses(workers: Workers) -> None:
    """A14: B polls many times beside A and claims nothing; there is one lease."""
    session = agents.start({"text": "Mine.", "delay": 1.0})
    first = workers.start(owner="A")
    lease = agents.wait_for_lease(session)
    second = workers.start(owner="B")
    other = agents.start({"text": "B is awake."}, texts=("hi",))
    agents.wait_until_at_rest(other, first, second)
    assert [(row.pk, row.worker_id) for row in Lease.objects.all()] == [(session, lease.worker_id)]
    agents.wait_until_at_rest(session, first, second)
    assert agents.row(session).attempt == 1
    assert ModelCall.objects.filter(session_id=session).count() == 1


def test_cancelling_one_session_stops_only_that_one(workers: Workers) -> None:
    """A15: two sessions on one worker."""
    stopped = agents.start({"text": "Never.", "delay": 30})
    other = agents.start({"text": "Done.", "delay": 1.0})
    worker = workers.start()
    agents.wait_until_asking(stopped)
    agents.wait_until_asking(other)
    control.cancel(session=stopped, actor=SYSTEM)
    agents.wait_until_at_rest(other, worker)
    assert agents.said(other) == ["Done."]
    assert agents.row(other).attempt == 1
    assert agents.said(stopped) == []
    assert agents.row(stopped).status == SessionStatus.IDLE
    worker.stop()  # which would wait for a run that is still there


def test_a_run_that_loses_its_lease_is_aborted_at_once(workers: Workers) -> None:
    """L4, L9, A28: told by the doorbell, long before the next regular beat."""
    session = agents.start({"text": "Late.", "delay": 8})
    worker = workers.start(worker_ttl=60.0, heartbeat_interval=20.0)
    first = agents.wait_until_asking(session)
    at = time.monotonic()
    assert leases.force_release(session)
    eventually(lambda: "lease.lost" in worker.story())
    assert time.monotonic() - at < 1.0
    first.refresh_from_db()
    assert (first.state, first.may_be_billed) == ("interrupted", True)
    again = agents.wait_until_asking(session, more_than=1)
    assert (again.covers_seq, again.config_id) == (first.covers_seq + 1, first.config_id)
    control.cancel(session=session, actor=SYSTEM)
    worker.stop()


def test_a_worker_that_wakes_up_too_late_writes_nothing(workers: Workers) -> None:
    """A10, A28, A29, L3, L5: stopped in a model call, given up on, replaced, and then it goes on."""
    session = agents.start({"text": "Once.", "delay": 0.6}, {"text": "Again."})
    old = workers.start(owner="old")
    agents.wait_until_asking(session)
    old.send(signal.SIGSTOP)
    leases.end_worker(owner="old", reason=EndReason.CRASH)
    new = workers.start(owner="new")
    agents.wait_until_at_rest(session, new)
    before = [entry.pk for entry in agents.log_of(session)]
    old.send(signal.SIGCONT)
    eventually(lambda: Worker.objects.filter(owner__startswith="old", dead=False).exists(), within=10)
    assert [entry.pk for entry in agents.log_of(session)] == before
    assert agents.said(session) == ["Once."]
    # It came back as another worker, and works.
    new.stop()
    agents.say(session, "and now?")
    eventually(lambda: agents.said(session) == ["Once.", "Again."], within=10)
    assert check(session, workers.folder / "effects", resumed=(2,)) == []


def test_a_stolen_session_goes_on_elsewhere(workers: Workers) -> None:
    """L9: the old worker's run is aborted, the reason is kept, and the session ends once."""
    session = agents.start({"text": "Once.", "delay": 0.8})
    first = workers.start(owner="A")
    agents.wait_until_asking(session)
    second = workers.start(owner="B")
    eventually(lambda: Worker.objects.filter(owner="B").exists(), within=10)
    stolen = leases.steal(session, worker=Worker.objects.get(owner="B").pk)
    assert stolen.attempt == 2
    eventually(lambda: "lease.lost" in first.story())
    agents.wait_until_at_rest(session, first, second)
    assert agents.said(session) == ["Once."]
    ((attempt, reason),) = agents.resumed(session)
    assert attempt >= 2
    assert reason == "forced"
    assert check(session, workers.folder / "effects", resumed=(attempt,)) == []


@pytest.fixture
def relay() -> Iterator[Relay]:
    made = Relay()
    yield made
    made.close()


def test_a_worker_without_its_database_aborts_before_others_take_over(workers: Workers, relay: Relay) -> None:
    """L5: at 2/3 of the time to live all its runs are stopped; nothing of them has an effect afterwards."""
    times = {"worker_ttl": 1.8, "heartbeat_interval": 0.3}
    session = agents.start(
        {"tool_calls": [agents.call("dev_append", file="x", delay=1.8)]}, {"text": "Done."}
    )
    away = workers.start(owner="away", database={"HOST": "127.0.0.1", "PORT": str(relay.port)}, **times)
    eventually(lambda: agents.started(session, "dev_append"), within=10)
    at = time.monotonic()
    relay.close()
    eventually(lambda: "runs.aborted" in away.story() or "worker.given_up" in away.story(), within=10)
    took = time.monotonic() - at
    assert took < 1.8, "others may take over from here on"
    sweeper, near = workers.start("sweeper", **times), workers.start(owner="near", **times)
    agents.wait_until_at_rest(session, sweeper, near, away)
    assert agents.outcomes(session) == [("dev_append", "interrupted")]
    trace = workers.folder / "effects" / "x"
    assert agents.times(trace) == 0
    assert check(session, workers.folder / "effects", resumed=(2,)) == []
