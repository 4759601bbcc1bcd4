"""One held session, from its claim to its release: plan, act, save, and again.

A `Run` is a task on the worker's event loop. It touches the database only through its worker (`commit` for
steps, `in_database` for the rest), so it holds no connection while a model streams or a tool runs (L10). It
ends in one of four ways: released by a step, released by the tables' due time, lost (the fence refused it or
the heart saw the lease gone; nothing is written), or stopped by a drain (what is finished is saved, what runs
is settled by the end of the lease).
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import UUID

import structlog
from django.conf import settings

from sessions_app import entries, ids, leases, log, steps, tool_port
from sessions_app.crashpoints import crash_point
from sessions_app.database import hot_cursor, is_transient, ran_out_of_time
from sessions_app.engine import calling, compacting, following, plan, retry, spending, structured
from sessions_app.engine.compaction import Because
from sessions_app.engine.resume import Continue, plan_resume
from sessions_app.engine.state import READ, SessionState, open_call_places, reload
from sessions_app.errors import LeaseLost, is_lease_lost
from sessions_app.log import NewEntry
from sessions_app.models import BRANCH, EndReason, Session, TurnReason
from sessions_app.providers.port import Category, ModelCallFailed, Reply, Stop
from sessions_app.tool_port import Call, Completed, ToolContext, ToolOutcome

logger = structlog.get_logger(__name__)

_CALLS_NOT_RUN = frozenset({Stop.LENGTH, Stop.FILTERED, Stop.UNKNOWN})


class Holder(Protocol):
    """What a run needs of its worker."""

    worker_id: int
    draining: bool

    async def commit(self, step: steps.StepWrite) -> steps.StepResult: ...

    async def in_database[T](self, function: Callable[..., T], *args: Any) -> T: ...

    def gives_way(self, held_since: float) -> bool:
        """Whether a session held since then should let others go first."""
        ...


@dataclasses.dataclass(slots=True)
class _Happened:
    """What an act brought, on its way into the next step."""

    entries: list[NewEntry] = dataclasses.field(default_factory=list)
    message: int | None = None
    calls: list[Call] = dataclasses.field(default_factory=list)
    results: list[Completed] = dataclasses.field(default_factory=list)
    model_call_end: steps.ModelCallEnd | None = None
    resumed: bool = False
    resets_crashes: bool = False
    compaction_over: bool = False

    def __bool__(self) -> bool:
        return bool(self.entries or self.results)


class Run:
    """The run of one claimed session; `run` is the task's body, `stop` and `lose` come from the worker."""

    def __init__(self, holder: Holder, state: SessionState) -> None:
        self.holder = holder
        self.state = state
        self.log = logger.bind(session=str(state.id), attempt=state.attempt, worker=holder.worker_id)
        self.held_since = asyncio.get_running_loop().time()
        self.tools: dict[asyncio.Task[ToolOutcome], Call] = {}
        self.late: set[asyncio.Task[None]] = set()  # tools past their limit that nobody can stop
        self.lost = False

    async def run(self) -> None:
        """Until the session is released, lost or stopped; raises only for faults of the worker itself."""
        try:
            await self._go_on()
        except asyncio.CancelledError:
            if not self.lost:
                await self._save_finished_tools()
                self._cancel_tools()
                await self._end(EndReason.DRAIN if self.holder.draining else EndReason.CRASH)
                if not self.holder.draining:
                    return  # cancelled by something of this session's own: the worker goes on (A16)
            raise
        except Exception as error:  # one session's fault must not stop the others (A17)
            if is_lease_lost(error):
                self.log.info("run.lost")
            elif is_transient(error) and not ran_out_of_time(error):
                # The database was away or busy, which is nobody's crash (R9): whoever claims it next goes on.
                # What took too long may be this session's own doing, and would be the same the next time.
                self.log.warning("run.given_back", error=str(error).strip())
                self._cancel_tools()
                await self._end(EndReason.RELEASED)
            else:
                # Counted like a crash, so that a session that always fails here stops at the crash limit.
                self.log.exception("run.failed")
                self._cancel_tools()
                await self._end(EndReason.CRASH)
        finally:
            await self._stop_tools()

    async def _end(self, reason: str) -> None:
        def end() -> bool:
            return leases.end_lease(
                self.state.id, reason=reason, worker=self.holder.worker_id, attempt=self.state.attempt
            )

        crash_point("release.before")
        await self.holder.in_database(end)

    async def _go_on(self) -> None:
        happened = self._resume() if self._has_to_resume() else _Happened()
        while True:
            draining = self.holder.draining
            gives_way = self.holder.gives_way(self.held_since)
            self._count(happened)
            self.state.pressure.about_to_save((entry.kind, entry.data) for entry in happened.entries)
            course = following.follow(self.state, may_act=not draining and not gives_way)
            moved = await self._save(happened, course)
            happened = _Happened()
            if moved:
                await self.holder.in_database(reload, self.state)
                continue
            match course.act:
                case following.LetGo(saved=saved):
                    if not saved:
                        await self._end(EndReason.DRAIN if draining else EndReason.RELEASED)
                    return
                case following.PlanAgain():
                    pass
                case following.CallModel(call_id=call_id):
                    happened = await self._call_model(call_id)
                case following.Compact(call_id=call_id, because=because):
                    happened = await self._compact(call_id, because)
                case following.RunTools(start=start):
                    happened = await self._run_tools(start)

    def _count(self, happened: _Happened) -> None:
        """What is about to be saved is used; what follows is planned with it (R8)."""
        ended = happened.model_call_end
        if ended is not None:
            self.state.meter.take_call(
                tokens=ended.usage.input_tokens + ended.usage.output_tokens,
                cost=ended.cost,
                tool_calls=len(happened.calls),
                in_turn=ended.turn is not None,
            )

    def _time_left(self) -> float | None:
        return self.state.meter.time_left(time.monotonic())

    # --- resuming ------------------------------------------------------------------------------------

    def _has_to_resume(self) -> bool:
        """A turn lost its attempt, or a fork or rewind put the session on a branch nobody has looked at."""
        left = self.state.lease_end
        return left is not None and (self.state.turn is not None or left["reason"] == BRANCH)

    def _resume(self) -> _Happened:
        """Tell once what the last lease left, and settle orphans that no row stands for (S9)."""
        state = self.state
        left: Mapping[str, Any] = state.lease_end or {}
        verdict = plan_resume(state.context.messages, open_calls=open_call_places(state))
        repaired = list(left.get("settled", ()))
        orphans = []
        for message, block in getattr(verdict, "repaired", ()):
            call = state.context.messages[message]["content"][block]
            orphans.append(entries.orphan_result(call, turn=state.turn))
            repaired.append(call.get("tool_call") or call["id"])
        if isinstance(verdict, Continue):
            # A partial reply at the end (imported ones only; ours are never saved) is no base to go on from.
            state.context.truncate(verdict.keep)
        if left["reason"] == BRANCH and not repaired:
            return _Happened(resumed=True)  # whole as it is: nothing to tell
        resumed = entries.session_resumed(
            attempt=state.attempt, reason=left["reason"], repaired=repaired, turn=state.turn
        )
        return _Happened(entries=[resumed, *orphans], resumed=True)

    # --- saving --------------------------------------------------------------------------------------

    async def _save(self, happened: _Happened, course: following.Course) -> bool:
        """Commit what happened with what follows; returns whether new work arrived meanwhile.

        Raises `LeaseLost`. The state is brought up to date with what was saved.
        """
        state = self.state
        if not happened and course.then == steps.Then():
            return False
        step = steps.StepWrite(
            session=state.id,
            attempt=state.attempt,
            work_rev=state.work_rev,
            entries=tuple(happened.entries),
            message=happened.message,
            calls=tuple(happened.calls),
            results=tuple(happened.results),
            model_call_end=happened.model_call_end,
            resumed=happened.resumed,
            resets_crashes=happened.resets_crashes,
            compaction_over=happened.compaction_over,
            then=course.then,
        )
        result = await self._commit(step)
        match result:
            case steps.Saved(moved=moved, first_seq=first_seq):
                self._note(happened.entries, first_seq)
                if happened.resumed:
                    state.lease_end = None
                if not moved:
                    self._note(course.then.entries, first_seq + len(happened.entries))
                    self._follow_up(course)
                return moved
            case steps.Refused(error=error):
                raise error
            case steps.Lost(reason=reason):
                raise LeaseLost(reason=reason)

    async def _commit(self, step: steps.StepWrite) -> steps.StepResult:
        """Commit; a run that is stopped meanwhile waits for what is on its way, or its own end could overtake it."""
        saving = asyncio.ensure_future(self.holder.commit(step))
        try:
            return await asyncio.shield(saving)
        except asyncio.CancelledError:
            if not self.lost:
                await asyncio.wait([saving])
            raise

    def _note(self, saved: tuple[NewEntry, ...] | list[NewEntry], first_seq: int) -> None:
        """Take saved entries into the context."""
        for seq, entry in enumerate(saved, start=first_seq):
            if entry.kind in READ:
                self.state.append(seq, entry.kind, entry.data)
                self.state.own_seqs.add(seq)

    def _follow_up(self, course: following.Course) -> None:
        state = self.state
        then = course.then
        state.turn, state.turn_count = course.turn, course.turn_count
        if then.turn_end is not None:
            state.crash_count = 0
            state.meter.end_turn(time.monotonic())
        if then.turn_start is not None:
            state.meter.start_turn(time.monotonic())
        for entry in then.entries:
            if entry.kind == "limit_warning":
                state.meter.tell(entry.data)
        if then.turn_end is not None or then.model_call is not None:
            state.failure = None
            state.retry_later = False
        if then.compaction_over:
            state.pressure.requested = False
        if course.delivered:
            taken = {item.id for item in course.delivered}
            state.inputs = [item for item in state.inputs if item.id not in taken]
        for call_id in then.start_calls:
            state.calls[call_id] = dataclasses.replace(state.calls[call_id], state="running")

    # --- the model -----------------------------------------------------------------------------------

    async def _call_model(self, call_id: UUID) -> _Happened:
        state = self.state
        crash_point("model.before")
        try:
            async with spending.in_time(self._time_left()):
                request = await calling.request_for(state, call_id, self.holder.in_database)
                reply = await calling.ask(request)
            crash_point("model.after")
            blocks, calls = self._calls_of(reply)
        except ModelCallFailed as failure:
            return self._failed(call_id, failure)
        turn = self._turn()
        costs = calling.costs_of_reply(state, reply)
        state.failure = None
        # What follows is planned before the reply is saved, so its tail is known first.
        state.tail = plan.Tail.OWED if calls else state.tail_of(reply.stop)
        data = calling.message(request, reply, blocks)
        notes = self._judge_answer(data) if state.tail is plan.Tail.ANSWERED else []
        message = NewEntry(kind="assistant_message", data=data, turn=turn)
        refused = [(call, call.result) for call in calls if call.result is not None]
        started = [call for call in calls if call.state == "running"]
        state.calls = {call.id: call for call in calls if call.state != "completed"}
        return _Happened(
            entries=[
                message,
                *(entries.tool_started(call) for call in started),
                *entries.tool_results(refused),
                *notes,
            ],
            message=0,
            calls=calls,
            model_call_end=steps.ModelCallEnd(
                id=call_id,
                turn=turn,
                state="succeeded",
                usage=reply.usage,
                first_token_seconds=reply.time_to_first_token,
                cost=costs.cost,
                cost_added=costs.added,
            ),
            # None of its calls can have been interrupted yet; with outside calls their results decide (R9).
            resets_crashes=not started,
        )

    def _judge_answer(self, data: dict[str, Any]) -> list[NewEntry]:
        """Hold the answer of a turn against the config's output schema; what it means goes into `data`."""
        state = self.state
        schema = state.document.get("output_schema")
        if schema is None:
            return []
        answer = structured.read(schema, data["content"])
        data |= answer.data()
        if answer.problem is None:
            return []
        if state.invalid_outputs + 1 >= structured.ASKS:
            state.tail, state.output_problem = plan.Tail.INVALID_OUTPUT, answer.problem
            return []
        state.tail = plan.Tail.OWED
        return [NewEntry(kind="note", data=structured.ask_again(answer.problem), turn=state.turn)]

    def _calls_of(self, reply: Reply) -> tuple[list[dict[str, Any]], list[Call]]:
        """The reply's blocks as saved, and its calls; a reply that ended early runs none (R4)."""
        state = self.state
        if reply.stop in _CALLS_NOT_RUN:
            return reply.content, []
        blocks, calls = tool_port.runtime().prepare(
            state.document, session=state.id, turn=self._turn(), blocks=reply.content
        )
        calls = spending.refuse_beyond(calls, state.meter.allowed_tool_calls())
        if reply.stop is Stop.TOOL_CALLS and not calls:
            raise ModelCallFailed(
                "the reply announced tool calls and held none",
                category=Category.EMPTY,
                usage=reply.usage,
                may_be_billed=True,
                provider_details=reply.provider_details,
            )
        if self.holder.draining:
            # A planned stop begins nothing new: the next attempt starts these.
            calls = [dataclasses.replace(c, state="ready") if c.state == "running" else c for c in calls]
        return blocks, calls

    def _failed(self, call_id: UUID, failure: ModelCallFailed) -> _Happened:
        state = self.state
        text_id = ids.encode("mcl", call_id)
        verdict = calling.verdict(state, text_id, failure)
        match verdict:
            case retry.EndTurn(reason=TurnReason.LIMIT):
                state.failure = None  # the limit itself ends the turn
            case retry.EndTurn():
                state.failure = plan.Failed(verdict.reason, verdict.error)
            case retry.RetryAfter():
                state.failure = plan.Retry(verdict.seconds, verdict.retry, retry.in_words(failure))
            case retry.AskAgain():
                state.failure = None
            case retry.Compact():
                state.failure = None
                state.pressure.overflowed = True
                if state.why_compact() in {None, Because.IN_VAIN}:
                    state.failure = plan.Failed("context_too_long", retry.error_of(failure))
        return self._failed_call(call_id, failure, verdict)

    def _failed_call(self, call_id: UUID, failure: ModelCallFailed, verdict: retry.Verdict) -> _Happened:
        state = self.state
        text_id = ids.encode("mcl", call_id)
        self.log.info("model_call.failed", category=failure.category.value, detail=failure.detail)
        data = calling.failure(state, text_id, failure, verdict)
        usage = failure.usage or steps.NO_USAGE
        costs = calling.costs_of_failure(state, failure)
        return _Happened(
            entries=[NewEntry(kind="model_call_failed", data=data, turn=state.turn)],
            model_call_end=steps.ModelCallEnd(
                id=call_id,
                turn=state.turn,
                state="failed",
                usage=usage,
                error={"code": failure.category.value, "detail": retry.in_words(failure)},
                may_be_billed=failure.may_be_billed,
                first_token_seconds=failure.time_to_first_token,
                cost=costs.cost,
                cost_added=costs.added,
            ),
        )

    async def _compact(self, call_id: UUID, because: Because) -> _Happened:
        """Ask for a summary of the older part; with a checkpoint saved the session goes on as if it were it."""
        state = self.state
        crash_point("model.before")
        try:
            job = compacting.job_of(state)
            async with spending.in_time(self._time_left()):
                request = await compacting.request_for(state, call_id, job, self.holder.in_database)
                reply = await calling.ask(request)
            crash_point("model.after")
            data = compacting.checkpoint(state, request, reply, job, because)
        except ModelCallFailed as failure:
            return self._compaction_failed(call_id, because, failure)
        costs = calling.costs_of_reply(state, reply)
        self.log.info("session.compacted", because=because.value, **compacting.figures(data))
        state.failure = None
        state.pressure.settle()
        return _Happened(
            entries=[NewEntry(kind="checkpoint", data=data, turn=state.turn)],
            model_call_end=steps.ModelCallEnd(
                id=call_id,
                turn=state.turn,
                state="succeeded",
                usage=reply.usage,
                first_token_seconds=reply.time_to_first_token,
                cost=costs.cost,
                cost_added=costs.added,
            ),
            resets_crashes=True,
            compaction_over=True,
        )

    def _compaction_failed(self, call_id: UUID, because: Because, failure: ModelCallFailed) -> _Happened:
        state = self.state
        verdict = compacting.verdict(state, ids.encode("mcl", call_id), failure)
        happened = self._failed_call(call_id, failure, verdict)
        happened.entries[0].data.update(compacting.marks(failure))
        match verdict:
            case retry.Compact():
                state.failure = None  # asked again at once, for less
            case retry.RetryAfter(seconds=seconds, retry=number):
                state.failure = plan.Retry(seconds, number, retry.in_words(failure))
            case retry.EndTurn(error=error) if because is Because.REQUESTED:
                # Nobody waits for it but whoever asked: the session goes on as it is.
                state.failure = None
                state.pressure.requested = False
                happened.compaction_over = True
                text = f"The compaction that was asked for failed: {error['detail']}"
                happened.entries.append(entries.note(text, turn=state.turn))
            case retry.EndTurn(reason=TurnReason.LIMIT):
                state.failure = None  # the limit itself ends the turn
            case retry.EndTurn(reason=reason, error=error):
                state.failure = plan.Failed(reason, error)
        return happened

    def _turn(self) -> UUID:
        if self.state.turn is None:
            raise RuntimeError("a model call without an open turn")
        return self.state.turn

    # --- tools ---------------------------------------------------------------------------------------

    async def _run_tools(self, start: tuple[UUID, ...]) -> _Happened:
        """Start what is ready and return the first results; outside tools run at once, internal ones in order."""
        state = self.state
        known = {call.id for call in self.tools.values()}
        for call in state.calls.values():
            if call.state == "running" and call.id not in known:
                self.tools[asyncio.create_task(self._run_outside(call))] = call
        late = []
        for call_id in start:
            call = state.calls[call_id]
            if call.tool_class != "internal":
                continue
            if self._time_left() == 0:
                late.append(call)
            else:
                await self._run_internal(call)
        if late:
            return self._too_late(late)
        if not self.tools:
            return _Happened()
        done, _ = await asyncio.wait(self.tools, return_when=asyncio.FIRST_COMPLETED)
        return self._results_of(done)

    def _results_of(self, done: set[asyncio.Task[ToolOutcome]]) -> _Happened:
        results = []
        for task in sorted(done, key=lambda task: self.tools[task].position):
            call = self.tools.pop(task)
            results.append(Completed(call, "running", task.result(), self.state.attempt))
            self.state.calls.pop(call.id, None)
        self.state.tail = plan.Tail.OWED
        return _Happened(
            entries=entries.tool_results((done.call, done.result) for done in results),
            results=results,
            resets_crashes=True,
        )

    def _too_late(self, calls: list[Call]) -> _Happened:
        """Internal calls that the time limit lets nobody run any more."""
        results = [Completed(call, call.state, spending.failed(spending.NOT_STARTED)) for call in calls]
        for call in calls:
            self.state.calls.pop(call.id, None)
        self.state.tail = plan.Tail.OWED
        return _Happened(
            entries=entries.tool_results((late.call, late.result) for late in results), results=results
        )

    async def _run_outside(self, call: Call) -> ToolOutcome:
        crash_point("tool.before")
        limit = call.time_limit or settings.TENURE.tool_time_limit
        left = self._time_left()
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
        self.state.calls.pop(call.id, None)
        self._note([placed.entry], placed.seq)

    def _context(self, call: Call) -> ToolContext:
        return ToolContext(
            project=self.state.project,
            session=self.state.id,
            attempt=self.state.attempt,
            token=ids.encode("tcl", call.id),
            config=self.state.document,
        )

    async def _save_finished_tools(self) -> None:
        """A result in hand when the run has to stop is still a result (A76)."""
        done = {task for task in self.tools if task.done() and not task.cancelled() and not task.exception()}
        if done:
            nothing = following.Course(
                steps.Then(), following.LetGo(saved=False), self.state.turn, self.state.turn_count
            )
            try:
                await self._save(self._results_of(done), nothing)
            except LeaseLost:
                self.log.info("run.lost")

    def _cancel_tools(self) -> None:
        """Before the end of the lease says that they were interrupted."""
        for task in (*self.tools, *self.late):
            task.cancel()

    async def _stop_tools(self) -> None:
        self._cancel_tools()
        await asyncio.gather(*self.tools, *self.late, return_exceptions=True)
        self.tools.clear()
        self.late.clear()


def run_internal(call: Call, context: ToolContext, worker: int, attempt: int) -> log.Placed:
    """Run an internal tool inside the fence and save its result with its effect; returns the result's entry."""
    crash_point("internal.before")
    with leases.fence(call.session, worker=worker, attempt=attempt) as session:
        result = tool_port.runtime().run_internal(call, context, session)
        crash_point("internal.effect")
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
