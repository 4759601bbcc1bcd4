"""How long a session stands still when its worker dies: from the kill to the next attempt holding the lease.

Two ways to die, each many times: SIGKILL of the loop process that runs the session (its supervisor lives and
notices), and SIGKILL of a whole `runworker` tree (only other hosts can notice; another `runworker` plays them).
The victim is always in the middle of a model call. Real processes, default settings.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

import psutil
from django.conf import settings

from bench import rows
from bench.report import Report, percentile
from sessions_app import control
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import AgentConfig, Lease, ModelCall, Project, Worker

LOOP_MEDIAN = 1.5  # seconds
TREE_MEDIAN = 3.0
TREE_P95 = 5.0
_MODEL_DELAY = 30  # seconds; nobody waits for it
_START_LIMIT = 60.0
_LIMIT = 60.0


def run(report: Report, *, kills: int) -> None:
    project = Project.objects.create(name=f"bench-{uuid.uuid4()}")
    trees: list[subprocess.Popen[bytes]] = []
    try:
        config = rows.config(project, {"replies": [{"text": "hello", "delay": _MODEL_DELAY}]})
        trees += [_start_tree(), _start_tree()]
        report.say(f"{kills} kills of a loop process, then {kills} of a whole runworker tree")
        loop = [_kill_loop(report, project, config, at) for at in range(1, kills + 1)]
        tree = [_kill_tree(report, project, config, at, trees) for at in range(1, kills + 1)]
    finally:
        for process in trees:
            process.terminate()
        for process in trees:
            process.wait()
        rows.remove(project)
    _judge(report, "loop process", loop, median=LOOP_MEDIAN, p95=None)
    _judge(report, "whole tree", tree, median=TREE_MEDIAN, p95=TREE_P95)


def _judge(report: Report, what: str, times: list[float], *, median: float, p95: float | None) -> None:
    middle, high = statistics.median(times), percentile(times, 0.95)
    report.row(what, kills=len(times), median_s=middle, p95_s=high, longest_s=max(times))
    report.expect(middle < median, f"{what}: median {middle:.2f} s, under {median:g} s wanted")
    if p95 is not None:
        report.expect(high < p95, f"{what}: p95 {high:.2f} s, under {p95:g} s wanted")


def _kill_loop(report: Report, project: Project, config: AgentConfig, number: int) -> float:
    lease = _in_a_model_call(project, config)
    killed = time.monotonic()
    os.kill(lease.worker.pid, signal.SIGKILL)
    return _recovered(report, "loop process killed", lease, killed, number)


def _kill_tree(
    report: Report, project: Project, config: AgentConfig, number: int, trees: list[subprocess.Popen[bytes]]
) -> float:
    lease = _in_a_model_call(project, config)
    above = {parent.pid for parent in psutil.Process(lease.worker.pid).parents()}
    victim = next(tree for tree in trees if tree.pid in above)
    family = [victim.pid, *(child.pid for child in psutil.Process(victim.pid).children(recursive=True))]
    killed = time.monotonic()
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it died with its parent
    took = _recovered(report, "whole tree killed", lease, killed, number)
    victim.wait()
    trees.remove(victim)
    trees.append(_start_tree())
    return took


def _in_a_model_call(project: Project, config: AgentConfig) -> Lease:
    """A new session, caught while a worker waits for its model."""
    (session,) = rows.sessions(project, 1, config)
    rows.give_input([session])

    def asked() -> Lease | None:
        if not ModelCall.objects.filter(session=session, state="started").exists():
            return None
        return Lease.objects.select_related("worker").filter(session=session).first()

    return _wait(asked, "no worker took the session")


def _recovered(report: Report, what: str, before: Lease, killed: float, number: int) -> float:
    session = before.session_id
    _wait(
        lambda: Lease.objects.filter(session=session, attempt__gt=before.attempt).exists(), "nobody took over"
    )
    took = time.monotonic() - killed
    report.row(f"{what} {number}", recovery_s=took)
    # Out of the way, so that the next victim is the only one.
    control.cancel(session=session, actor=SYSTEM)
    return took


def _start_tree() -> subprocess.Popen[bytes]:
    known = set(Worker.objects.filter(dead=False).values_list("pk", flat=True))
    command = [sys.executable, "manage.py", "runworker", "--loops", "2"]
    environment = os.environ | {"TENURE_LOG_LEVEL": "CRITICAL"}
    process = subprocess.Popen(command, cwd=settings.BASE_DIR, env=environment, start_new_session=True)
    _wait(
        lambda: (
            Worker.objects.filter(dead=False).exclude(pk__in=known).count() >= 2 or process.poll() is not None
        ),
        "runworker did not start",
        limit=_START_LIMIT,
    )
    if process.poll() is not None:
        raise RuntimeError(f"runworker ended with status {process.returncode} before it was ready")
    return process


def _wait[T](condition: Callable[[], T | None], otherwise: str, limit: float = _LIMIT) -> T:
    until = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise TimeoutError(f"{otherwise} in {limit:g} s")
        time.sleep(0.01)
