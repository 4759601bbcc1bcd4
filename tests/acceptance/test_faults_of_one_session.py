"""A fault of one session is that session's own: its worker goes on, and so does the session (in one process)."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from sessions_app import wakeups
from sessions_app.engine import calling
from sessions_app.engine.worker import Worker
from sessions_app.hosting.stop import StopFlag
from sessions_app.models import Lease
from tests.acceptance import agents
from tests.staging import eventually


class InProcess:
    """A worker in a thread of the test process, so that a test can reach into it."""

    def __init__(self) -> None:
        self.stop = StopFlag()
        self.worker = Worker("in process", self.stop)
        self._thread = threading.Thread(target=lambda: asyncio.run(self.worker.run()))
        self._thread.start()

    def cancel_run(self, session: Any) -> None:
        _, task = self.worker._runs[session]
        self.worker._loop.call_soon_threadsafe(task.cancel)

    def end(self) -> None:
        self.stop.drain(limit=5, margin=1)
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def worker(transactional_db: None) -> Iterator[InProcess]:
    made = InProcess()
    yield made
    made.stop.abort()
    made._thread.join(10)
    wakeups.close()
    connections.close_all()


def test_a_cancelled_run_is_retried_and_its_worker_goes_on(worker: InProcess) -> None:
    """A16: something inside one session cancels its own run."""
    session = agents.start({"text": "Once.", "delay": 0.5})
    agents.wait_until_asking(session)
    worker.cancel_run(session)
    agents.wait_until_asking(session, more_than=1)
    other = agents.start({"text": "Beside it."})
    agents.wait_until_at_rest(other)
    agents.wait_until_at_rest(session)
    assert (agents.said(session), agents.said(other)) == (["Once."], ["Beside it."])
    assert agents.resumed(session) == [(2, "crash")]
    worker.end()


@pytest.mark.parametrize("error", [RuntimeError("a fault of ours"), KeyError("x"), RecursionError()])
def test_an_error_releases_the_session_and_the_loop_goes_on(
    worker: InProcess, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A17: the first call fails inside the engine, the lock is released, the second attempt answers."""
    ask = calling.ask
    failures = [error]

    async def faulty(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return await ask(*args, **kwargs)

    monkeypatch.setattr(calling, "ask", faulty)
    session = agents.start({"text": "Once."})
    eventually(lambda: agents.said(session) == ["Once."], within=10)
    agents.wait_until_at_rest(session)
    assert agents.resumed(session) == [(2, "crash")]
    assert not Lease.objects.exists()
    worker.end()
