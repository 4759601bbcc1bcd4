"""R5, R9: a worker dies while it compacts an idle session that somebody asked to be compacted."""

import dataclasses
import signal
from typing import Any
from uuid import UUID

import pytest

from sessions_app import configs, control, invariants, leases, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import EndReason, Entry, Lease, ModelCall, SessionStatus
from tests import factories
from tests.processes.workers import FAST, Workers
from tests.staging import eventually

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, **FAST)


def rests(session: UUID) -> bool:
    return factories.reread(session).status == SessionStatus.IDLE


def asked(workers: Workers) -> UUID:
    """A session that has spoken once and was asked to be compacted."""
    document = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "crash"},
        "script": {"replies": [{"text": "It rained all day. " * 20}, {"text": "Rain."}]},
    }
    project = factories.project().pk
    config = configs.create_config(project=project, document=document).row
    first = NewInput(content=[{"type": "text", "text": "How was it?"}], actor=SYSTEM)
    session = session_service.start_session(project=project, actor=SYSTEM, config=config.pk, input=first).pk
    worker = workers.start(owner="talks")
    eventually(lambda: rests(session) or worker.status is not None, within=20)
    assert rests(session), worker.story()
    worker.stop()
    control.request_compaction(session=session, actor=SYSTEM)
    return session


def dies(workers: Workers, session: UUID, *, at: str) -> None:
    worker = workers.start(owner=f"dies at {at}", only=[session], crash_at=at)
    assert worker.wait() == -signal.SIGKILL, worker.story()

    def ended() -> bool:
        # The transaction it died in may hold the session's lock for a moment longer.
        leases.end_worker(owner=worker.owner, reason=EndReason.CRASH)
        return not Lease.objects.filter(pk=session).exists()

    eventually(ended)


@pytest.mark.timeout(120)
def test_it_is_asked_again(workers: Workers) -> None:
    """A148, R1: each time from saved state; the request outlives its workers."""
    session = asked(workers)
    points = ("claim.committed", "model.before", "model.streaming", "step.written:2")
    for deaths, point in enumerate(points, start=1):
        dies(workers, session, at=point)
        row = factories.reread(session)
        assert (row.compact_requested, row.status, row.crash_count) == (True, "queued", deaths), point
    last = workers.start(owner="lives")
    eventually(lambda: rests(session), within=20)
    last.stop()
    row = factories.reread(session)
    assert (row.compact_requested, row.crash_count) == (False, 0)
    (checkpoint,) = Entry.objects.filter(session_id=session, kind="checkpoint")
    assert checkpoint.data["summary"] == "Rain."
    calls = ModelCall.objects.filter(session_id=session, purpose="compaction").order_by("started_at")
    assert [call.state for call in calls] == ["interrupted"] * 3 + ["succeeded"]
    assert invariants.check_session(session, resumed=[]) == []


@pytest.mark.timeout(120)
def test_one_that_kills_its_workers_is_given_up(workers: Workers, settings: Any) -> None:
    """R9: at the crash limit, with a note that says so; the session takes input as before."""
    settings.TENURE = dataclasses.replace(settings.TENURE, crash_limit=2)
    session = asked(workers)
    dies(workers, session, at="model.after")
    dies(workers, session, at="model.after")
    row = factories.reread(session)
    assert (row.compact_requested, row.status, row.crash_count) == (False, "idle", 0)
    note = Entry.objects.get(session_id=session, kind="note")
    assert "given up: its worker died 2 times" in note.data["text"]
    assert invariants.check_session(session, resumed=[]) == []
