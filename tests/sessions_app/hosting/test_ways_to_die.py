"""One test per way to die, with real processes: a `runworker`, its cluster, and small loops as its tasks.

Every test ends by seeing the last process of the family go (end of file on a pipe that all of them
inherited).
"""

import signal
import time
from pathlib import Path

import pytest

from config import embedded_postgres
from tests.sessions_app.hosting.family import Family, family, send

pytestmark = pytest.mark.processes

ONE_LOOP = ("--loops", "1", "--no-sweeper")

SHORT_LIMITS = {"TENURE_WORKER_DRAIN_TIMEOUT": "1.2s", "TENURE_WORKER_DRAIN_MARGIN": "0.4s"}

IMPATIENT = {"TENURE_WORKER_TTL": "3s", "TENURE_HEARTBEAT_INTERVAL": "0.3s"}
"""Beats older than 3 s kill a loop, a seat that is empty for 1.5 s replaces the cluster."""


def stop(running: Family) -> None:
    send(signal.SIGTERM, running.pid)
    running.expect()


@pytest.mark.parametrize("behaviour", ["long_step", "short_steps"], ids=["busy", "idle"])
def test_leases_of_a_killed_loop_end_at_once_and_another_takes_its_seat(behaviour: str) -> None:
    """L6: the supervisor sees the death of its grandchild without waiting for anything."""
    with family("--loops", "2", HOSTING_BEHAVIOUR=behaviour, **SHORT_LIMITS) as running:
        running.ready()
        victim, other = running.loop(), running.loop()
        killed_at = send(signal.SIGKILL, victim["pid"])
        died = running.wait_for("loop.died", owner=victim["owner"], reason="crash")
        released = running.wait_for("released", owner=victim["owner"], reason="crash")
        successor = running.loop()

        # Some 2 ms and 10 ms on a quiet machine.
        assert died["at"] - killed_at < 0.5
        assert released["at"] - killed_at < 1.0
        assert successor["at"] - killed_at < 1.5
        assert successor["title"] == victim["title"]
        assert successor["owner"] != victim["owner"]
        assert not running.seen("released", owner=other["owner"])
        stop(running)


def test_a_dead_sentinel_takes_its_loops_along_and_is_replaced() -> None:
    """L6: no orphan goes on beside the loops of the new cluster."""
    with family("--loops", "2") as running:
        running.ready()
        first, second, sweeper = running.loop(), running.loop(), running.loop("sweeper")
        send(signal.SIGKILL, first["parent"])
        running.wait_for("cluster.died", pid=first["parent"])
        for loop in (first, second, sweeper):
            running.wait_for("released", owner=loop["owner"], reason="crash")
        running.wait_for("cluster.replaced")

        assert not {first["pid"], second["pid"], sweeper["pid"]} & set(running.tree())
        assert running.loop()["parent"] != first["parent"]
        stop(running)


def test_a_killed_supervisor_leaves_nobody_behind() -> None:
    """L6: the kernel ends its family, also loops that can't listen, so that nothing works on unsupervised."""
    with family("--loops", "2", HOSTING_BEHAVIOUR="deaf", HOSTING_NO_WIRE="1") as running:
        running.ready()
        killed_at = send(signal.SIGKILL, running.pid)
        running.expect(status=-signal.SIGKILL)
        assert time.monotonic() - killed_at < 2


def test_a_killed_supervisor_leaves_nobody_behind_without_the_kernels_help() -> None:
    """L6: where no signal follows a parent's death (macOS), loops hear their wire end and end the group."""
    with family("--loops", "2", HOSTING_BEHAVIOUR="deaf", HOSTING_NO_PRCTL="1") as running:
        running.ready()
        killed_at = send(signal.SIGKILL, running.pid)
        running.expect(status=-signal.SIGKILL)
        assert time.monotonic() - killed_at < 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_planned_stop_lets_loops_finish_and_starts_no_new_ones(number: signal.Signals) -> None:
    """L8: drain, release, exit 0, without waiting for the limit."""
    with family("--loops", "2") as running:
        running.ready()
        told_at = send(number, running.pid)
        running.expect()

        assert time.monotonic() - told_at < 5
        assert len(running.seen("running")) == 3
        assert len(running.seen("returned")) == 3
        assert [event["reason"] for event in running.seen("released")] == ["drain"] * 3
        assert all(event["clean"] for event in running.seen("loop.ended"))
        assert running.seen("runworker.stopped", unreleased=[])
        assert not running.seen("loop.died")
        assert not running.seen("cluster.died")


def test_a_step_longer_than_the_limit_is_aborted_before_it() -> None:
    """L8: running steps get the limit less the margin; then the loop aborts, releases and returns."""
    with family(*ONE_LOOP, HOSTING_BEHAVIOUR="long_step", **SHORT_LIMITS) as running:
        running.ready()
        told_at = send(signal.SIGTERM, running.pid)
        aborting = running.wait_for("aborting")
        running.expect()

        assert 0.75 < aborting["at"] - told_at < 1.15
        assert running.seen("loop.ended", clean=True, reason="drain")


def test_a_loop_that_does_not_end_is_killed_at_the_limit_and_released() -> None:
    """L8: the supervisor kills at the limit; what the loop held counts as drained, not as crashed."""
    with family(*ONE_LOOP, HOSTING_BEHAVIOUR="deaf", **SHORT_LIMITS) as running:
        running.ready()
        told_at = send(signal.SIGTERM, running.pid)
        released = running.wait_for("released", reason="drain")
        running.expect()

        assert 1.1 < released["at"] - told_at < 3
        assert running.seen("loop.ended", clean=False, reason="drain")


def test_a_second_signal_aborts_at_once() -> None:
    """L8: nobody waits for the drain limit (20 s here) after a second signal."""
    with family(*ONE_LOOP, HOSTING_BEHAVIOUR="long_step") as running:
        running.ready()
        send(signal.SIGTERM, running.pid)
        running.wait_for("draining")
        told_at = send_until(running, "aborting", signal.SIGTERM)
        aborting = running.wait_for("aborting")
        running.expect()

        assert aborting["at"] - told_at < 1
        assert time.monotonic() - told_at < 3
        assert running.seen("released", reason="drain")


def test_a_second_signal_kills_a_loop_that_does_not_listen() -> None:
    """L8: after a short grace."""
    with family(*ONE_LOOP, HOSTING_BEHAVIOUR="deaf") as running:
        running.ready()
        send(signal.SIGTERM, running.pid)
        running.wait_for("draining")
        told_at = send_until(running, "runworker.aborting", signal.SIGINT)
        running.expect()

        assert time.monotonic() - told_at < 5
        assert running.seen("released", reason="drain")


def test_a_signal_that_arrives_twice_at_once_is_one() -> None:
    """L8: wrappers pass on what the terminal has already sent to the whole group."""
    with family(*ONE_LOOP, HOSTING_BEHAVIOUR="long_step", **SHORT_LIMITS) as running:
        running.ready()
        told_at = send(signal.SIGINT, running.pid)
        send(signal.SIGTERM, running.pid)
        aborting = running.wait_for("aborting")
        running.expect()

        assert aborting["at"] - told_at > 0.75
        assert not running.seen("runworker.aborting")


def test_a_signal_for_everybody_is_one_planned_stop() -> None:
    """L8: systemd signals each process of the unit; loops drain once, and nobody repairs what ends."""
    with family("--loops", "2", HOSTING_BEHAVIOUR="long_step", **SHORT_LIMITS) as running:
        running.ready()
        told_at = send(signal.SIGTERM, *running.tree())
        first_abort = running.wait_for("aborting")
        running.expect()

        assert first_abort["at"] - told_at > 0.75
        assert len(running.seen("draining")) == 2
        assert len(running.seen("loop.ended", clean=True, reason="drain")) == 3
        assert len(running.seen("running")) == 3
        assert not running.seen("cluster.died")


def test_a_signal_for_everybody_but_the_supervisor_restarts_the_loops() -> None:
    """L8: the sentinel survives a SIGTERM, and loops that were told to stop are replaced."""
    with family(*ONE_LOOP) as running:
        running.ready()
        loop = running.loop()
        send(signal.SIGTERM, *running.tree()[1:])
        running.wait_for("loop.ended", owner=loop["owner"], reason="drain", clean=True)
        assert running.loop()["parent"] == loop["parent"]
        stop(running)


def test_a_stop_while_the_cluster_starts_is_obeyed() -> None:
    """L8: handlers count from the first moment on, whatever django-q2 installs meanwhile."""
    with family("--loops", "2") as running:
        running.wait_for("spawned")
        send(signal.SIGTERM, running.pid)
        running.expect()
        assert not running.seen("runworker.ready")


def test_a_database_that_is_away_delays_releases_and_nothing_else(tmp_path: Path) -> None:
    """L6: the supervisor needs no database itself; what it could not release it tries again."""
    down = tmp_path / "down"
    down.touch()
    with family("--loops", "2", HOSTING_DATABASE_DOWN=str(down)) as running:
        running.ready()
        victim = running.loop()
        send(signal.SIGKILL, victim["pid"])
        running.wait_for("releases.incomplete", failures=2)
        running.wait_for("loop.started")
        assert not running.seen("released")
        down.unlink()
        running.wait_for("released", owner=victim["owner"], reason="crash")
        stop(running)


def test_a_restart_of_postgresql_leaves_the_supervisor_alone(tmp_path: Path) -> None:
    """L6: leases of a loop that dies while the server is down end when it is back."""
    home = tmp_path / "cluster"
    url = embedded_postgres.ensure_running(home, options=embedded_postgres.THROWAWAY_OPTIONS)
    try:
        with family("--loops", "1", HOSTING_ASK_DATABASE="1", DATABASE_URL=url) as running:
            running.ready()
            first = running.loop()
            send(signal.SIGKILL, first["pid"])
            running.wait_for("released", owner=first["owner"])
            second = running.loop()
            embedded_postgres.stop(home)
            send(signal.SIGKILL, second["pid"])
            running.wait_for("releases.incomplete", failures=1)
            assert running.process.poll() is None
            embedded_postgres.ensure_running(home, options=embedded_postgres.THROWAWAY_OPTIONS)
            running.wait_for("released", owner=second["owner"], reason="crash")
            running.loop()
            assert not running.seen("cluster.died")
            stop(running)
    finally:
        embedded_postgres.stop(home)


def test_a_stop_while_the_database_is_away_says_what_is_left(tmp_path: Path) -> None:
    """L8: a leaving supervisor tries for a while, then exits with status 1 and leaves it to the sweepers."""
    down = tmp_path / "down"
    down.touch()
    with family(*ONE_LOOP, HOSTING_DATABASE_DOWN=str(down), **SHORT_LIMITS) as running:
        running.ready()
        owner = running.loop()["owner"]
        send(signal.SIGTERM, running.pid)
        running.expect(status=1)
        assert running.seen("runworker.stopped", unreleased=[owner])


def test_a_cluster_whose_queue_lock_died_with_an_idle_worker_is_replaced() -> None:
    """L6: known upstream: a worker killed while it waits for a task keeps the queue's lock for ever."""
    with family(*ONE_LOOP, **IMPATIENT) as running:
        running.ready()
        first = running.loop()
        sentinel = first["parent"]
        helpers = [pid for pid in running.tree() if pid not in {running.pid, sentinel, first["pid"]}]
        # Without a pusher only the task that already lies in the queue is left: the second loop takes it, and
        # the third worker waits with the lock in its hands.
        send(signal.SIGSTOP, *helpers)
        send(signal.SIGKILL, first["pid"])
        second = running.loop()
        running.wait_for("spawned", pid=first["pid"])
        running.wait_for("spawned", pid=second["pid"])
        send(signal.SIGKILL, second["pid"])
        idle = running.wait_for("spawned", parent=sentinel)
        wait_until_asleep(idle["pid"])
        send(signal.SIGKILL, idle["pid"])
        send(signal.SIGCONT, *helpers)

        running.wait_for("cluster.stuck", missing=["worker-0"])
        running.wait_for("cluster.replaced")
        assert running.loop()["parent"] != sentinel
        stop(running)


def test_healthy_loops_drain_before_a_stuck_cluster_is_replaced() -> None:
    """L6, L8: what the watchdog ends counts as drained, since nothing was wrong with it."""
    with family("--loops", "1", **IMPATIENT) as running:
        running.ready()
        worker, sweeper = running.loop(), running.loop("sweeper")
        # A sentinel that does not run forks nothing, whatever the reason.
        send(signal.SIGSTOP, worker["parent"])
        send(signal.SIGKILL, worker["pid"])
        running.wait_for("released", owner=worker["owner"], reason="crash")
        running.wait_for("cluster.stuck", missing=["worker-0"])
        running.wait_for("released", owner=sweeper["owner"], reason="drain")
        running.wait_for("cluster.replaced")
        stop(running)


def test_a_frozen_loop_is_killed_when_its_beats_are_too_old() -> None:
    """L6: its worker's row has expired by then, and a frozen process would keep its seat for ever."""
    with family("--loops", "1", TENURE_WORKER_TTL="1.5s", TENURE_HEARTBEAT_INTERVAL="0.2s") as running:
        running.ready()
        victim = running.loop()
        send(signal.SIGSTOP, victim["pid"])
        running.wait_for("loop.frozen", owner=victim["owner"])
        running.wait_for("released", owner=victim["owner"], reason="crash")
        running.loop()
        stop(running)


@pytest.mark.parametrize("behaviour", ["dies_at_once", "raises"])
def test_a_loop_that_dies_of_its_start_again_and_again_waits_longer_each_time(behaviour: str) -> None:
    """L6: two deaths are replaced at once, then pauses double, so a broken deployment forks no storm."""
    with family(*ONE_LOOP, HOSTING_BEHAVIOUR=behaviour) as running:
        waits = [running.wait_for("loop.keeps_dying")["next_start_in"] for _ in range(3)]
        assert waits == [0.25, 0.5, 1.0]
        starts = [event["at"] for event in running.seen("running")]
        assert len(starts) == 5
        assert starts[4] - starts[3] > 0.45
        assert bool(running.seen("loop.failed")) == (behaviour == "raises")
        stop(running)
        assert len(running.seen("released", reason="crash")) == len(running.seen("running"))


def send_until(running: Family, event: str, number: signal.Signals) -> float:
    """Send a signal until it shows (one right after the first counts as the same one); when that began."""
    began = time.monotonic()
    while not running.shows(event, within=0.15):
        send(number, running.pid)
        assert time.monotonic() - began < 10
    return began


def wait_until_asleep(pid: int) -> None:
    """Until the process waits in a system call (state S of /proc/<pid>/stat), twice in a row."""
    until = time.monotonic() + 10
    asleep = 0
    while asleep < 2:
        assert time.monotonic() < until
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
