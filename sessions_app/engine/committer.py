"""Shared commits: steps that gather while a commit is under way go out together with the next one.

One commit is under way at a time. Under little load a step is committed at once and alone; under much, dozens
share one transaction and one fsync, and nobody waits for a timer. A step whose session stays locked by somebody
else is set aside and tried again beside the others, one at a time, so that it delays none of them.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from sessions_app.database import is_transient
from sessions_app.steps import Busy, StepResult, StepWrite

logger = structlog.get_logger(__name__)

MAX_BATCH = 64  # steps of one transaction
_FIRST_PAUSE = 0.05  # seconds between tries while the database is away, doubling
_LONGEST_PAUSE = 1.0

type Commit = Callable[[Sequence[StepWrite]], Awaitable[list[StepResult | Busy]]]
type _Waiting = tuple[StepWrite, asyncio.Future[StepResult]]


class Committer:
    """`commit` returns when the step is saved, lost or refused."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._busy: list[_Waiting] = []
        self._busy_task: asyncio.Task[None] | None = None

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

    async def _work_busy(self) -> None:
        """Each try waits in the database for the lock, as long as a statement may."""
        try:
            while self._busy:
                await asyncio.sleep(_FIRST_PAUSE)
                await self._commit_batch([self._busy.pop(0)])
        finally:
            self._busy_task = None

    async def _commit_batch(self, batch: list[_Waiting]) -> None:
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
                for (step, future), result in zip(batch, results, strict=True):
                    if isinstance(result, Busy):
                        self._set_aside(step, future)
                    elif not future.done():
                        future.set_result(result)
                return

    def _set_aside(self, step: StepWrite, future: asyncio.Future[StepResult]) -> None:
        self._busy.append((step, future))
        if self._busy_task is None:
            self._busy_task = asyncio.create_task(self._work_busy())
