"""Shared commits: steps that gather while a commit is under way go out together with the next one.

One commit is under way at a time. Under little load a step is committed at once and alone; under much, dozens
share one transaction and one fsync, and nobody waits for a timer.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from sessions_app.database import is_transient
from sessions_app.steps import StepResult, StepWrite

logger = structlog.get_logger(__name__)

MAX_BATCH = 64  # steps of one transaction
_FIRST_PAUSE = 0.05  # seconds between tries while the database is away, doubling
_LONGEST_PAUSE = 1.0

type Commit = Callable[[Sequence[StepWrite]], Awaitable[list[StepResult]]]


class Committer:
    """`commit` returns when the step is saved, lost or refused."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: list[tuple[StepWrite, asyncio.Future[StepResult]]] = []
        self._task: asyncio.Task[None] | None = None

    async def commit(self, step: StepWrite) -> StepResult:
        """While the database is away the step is kept and tried again; the worker's heart decides for how long.

        A step that a cancelled run leaves behind is still committed: its lease is ended behind it.
        """
        future: asyncio.Future[StepResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((step, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._commit_batch(batch)
        finally:
            self._task = None

    async def _commit_batch(self, batch: list[tuple[StepWrite, asyncio.Future[StepResult]]]) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                results = await self._commit([step for step, _ in batch])
            except Exception as error:  # noqa: BLE001 - handed to those who wait for it
                if not is_transient(error):
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    return
                logger.warning("steps.retried", steps=len(batch), error=str(error).strip())
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the tries
                pause = min(_LONGEST_PAUSE, pause * 2)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    if not future.done():
                        future.set_result(result)
                return
