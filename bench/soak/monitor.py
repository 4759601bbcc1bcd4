"""Rows while the soak runs, and the kills: SIGKILL for the loop process that runs the most sessions."""

import os
import signal
import time
from collections import Counter

from django.db.models import Count

from bench.report import FellShort, Report
from bench.soak.talk import Refused, Talk
from sessions_app.demo.processes import Child, ChildFailed
from sessions_app.models import ModelCall, Project, Session, Turn, TurnStatus, Worker

_LOOK = 0.25
ROW_EVERY = 5.0
STUCK_AFTER = 60.0
"""Seconds without a new model call or an ended turn after which the soak gives up."""


def watch(
    report: Report, talk: Talk, *, project: Project, worker: Child, others: list[Child], kills: int
) -> None:
    """Return when everything was said and answered. `kills` come at even shares of the way."""
    started = last_row = moved = time.monotonic()
    seen, killed = (0, 0), 0
    expected = sum(len(said.plan.turns) for said in talk.said)
    while not talk.finished:
        time.sleep(_LOOK)
        for child in (worker, *others):
            if not child.running:
                raise ChildFailed(f"{child.name} ended with status {child.process.returncode}", child)
        ended = Turn.objects.filter(session__project=project).exclude(status=TurnStatus.RUNNING).count()
        now, state = time.monotonic(), (ended, len(talk.proxy.exchanges))
        if state != seen:
            seen, moved = state, now
        if now - moved > STUCK_AFTER:
            raise FellShort(f"nothing has moved for {STUCK_AFTER:g} s: {_standing(project)}")
        # In the middle: neither before the first turn has ended nor when there is nothing left to do.
        if killed < kills and ended * (kills + 1) >= expected * (killed + 1) and (pid := _busiest(worker)):
            killed += 1
            os.kill(pid, signal.SIGKILL)
            report.row(f"kill {killed}", at_s=round(now - started, 1), loop=pid, turns_ended=ended)
        if now - last_row >= ROW_EVERY:
            last_row = now
            _row(report, talk, project, round(now - started), ended)
    if talk.failure is not None:
        refusals = _refusals(talk.failure)
        if refusals is None:
            raise talk.failure  # a mistake of the soak itself
        raise FellShort(refusals) from talk.failure
    report.expect(killed == kills, f"{killed} of {kills} kills found a loop at work")
    report.row("run", seconds=round(time.monotonic() - started, 1), kills=killed)


def _busiest(worker: Child) -> int | None:
    pids = [process.pid for process in worker.tree()]
    rows = Worker.objects.filter(pid__in=pids, dead=False).annotate(held=Count("leases")).order_by("-held")
    found = rows.first()
    return found.pid if found is not None and found.held else None


def _row(report: Report, talk: Talk, project: Project, second: int, ended: int) -> None:
    calls = Counter(ModelCall.objects.filter(session__project=project).values_list("state", flat=True))
    report.row(
        f"at {second} s",
        sessions_done=sum(said.done for said in talk.said),
        turns_ended=ended,
        requests=len(talk.proxy.exchanges),
        replies=calls["succeeded"],
        failed=calls["failed"],
        interrupted=calls["interrupted"],
    )


def _standing(project: Project) -> str:
    statuses = Counter(Session.objects.filter(project=project).values_list("status", flat=True))
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


def _refusals(failure: BaseException) -> str | None:
    """What the API refused; None where anything else went wrong. Of many the first is enough, with their number."""
    if isinstance(failure, BaseExceptionGroup):
        found = [_refusals(one) for one in failure.exceptions]
        if None in found:
            return None
        return f"{found[0]} (and {len(found) - 1} more)" if len(found) > 1 else found[0]
    return str(failure) if isinstance(failure, Refused) else None
