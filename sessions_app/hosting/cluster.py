"""One django-q2 cluster, handled so that it can be started, watched and killed, and never asked to stop.

`Cluster.stop()` joins the sentinel, which waits for the pusher, which waits for a place in a queue that
nobody reads any more: it may hang for ever. Its exit code says nothing either. So the only end of a
cluster is SIGKILL for its process group, after its loops have ended by themselves.
"""

import logging
import multiprocessing
import signal
from collections.abc import Callable

from django.db import connections
from django_q.cluster import Cluster
from django_q.conf import Conf

from sessions_app.hosting import process_tree
from sessions_app.hosting.broker import LoopBroker

GONE_LIMIT = 5.0
"""Seconds for which a killed cluster's processes are waited for."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def configure(*, processes: int) -> None:
    """Set what django-q2 reads from its settings at import: its own defaults do not suit endless tasks."""
    # Its default on macOS and from Python 3.14 on would import everything again in every process.
    multiprocessing.set_start_method("fork", force=True)
    Conf.WORKERS = processes
    Conf.QUEUE_LIMIT = 1
    Conf.SCHEDULER = False
    Conf.SYNC = False
    Conf.CPU_AFFINITY = 0
    logger = logging.getLogger("django-q")
    logger.setLevel(logging.WARNING)
    logger.addFilter(_not_a_replacement)


def _not_a_replacement(record: logging.LogRecord) -> bool:
    """Drop "reincarnated worker": the supervisor reports each death itself, with name and reason."""
    return record.funcName != "reincarnate"


class LoopCluster:
    """A running cluster; `pid` is its sentinel and the name of its process group."""

    def __init__(self, *, install_signals: Callable[[], None]) -> None:
        # The constructor installs handlers that join; a signal in between would end up in them.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._cluster = Cluster(broker=LoopBroker())
            install_signals()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    @property
    def pid(self) -> int:
        """The sentinel's pid; 0 before the start."""
        return (self._cluster.sentinel.pid or 0) if self._cluster.sentinel is not None else 0

    @property
    def alive(self) -> bool:
        """Whether the sentinel is there; reaps it when not."""
        return self._cluster.sentinel is not None and bool(self._cluster.sentinel.is_alive())

    def start(self) -> None:
        """Fork the sentinel and return when it has forked its workers; RuntimeError if it died before."""
        connections.close_all()
        self._cluster.start()

    def kill(self) -> bool:
        """SIGKILL everything of the cluster and wait until it is gone; False if some of it still is not."""
        if not self.pid:
            return True
        process_tree.kill_group(self.pid)
        self._cluster.sentinel.join(GONE_LIMIT)
        # Its members are reaped by us, the subreaper, once the sentinel is.
        return process_tree.wait_for_group(self.pid, limit=GONE_LIMIT)
