"""Named points at which a process can be made to die, so that tests can prove that dying there loses nothing.

`TENURE_CRASH_AT=step.written` ends the process with SIGKILL when it comes by, `step.written:3` the third time.
The names are data: a test enumerates them all, and a name that is not here cannot be passed.
"""

import os
import signal
import threading

from django.conf import settings

POINTS = {
    "claim.before": "before sessions are claimed",
    "claim.committed": "sessions are claimed, nothing has run",
    "load.done": "the claimed session is read, nothing is planned",
    "step.locked": "a step's rows are locked, nothing is written",
    "step.written": "a step is written, its COMMIT is not sent",
    "step.committed": "a step is committed, the worker does not know it yet",
    "parent.told": "the parent of a subagent is told of its end, the COMMIT of both is not sent",
    "model.before": "the model call is committed as started, not yet sent",
    "model.streaming": "the model's reply has begun to arrive",
    "model.after": "the model's reply is complete, nothing of it saved",
    "tool.before": "an outside tool is committed as running, not yet started",
    "tool.after": "an outside tool has had its effect, its result is not saved",
    "internal.before": "an internal tool is about to run inside the fence",
    "internal.effect": "an internal tool has had its effect, its result is not written",
    "internal.committed": "an internal tool's effect and result are committed",
    "release.before": "the session is about to be released",
}

_lock = threading.Lock()
_passed: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Die here if this is the point, and this the time, that `TENURE_CRASH_AT` names."""
    wanted = settings.TENURE.crash_at
    if not wanted:
        return
    if name not in POINTS:
        raise ValueError(f"unknown crash point {name!r}")
    point, _, times = wanted.partition(":")
    if point != name:
        return
    with _lock:
        _passed[name] = count = _passed.get(name, 0) + 1
    if count == int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
