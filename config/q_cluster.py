"""django-q2's settings. It only keeps our loop processes alive, so nearly all of it is switched off.

The tasks of the cluster are loops that never end (`docs/decisions/loops-on-django-q2.md`): no task is
stored, acknowledged, delivered twice, timed out or retried. `runworker` sets the number of workers
itself. `retry` and `timeout` mean nothing to our broker, but a value that says "deliver again while it
still runs" is how a queue runs a session twice: a start with `retry <= timeout` is refused
(`sessions_app.hosting.checks`).
"""

from typing import Any

Q_CLUSTER: dict[str, Any] = {
    "name": "tenure",
    "workers": 1,
    # One loop is handed out ahead of time, so that a worker process that was just forked starts at once.
    "queue_limit": 1,
    # How soon, in seconds, a dead worker process is replaced by the cluster (its leases end at once, by us).
    "guard_cycle": 0.1,
    "timeout": 60,
    "retry": 120,
    "max_attempts": 1,
    "save_limit": -1,
    "scheduler": False,
    "catch_up": False,
    "log_level": "ERROR",
}
