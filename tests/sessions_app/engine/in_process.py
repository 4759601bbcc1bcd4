"""A real worker in this process: it works until sessions are at rest, then stops as planned."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connections

from sessions_app.engine.worker import Worker
from sessions_app.hosting.stop import StopFlag
from sessions_app.models import Session, SessionStatus
from tests.processes.workers import FAST
from tests.staging import eventually

_AT_REST = {SessionStatus.IDLE, SessionStatus.WAITING, SessionStatus.ARCHIVED}


class _Worker(Worker):
    def _close_pool(self) -> None:
        self._pool.submit(connections.close_all).result()
        super()._close_pool()


@contextmanager
def working(settings: Any, **changed: Any) -> Iterator[Callable[[UUID], Session]]:
    """Gives a function that waits until a session is at rest and returns its row."""
    settings.TENURE = dataclasses.replace(settings.TENURE, **{**FAST, "worker_threads": 1, **changed})
    stop = StopFlag()

    async def life() -> None:
        # One thread beside the loop's, so that its connection can be closed: here the process lives on.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        try:
            await _Worker("in process", stop).run()
        finally:
            await asyncio.to_thread(connections.close_all)

    thread = threading.Thread(target=asyncio.run, args=(life(),), daemon=True)
    thread.start()

    def rested(session: UUID) -> Session:
        return eventually(
            lambda: Session.objects.filter(pk=session, status__in=_AT_REST, lease=None).first(), within=20
        )

    try:
        yield rested
    finally:
        stop.drain(limit=6, margin=2)
        thread.join(20)
        assert not thread.is_alive(), "the worker did not stop"
