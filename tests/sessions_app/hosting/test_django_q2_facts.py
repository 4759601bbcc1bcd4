"""What hosting relies on in django-q2, so that an upgrade that changes it fails here.

The rest of the facts are pinned by `test_ways_to_die.py`: that a worker killed while it waits for a task
stops the cluster, that a dead sentinel leaves its workers, that workers take their task at once.
"""

import inspect
import multiprocessing
import signal
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.core.management.base import SystemCheckError
from django.test import override_settings
from django_q import monitor, pusher, worker
from django_q.cluster import Cluster, Sentinel
from django_q.queues import Queue
from django_q.signing import SignedPackage

from sessions_app.hosting import checks, loop_process
from sessions_app.hosting.broker import TASK, LoopBroker
from sessions_app.hosting.cluster import LoopCluster


@pytest.fixture
def signals_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_broker_never_runs_out_of_the_one_task() -> None:
    """L6: a re-forked worker finds its task, and there is nothing to acknowledge."""
    broker = LoopBroker()
    for _ in range(3):
        ((acknowledgement, package),) = broker.dequeue()
        task = SignedPackage.loads(package)
        assert acknowledgement is None
        assert (task["func"], task["args"], task["kwargs"]) == (TASK, (), {})
        assert (task["timeout"], task["save"]) == (-1, False)
    assert f"{loop_process.run_loop.__module__}.{loop_process.run_loop.__name__}" == TASK


def test_our_broker_keeps_statistics_nowhere() -> None:
    """Ten writes a second to a cache would serve nobody."""
    broker = LoopBroker()
    assert broker.cache is None
    assert broker.set_stat("key", "value", 3) is None


def test_a_cluster_takes_a_broker_object() -> None:
    """L6: what makes a cluster without a queue possible."""
    assert "broker" in inspect.signature(Cluster.__init__).parameters
    assert "broker" in inspect.signature(Sentinel.__init__).parameters


def test_constructing_a_cluster_installs_signal_handlers_and_ours_replace_them(
    signals_restored: None,
) -> None:
    """L8: its handlers join, which may hang, so ours have to come after the constructor."""
    plain = Cluster(broker=LoopBroker())
    assert signal.getsignal(signal.SIGTERM) == plain.sig_handler

    def ours(*_: object) -> None:
        return

    LoopCluster(
        install_signals=lambda: [signal.signal(number, ours) for number in (signal.SIGTERM, signal.SIGINT)]
    )
    assert signal.getsignal(signal.SIGTERM) is ours
    assert signal.getsignal(signal.SIGINT) is ours
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGTERM, signal.SIGINT}


def test_the_sentinel_pings_its_broker_after_its_signals_are_set_and_before_it_forks() -> None:
    """L8: the place where SIGTERM is taken off the sentinel."""
    body = inspect.getsource(Sentinel.start)
    assert body.index("self.broker.ping()") < body.index("self.spawn_cluster()")
    body = inspect.getsource(Sentinel.__init__)
    assert body.index("signal.SIGTERM, signal.SIG_DFL") < body.index("self.start()")


@pytest.mark.processes
def test_a_pusher_with_a_full_queue_does_not_stop_so_a_cluster_may_hang_in_stop() -> None:
    """L8: why a cluster is never asked to stop."""
    context = multiprocessing.get_context("fork")
    queue, stop = Queue(maxsize=1), context.Event()
    # The queue's one place is taken and the stop has been said, before the pusher even starts.
    queue._sem.acquire()
    stop.set()
    process = context.Process(target=pusher.pusher, args=(queue, stop, LoopBroker()), daemon=True)
    process.start()
    try:
        process.join(0.5)
        assert process.is_alive()
        queue._sem.release()
        process.join(10)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join(10)
        queue.close()


def test_a_finished_loop_is_not_stored() -> None:
    """Its tables stay empty: a query would raise here, as the test has no database."""
    ((_, package),) = LoopBroker().dequeue()
    task = SignedPackage.loads(package) | {"success": True, "result": None}
    assert monitor.save_task(task, LoopBroker()) is None


def test_a_worker_announces_itself_before_it_waits_for_its_task() -> None:
    """What the tests of the queue's lock wait for."""
    body = inspect.getsource(worker.worker)
    assert body.index("post_spawn.send") < body.index("iter(task_queue.get")


def test_runworker_is_ours() -> None:
    """channels, once installed as an app, would bring a command of that name."""
    assert get_commands()["runworker"] == "sessions_app"
    assert "channels" not in settings.INSTALLED_APPS


@pytest.mark.parametrize(
    "cluster", [{"timeout": 60, "retry": 60}, {"timeout": 120, "retry": 60}, {"timeout": 90}, {"retry": 60}]
)
def test_a_queue_that_would_deliver_a_running_task_again_is_refused(cluster: dict[str, int]) -> None:
    """C69: retry has to be longer than timeout, defaults included."""
    with override_settings(Q_CLUSTER=cluster):
        assert [message.id for message in checks.queue_settings()] == ["tenure.E001"]


def test_the_start_check_runs_for_every_command() -> None:
    """C69: `runworker` and `migrate` refuse it alike, before they do anything."""
    from django.core.management import call_command

    with (
        override_settings(Q_CLUSTER={"timeout": 60, "retry": 60}),
        pytest.raises(SystemCheckError, match="retry"),
    ):
        call_command("check")
    assert checks.queue_settings() == []
