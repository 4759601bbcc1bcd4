"""Health: who works, who holds what, what waits to be worked on. Of the whole deployment, as workers are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, Min, Q
from django.http import HttpRequest, HttpResponse

from sessions_app import readiness
from sessions_app.console.pages import ConsolePage
from sessions_app.console.standing import Standing
from sessions_app.models import Lease, Session, SessionStatus, Worker
from sessions_app.readiness import Readiness

SHOWN = 50
"""Rows of each table; there is a count above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """What one project has under way; `oldest` is how long its first due session waits, in seconds."""

    project: str
    due: int
    oldest: float | None
    running: int
    backing_off: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker with how it is, and how many sessions it holds."""

    worker: Worker
    standing: Standing
    held: int
    silent: float  # seconds since its last heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    readiness: Readiness
    depths: list[Depth]
    workers: list[Member]
    leases: list[Lease]
    held: int

    @property
    def due(self) -> int:
        return sum(depth.due for depth in self.depths)

    @property
    def running(self) -> int:
        return sum(depth.running for depth in self.depths)

    @property
    def capacity(self) -> int:
        """How many sessions the workers that take work run at once."""
        return sum(member.worker.capacity for member in self.workers if member.standing.tone == "ok")

    @property
    def oldest(self) -> float | None:
        return max((depth.oldest for depth in self.depths if depth.oldest is not None), default=None)


class Health(ConsolePage):
    place = "console:health"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page; for htmx only what changes on it."""
        context = {"report": report()}
        if self.is_fragment:
            return self.fragment("console/health/report.html", context)
        return self.page("console/health/page.html", context)


def report() -> Report:
    """Six statements at most, each over rows that have work or live: idle sessions cost nothing."""
    ready = readiness.check()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    moving = Q(status__in=[SessionStatus.QUEUED, SessionStatus.RUNNING, SessionStatus.BACKING_OFF])
    waiting = Q(status=SessionStatus.WAITING, turn__isnull=False, wake_at=None)
    is_due = Q(status=SessionStatus.QUEUED)
    counted = (
        Session.objects.filter(moving | waiting)
        .values("project__name")
        .annotate(
            due=Count("pk", filter=is_due),
            first=Min("wake_at", filter=is_due),
            running=Count("pk", filter=Q(status=SessionStatus.RUNNING)),
            backing_off=Count("pk", filter=Q(status=SessionStatus.BACKING_OFF)),
            waiting=Count("pk", filter=waiting),
        )
        .order_by("project__name")
    )
    workers: list[Any] = list(
        Worker.objects.filter(dead=False).annotate(held=Count("leases")).order_by("-id")[:SHOWN]
    )
    leases = list(
        Lease.objects.select_related("session", "worker", "session__project").order_by("acquired_at")[:SHOWN]
    )
    return Report(
        readiness=ready,
        depths=[_depth(found, now) for found in counted],
        workers=[_member(worker, now) for worker in workers],
        leases=leases,
        held=Lease.objects.count() if len(leases) == SHOWN else len(leases),
    )


def _depth(found: Mapping[str, Any], now: datetime) -> Depth:
    oldest = None if found["first"] is None else max(0.0, (now - found["first"]).total_seconds())
    return Depth(
        project=found["project__name"],
        due=found["due"],
        oldest=oldest,
        running=found["running"],
        backing_off=found["backing_off"],
        waiting=found["waiting"],
    )


def _member(worker: Any, now: datetime) -> Member:
    if worker.expires_at <= now:
        standing = Standing(word="Silent", tone="bad", detail="past its time to live")
    elif worker.draining:
        standing = Standing(word="Draining", tone="warn", detail="a planned stop")
    else:
        standing = Standing(word="Alive", tone="ok")
    return Member(
        worker=worker,
        standing=standing,
        held=worker.held,
        silent=max(0.0, (now - worker.renewed_at).total_seconds()),
    )
