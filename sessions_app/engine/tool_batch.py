"""The tools' part of a run: outside tools at once, internal ones in order, each with its one result (T2)."""

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from django.conf import settings
from structlog.typing import FilteringBoundLogger

from sessions_app import entries, ids, leases, log, tool_port
from sessions_app.crashpoints import crash_point
from sessions_app.database import hot_cursor
from sessions_app.engine import plan, spending
from sessions_app.engine.happening import Happened, Holder
from sessions_app.engine.state import SessionState
from sessions_app.errors import LeaseLost
from sessions_app.log import NewEntry
from sessions_app.models import Session
from sessions_app.tool_port import Call, Completed, ToolContext, ToolOutcome


class ToolBatch:
    """The running tools of one session. `note` takes entries that are saved already into the context."""

    def __init__(
        self,
        holder: Holder,
        state: SessionState,
        logger: FilteringBoundLogger,
        note: Callable[[Sequence[NewEntry], int], None],
    ) -> None:
        self.holder = holder
        self.state = state
        self.log = logger
        self.note = note
        self.running: dict[asyncio.Task[ToolOutcome], Call] = {}
        self.late: set[asyncio.Task[None]] = set()  # tools past their limit that nobody can stop

    async def run(self, start: tuple[UUID, ...]) -> Happened:
        """Start what is ready and return the first results; outside tools run at once, internal ones in order."""
        state = self.state
        known = {call.id for call in self.running.values()}
        for call in state.calls.values():
            if call.state == "running" and call.id not in known:
                self.running[asyncio.create_task(self._run_outside(call))] = call
        late = []
        for call_id in start:
            call = state.calls[call_id]
            if call.tool_class != "internal":
                continue
            if self.state.time_left() == 0:
                late.append(call)
            else:
                await self._run_internal(call)
        if late:
            return self._too_late(late)
        if not self.running:
            return Happened()
        done, _ = await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
        return self._results_of(done)

    def _results_of(self, done: set[asyncio.Task[ToolOutcome]]) -> Happened:
        results = []
        for task in sorted(done, key=lambda task: self.running[task].position):
            call = self.running.pop(task)
            results.append(Completed(call, "running", task.result(), self.state.attempt))
            self.state.calls.pop(call.id, None)
        self.state.tail = plan.Tail.OWED
        return Happened(
            entries=entries.tool_results((done.call, done.result) for done in results),
            results=results,
            resets_crashes=True,
        )

    def _too_late(self, calls: list[Call]) -> Happened:
        """Internal calls that the time limit lets nobody run any more."""
        results = [Completed(call, call.state, spending.failed(spending.NOT_STARTED)) for call in calls]
        for call in calls:
            self.state.calls.pop(call.id, None)
        self.state.tail = plan.Tail.OWED
        return Happened(
            entries=entries.tool_results((late.call, late.result) for late in results), results=results
        )

    async def _run_outside(self, call: Call) -> ToolOutcome:
        crash_point("tool.before")
        limit = call.time_limit or settings.TENURE.tool_time_limit
        left = self.state.time_left()
        if left == 0:
            return spending.failed(spending.NOT_STARTED)
        bound = limit if left is None else min(limit, left + spending.SLACK)
        outcome = await self._within(bound, call)
        if outcome is None:
            if bound < limit:
                return spending.failed(spending.STOPPED)
            text = (
                f"The tool did not finish within its time limit of {limit:g} s and was stopped; "
                "what it had begun outside may have happened."
            )
            return ToolOutcome("failed", [{"type": "text", "text": text}])
        crash_point("tool.after")
        return outcome

    async def _within(self, seconds: float, call: Call) -> ToolOutcome | None:
        """What the tool brings in this time; None where it takes longer.

        It is stopped then. One that can't be is listened to for as long as the session is held (T5).
        """
        tool = asyncio.create_task(tool_port.runtime().run_outside(call, self._context(call)))
        try:
            await asyncio.wait({tool}, timeout=seconds)
        except asyncio.CancelledError:
            tool.cancel()
            raise
        if not tool.done() and not tool_port.runtime().can_be_stopped(call):
            self.late.add(asyncio.create_task(self._keep_late_answer(call, tool)))
            return None
        tool.cancel()
        await asyncio.wait({tool})
        return None if tool.cancelled() else tool.result()

    async def _keep_late_answer(self, call: Call, tool: asyncio.Task[ToolOutcome]) -> None:
        try:
            outcome = await tool
            await self.holder.in_database(
                keep_late_answer, call, outcome, self.holder.worker_id, self.state.attempt
            )
        except LeaseLost:
            self.log.info("tool.late_answer_lost", tool=call.name)

    async def _run_internal(self, call: Call) -> None:
        """Effect and result in one transaction: never half done (T)."""
        placed = await self.holder.in_database(
            run_internal, call, self._context(call), self.holder.worker_id, self.state.attempt
        )
        if placed is None:
            self.state.calls[call.id] = dataclasses.replace(call, state="waiting")
            return
        self.state.calls.pop(call.id, None)
        self.note([placed.entry], placed.seq)

    def _context(self, call: Call) -> ToolContext:
        return ToolContext(
            project=self.state.project,
            session=self.state.id,
            attempt=self.state.attempt,
            token=ids.encode("tcl", call.id),
            config=self.state.document_of_call(call),
        )

    def finished(self) -> Happened:
        """Results in hand when the run has to stop are still results (A76)."""
        return self._results_of(
            {task for task in self.running if task.done() and not task.cancelled() and not task.exception()}
        )

    def cancel(self) -> None:
        """Before the end of the lease says that they were interrupted."""
        for task in (*self.running, *self.late):
            task.cancel()

    async def stop(self) -> None:
        self.cancel()
        await asyncio.gather(*self.running, *self.late, return_exceptions=True)
        self.running.clear()
        self.late.clear()


def run_internal(call: Call, context: ToolContext, worker: int, attempt: int) -> log.Placed | None:
    """Run an internal tool inside the fence and save its result with its effect; returns the result's entry.

    None where the call waits for something from now on, and has no result yet. Other sessions that the tool
    changes are locked together with its own (L11); where that were too few, it starts again with more.
    """
    also = tool_port.runtime().needs(call)
    while True:
        try:
            return _run_internal(call, context, worker, attempt, also)
        except tool_port.MoreSessions as more:
            also = more.sessions


def _run_internal(
    call: Call, context: ToolContext, worker: int, attempt: int, also: Collection[UUID]
) -> log.Placed | None:
    crash_point("internal.before")
    with leases.fence_of_many(call.session, worker=worker, attempt=attempt, also=also) as rows:
        session = rows[call.session]
        context = dataclasses.replace(context, sessions=rows)
        result = tool_port.runtime().run_internal(call, context, session)
        crash_point("internal.effect")
        placed = None
        if result is None:
            session.save()
        else:
            placed = _save_internal(session, call, result, attempt)
    crash_point("internal.committed")
    return placed


def keep_late_answer(call: Call, result: ToolOutcome, worker: int, attempt: int) -> None:
    """The call has its result for ever; what its tool said later is in the log beside it (T5)."""
    with leases.fence(call.session, worker=worker, attempt=attempt) as session:
        log.append(session, entries.late_answer(call, result), attempt=attempt)
        session.save()


def _save_internal(session: Session, call: Call, result: ToolOutcome, attempt: int) -> log.Placed:
    (placed,) = log.append(session, entries.tool_result(call, result), attempt=attempt)
    with hot_cursor() as cursor:
        tool_port.runtime().complete_calls(cursor, [Completed(call, call.state, result)])
    session.crash_count = 0
    session.save()
    return placed
