"""The broker that turns a django-q2 cluster into a keeper of loop processes.

`dequeue()` always has exactly one task, "be a loop", and nothing is stored anywhere: there is no queue
row that could be delivered twice, acknowledged late or lost. With a queue limit of one, the next task
already lies in the cluster's queue, so that a worker process that was forked to replace a dead one starts
at once. Which loop it becomes is told to it by the supervisor (`liveness.py`), never by the task.
"""

import signal
from typing import Any
from uuid import uuid4

from django_q.brokers import Broker
from django_q.signing import SignedPackage

TASK = "sessions_app.hosting.loop_process.run_loop"


class LoopBroker(Broker):  # type: ignore[misc]
    """Endless source of the one task; every other duty of a broker is void."""

    def dequeue(self) -> list[tuple[None, str]]:
        """One signed task. Its acknowledgement id is None: there is nothing to acknowledge."""
        task: dict[str, Any] = {
            "id": uuid4().hex,
            "name": "loop",
            "func": TASK,
            "args": (),
            "kwargs": {},
            # Never timed out, never saved as a result.
            "timeout": -1,
            "save": False,
        }
        return [(None, SignedPackage.dumps(task))]

    def ping(self) -> bool:
        """Called by a sentinel before it forks its workers: take SIGTERM off it and, by inheritance, them.

        A signal for the whole group (systemd, a terminal) would else kill the sentinel, which has set
        SIGTERM to its default, and with it every loop that is about to drain. Loops install their own
        handlers.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return True

    def queue_size(self) -> int:
        """There is no queue."""
        return 0

    @staticmethod
    def get_cache() -> None:
        """No cache: the cluster's statistics are not kept, ten writes a second would serve nobody."""
