"""Durable steps per second over the whole path, as a share of what the same database can do at all.

The floor: as many processes and threads as the workers have, each running one prepared statement per step (a
fenced update of the session and the insert of an entry) in its own commit, through psycopg, fsync on. The
engine: `runworker` with its worker loops, each session claimed, its scripted model asked, the reply saved, its
tool run, the result saved, and so on. A step is one fenced commit's worth of one session: a model reply or a
tool result.

Both run on the same tables of the same server, one after the other, so the share says something where the
absolute numbers only describe the machine.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from django.db.models import Sum

from bench import rows
from bench.report import Report
from sessions_app import ids
from sessions_app.database import dumps
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import Lease, Project, Session, Worker
from sessions_app.models.fields import ClockTimestamp

LEAST_SHARE = 0.20
CALLS_PER_TURN = 8  # model calls with a tool each, before the closing reply

_FLOOR_STEP = """
WITH held AS (
    SELECT s.id FROM sessions_app_session s JOIN sessions_app_lease l ON l.session_id = s.id
    WHERE s.id = %(session)s AND l.worker_id = %(worker)s AND l.attempt = %(attempt)s FOR UPDATE OF s, l
), moved AS (
    UPDATE sessions_app_session s SET next_seq = s.next_seq + 1, head_seq = s.next_seq FROM held
    WHERE s.id = held.id RETURNING s.id, s.project_id, s.next_seq - 1 AS seq
)
INSERT INTO sessions_app_entry (id, session_id, project_id, seq, parent_seq, kind, attempt, actor, data)
SELECT %(id)s, id, project_id, seq, seq - 1, 'note', %(attempt)s, %(actor)s::jsonb, %(data)s::jsonb FROM moved
"""
_ENTRY_BYTES = 400  # about what a reply or a result weighs


def run(report: Report, *, seconds: float, loops: int, sessions: int) -> None:
    """Measure the floor, then the engine, `seconds` each."""
    threads = settings.TENURE.worker_threads
    report.say(f"{loops} processes with {threads} threads, {sessions} sessions at once, {seconds:g} s each")
    project = Project.objects.create(name=f"bench-{uuid.uuid4()}")
    try:
        floor = _floor(project, seconds=seconds, processes=loops, threads=threads, sessions=sessions)
        report.row("floor", steps_per_second=floor)
        engine = _engine(project, report, seconds=seconds, loops=loops, at_once=sessions, expected=floor)
        share = engine / floor
        report.row("engine", steps_per_second=engine, share_of_floor=share)
        report.expect(share >= LEAST_SHARE, f"{share:.0%} of the floor, at least {LEAST_SHARE:.0%} wanted")
    finally:
        rows.remove(project)


# --- the floor -------------------------------------------------------------------------------------------


def _floor(project: Project, *, seconds: float, processes: int, threads: int, sessions: int) -> float:
    worker = Worker.objects.create(
        owner=f"bench-{project.id}",
        host="bench",
        pid=os.getpid(),
        version="",
        capacity=0,
        expires_at=ClockTimestamp(),
    )
    held = rows.sessions(project, sessions, rows.config(project, {}))
    Lease.objects.bulk_create(Lease(session=session, worker=worker, attempt=0) for session in held)
    parameters = connection.get_connection_params()
    dsn = psycopg.conninfo.make_conninfo(
        **{name: str(value) for name, value in parameters.items() if isinstance(value, str | int)}
    )
    connection.close()
    done = multiprocessing.get_context("fork").Array("q", processes * threads)
    share = [
        [session.id for session in held[index :: processes * threads]] for index in range(processes * threads)
    ]
    children = [
        multiprocessing.get_context("fork").Process(
            target=_floor_process, args=(dsn, worker.pk, share, process * threads, threads, seconds, done)
        )
        for process in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    Lease.objects.filter(worker=worker).delete()
    worker.delete()
    return float(sum(done[:])) / seconds


def _floor_process(
    dsn: str, worker: int, share: list[list[Any]], first: int, threads: int, seconds: float, done: Any
) -> None:
    running = [
        threading.Thread(
            target=_floor_thread, args=(dsn, worker, share[first + at], seconds, done, first + at)
        )
        for at in range(threads)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def _floor_thread(dsn: str, worker: int, sessions: list[Any], seconds: float, done: Any, place: int) -> None:
    data = dumps({"text": "x" * _ENTRY_BYTES})
    values = {"worker": worker, "attempt": 0, "actor": dumps(SYSTEM), "data": data}
    count = 0
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as raw:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            values["id"] = ids.new_id()
            values["session"] = sessions[count % len(sessions)]
            raw.execute(_FLOOR_STEP, values)
            count += 1
    done[place] = count


# --- the engine ------------------------------------------------------------------------------------------


def _engine(
    project: Project, report: Report, *, seconds: float, loops: int, at_once: int, expected: float
) -> float:
    warm_up = 3.0
    steps_per_turn = 2 * CALLS_PER_TURN + 1
    enough = int(expected * 0.8 * (seconds + warm_up + 2) / steps_per_turn) + 2 * at_once
    report.say(f"  preparing {enough} sessions of {steps_per_turn} steps")
    calls = [{"name": "bench_echo", "arguments": {"text": "x" * 200}}]
    replies: list[dict[str, Any]] = [{"text": "y" * 200, "tool_calls": calls} for _ in range(CALLS_PER_TURN)]
    config = rows.config(project, {"replies": [*replies, {"text": "done"}]})
    rows.give_input(rows.sessions(project, enough, config))
    command = [sys.executable, "manage.py", "runworker", "--no-sweeper"]
    command += ["--loops", str(loops), "--capacity", str(-(-at_once // loops))]
    environment = os.environ | {
        "TENURE_TOOL_MODULES": "bench.tools",
        "TENURE_LOG_LEVEL": "WARNING",
    }
    workers = subprocess.Popen(command, cwd=settings.BASE_DIR, env=environment)
    try:
        _wait_for_first_steps(project, workers)
        time.sleep(warm_up)
        before, started = _steps(project), time.monotonic()
        time.sleep(seconds)
        after, ended = _steps(project), time.monotonic()
    finally:
        workers.terminate()
        workers.wait()
    if not Session.objects.filter(project=project, wake_at__isnull=False).exists():
        report.expect(False, "the workers ran out of sessions")
    return (after - before) / (ended - started)


def _wait_for_first_steps(project: Project, workers: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 30
    while _steps(project) < 100:
        if workers.poll() is not None:
            raise RuntimeError(f"runworker ended with status {workers.returncode} before its first step")
        if time.monotonic() > limit:
            raise TimeoutError("the workers made no step in 30 s")
        time.sleep(0.05)


def _steps(project: Project) -> int:
    totals = Session.objects.filter(project=project).aggregate(
        model=Sum("model_calls"), tool=Sum("tool_calls")
    )
    return (totals["model"] or 0) + (totals["tool"] or 0)
