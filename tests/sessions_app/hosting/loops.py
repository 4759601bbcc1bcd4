"""Small loops that tell a test what happens to them, in place of the engine and the sweeper.

Reports are JSON lines on the pipe whose number is in HOSTING_REPORTS. Every process of the family
inherits its writing end, so a test reads end of file exactly when the last process is gone.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from django.db import OperationalError, connection

from sessions_app.hosting.stop import StopFlag

REPORTS = "HOSTING_REPORTS"
BEHAVIOUR = "HOSTING_BEHAVIOUR"
DATABASE_DOWN = "HOSTING_DATABASE_DOWN"
ASK_DATABASE = "HOSTING_ASK_DATABASE"


def report(event: str, **fields: Any) -> None:
    os.write(
        int(os.environ[REPORTS]), json.dumps({"event": event, "pid": os.getpid(), **fields}).encode() + b"\n"
    )


def note_spawn(**_: Any) -> None:
    """Receiver of django-q2's `post_spawn`: a worker process is about to wait for its task."""
    report("spawned", parent=os.getppid(), group=os.getpgrp())


def worker(owner: str, stop: StopFlag) -> None:
    """Behaves as HOSTING_BEHAVIOUR says."""
    report("running", role="worker", owner=owner, parent=os.getppid(), group=os.getpgrp(), title=_title())
    behaviour = os.environ.get(BEHAVIOUR, "short_steps")
    if behaviour == "dies_at_once":
        os._exit(9)
    if behaviour == "raises":
        raise RuntimeError("a loop that is broken")
    stop.wait()
    report("draining", owner=owner, seconds=stop.deadline and stop.deadline - time.monotonic())
    if behaviour == "long_step":
        stop.wait_abort()
        report("aborting", owner=owner)
    if behaviour == "deaf":
        while True:
            time.sleep(60)
    report("returned", owner=owner)


def sweeper(owner: str, stop: StopFlag) -> None:
    report("running", role="sweeper", owner=owner, parent=os.getppid(), group=os.getpgrp(), title=_title())
    stop.wait()
    report("returned", owner=owner)


def end_worker(*, owner: str, reason: str) -> int:
    """Fails like a database that is away while the file named by HOSTING_DATABASE_DOWN exists.

    With HOSTING_ASK_DATABASE it asks the real one.
    """
    down = os.environ.get(DATABASE_DOWN)
    if down and Path(down).exists():
        report("database_down", owner=owner)
        raise OperationalError("the database system is shutting down")
    if os.environ.get(ASK_DATABASE):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    report("released", owner=owner, reason=reason)
    return 1


def _title() -> str:
    title = Path("/proc/self/comm")
    return title.read_text().strip() if title.exists() else ""
