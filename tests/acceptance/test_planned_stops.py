"""Workers that are told to stop: what they hold is handed on at once, and nothing counts against it."""

import signal

import pytest

from sessions_app import control, leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import EndReason, Lease, Session, SessionStatus, Worker
from tests import factories
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.staging import eventually

pytestmark = pytest.mark.processes


def test_many_planned_stops_are_no_crashes(workers: Workers) -> None:
    """C68: released in the middle of its turn by SIGTERM twenty times, and still going on."""
    stops = 20
    replies = [
        {"text": f"{number}", "delay": 0.05, "tool_calls": [agents.call("dev_lookup", key="k")]}
        for number in range(3 * stops)
    ]
    session = agents.start(*replies, {"text": "Done."})
    for number in range(stops):
        before = len(agents.log_of(session, "assistant_message"))
        worker = workers.start()
        eventually(lambda before=before: len(agents.log_of(session, "assistant_message")) > before, within=10)
        worker.stop()
        row = agents.row(session)
        assert (row.status, row.crash_count) == (SessionStatus.QUEUED, 0), number
    last = workers.start()
    assert agents.wait_until_at_rest(session, last).crash_count == 0
    assert len(agents.said(session)) == 3 * stops + 1
    assert {reason for _, reason in agents.resumed(session)} == {"drain"}
    # Each attempt but the first says once that it went on.
    assert check(session, workers.folder / "effects", resumed=range(2, agents.row(session).attempt + 1)) == []


def test_what_does_not_end_in_time_is_aborted_and_due_at_once(workers: Workers) -> None:
    """L8, S9, R1: a long model call is cut off at the margin; it costs no retry and no crash count."""
    session = agents.start({"text": "Long.", "delay": 1.5})
    worker = workers.start(worker_drain_timeout=1.2, worker_drain_margin=0.8)
    call = agents.wait_until_asking(session)
    worker.send(signal.SIGTERM)
    eventually(lambda: worker.worker.draining)
    assert Lease.objects.filter(pk=session).exists(), "it has to have its time"
    assert worker.wait() == 0, worker.story()
    row = agents.row(session)
    assert (row.status, row.crash_count, row.retry_at) == (SessionStatus.QUEUED, 0, None)
    assert row.lease_end is not None
    assert row.lease_end["reason"] == EndReason.DRAIN
    call.refresh_from_db()
    assert call.state == "interrupted"
    assert call.ended_at is not None
    assert row.wake_at is not None
    assert row.wake_at <= factories.database_now()
    assert (row.wake_at - call.ended_at).total_seconds() < 1
    second = workers.start()
    agents.wait_until_at_rest(session, second)
    assert agents.said(session) == ["Long."]
    assert agents.resumed(session) == [(2, "drain")]
    assert check(session, workers.folder / "effects", resumed=(2,)) == []


def test_a_second_signal_aborts_at_once(workers: Workers) -> None:
    """L8: nobody waits for the rest of the time."""
    session = agents.start({"text": "Long.", "delay": 60})
    worker = workers.start(worker_drain_timeout=60.0, worker_drain_margin=1.0)
    agents.wait_until_asking(session)
    worker.send(signal.SIGTERM)
    eventually(lambda: worker.worker.draining)
    worker.send(signal.SIGTERM)
    assert worker.wait(within=5) == 0
    row = agents.row(session)
    assert (row.status, row.crash_count) == (SessionStatus.QUEUED, 0)
    assert Worker.objects.get(owner=worker.owner).dead


def test_a_draining_worker_takes_nothing_new(workers: Workers) -> None:
    """L8: what becomes due while it drains waits for another."""
    session = agents.start({"text": "Soon.", "delay": 0.8})
    worker = workers.start()
    agents.wait_until_asking(session)
    worker.send(signal.SIGTERM)
    eventually(lambda: worker.worker.draining)
    late = agents.start({"text": "Not by you."})
    assert worker.wait() == 0
    assert agents.said(session) == ["Soon."]
    assert agents.row(late).attempt == 0
    assert agents.row(late).status == SessionStatus.QUEUED


def test_only_an_open_turn_whose_lease_was_lost_is_told_to_resume(workers: Workers) -> None:
    """S9: crash, drain and force are told, each once; backoff, waiting and cancel are not."""
    broken = {"error": {"status": 529}}
    ordinary = agents.start(broken, broken, {"text": "Done."}, {"text": "Again."}, texts=("one", "two"))
    forced = agents.start({"text": "Forced.", "delay": 0.5})
    cancelled = agents.start(
        {"text": "Never.", "delay": 30, "when": {"contains": "one"}}, {"text": "Next."}, texts=("one", "two")
    )
    between = agents.start({"text": "One."}, {"text": "Two."})
    worker = workers.start()
    agents.wait_until_asking(forced)
    assert leases.force_release(forced)
    agents.wait_until_asking(cancelled)
    control.cancel(session=cancelled, actor=SYSTEM)
    agents.wait_until_at_rest(between, worker)
    for session in (ordinary, forced):
        agents.wait_until_at_rest(session, worker)
    eventually(lambda: agents.row(cancelled).turn_count == 2, within=10)
    agents.wait_until_at_rest(cancelled, worker)
    worker.kill()
    leases.end_worker(owner=worker.owner, reason=EndReason.CRASH)
    agents.say(between, "and now?")
    second = workers.start()
    eventually(lambda: len(agents.said(between)) == 2, within=10)
    second.stop()
    assert [agents.resumed(s) for s in (ordinary, forced, cancelled, between)] == [
        [],
        [(2, "forced")],
        [],
        [],
    ]
    assert Session.objects.exclude(status=SessionStatus.IDLE).count() == 0
    assert agents.row(ordinary).attempt > 1
