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
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from sessions_app import entries, leases, steps
from sessions_app.crashpoints import crash_point
from sessions_app.database import is_transient, ran_out_of_time
from sessions_app.engine import following
from sessions_app.engine.happening import Happened, Holder
from sessions_app.engine.model_calls import ModelCalls
from sessions_app.engine.resume import Continue, plan_resume
from sessions_app.engine.state import READ, SessionState, open_call_places, reload
from sessions_app.engine.tool_batch import ToolBatch
from sessions_app.errors import LeaseLost, is_lease_lost
from sessions_app.log import NewEntry
from sessions_app.models import BRANCH, EndReason

logger = structlog.get_logger(__name__)


class Run:
    """The run of one claimed session; `run` is the task's body, `stop` and `lose` come from the worker."""

    def __init__(self, holder: Holder, state: SessionState) -> None:
        self.holder = holder
        self.state = state
        self.log = logger.bind(session=str(state.id), attempt=state.attempt, worker=holder.worker_id)
        self.held_since = asyncio.get_running_loop().time()
        self.model = ModelCalls(holder, state, self.log)
        self.tools = ToolBatch(holder, state, self.log, self._note)
        self.lost = False

    async def run(self) -> None:
        """Until the session is released, lost or stopped; raises only for faults of the worker itself."""
        try:
            await self._go_on()
        except asyncio.CancelledError:
            if not self.lost:
                await self._save_finished_tools()
                self.tools.cancel()
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
                self.tools.cancel()
                await self._end(EndReason.RELEASED)
            else:
                # Counted like a crash, so that a session that always fails here stops at the crash limit.
                self.log.exception("run.failed")
                self.tools.cancel()
                await self._end(EndReason.CRASH)
        finally:
            await self.tools.stop()

    async def _end(self, reason: str) -> None:
        def end() -> bool:
            return leases.end_lease(
                self.state.id, reason=reason, worker=self.holder.worker_id, attempt=self.state.attempt
            )

        crash_point("release.before")
        await self.holder.in_database(end)

    async def _go_on(self) -> None:
        happened = self._resume() if self._has_to_resume() else Happened()
        while True:
            draining = self.holder.draining
            gives_way = self.holder.gives_way(self.held_since)
            self._count(happened)
            self.state.pressure.about_to_save((entry.kind, entry.data) for entry in happened.entries)
            course = following.follow(self.state, may_act=not draining and not gives_way)
            moved = await self._save(happened, course)
            happened = Happened()
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
                    happened = await self.model.reply(call_id)
                case following.Compact(call_id=call_id, because=because):
                    happened = await self.model.compact(call_id, because)
                case following.RunTools(start=start):
                    happened = await self.tools.run(start)

    def _count(self, happened: Happened) -> None:
        """What is about to be saved is used; what follows is planned with it (R8)."""
        ended = happened.model_call_end
        if ended is not None:
            self.state.meter.take_call(
                tokens=ended.usage.input_tokens + ended.usage.output_tokens,
                cost=ended.cost,
                tool_calls=len(happened.calls),
                in_turn=ended.turn is not None,
            )

    # --- resuming ------------------------------------------------------------------------------------

    def _has_to_resume(self) -> bool:
        """A turn lost its attempt, or a fork or rewind put the session on a branch nobody has looked at."""
        left = self.state.lease_end
        return left is not None and (self.state.turn is not None or left["reason"] == BRANCH)

    def _resume(self) -> Happened:
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
            return Happened(resumed=True)  # whole as it is: nothing to tell
        resumed = entries.session_resumed(
            attempt=state.attempt, reason=left["reason"], repaired=repaired, turn=state.turn
        )
        return Happened(entries=[resumed, *orphans], resumed=True)

    # --- saving --------------------------------------------------------------------------------------

    async def _save(self, happened: Happened, course: following.Course) -> bool:
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
            parent=state.parent if _may_rest(course.then) else None,
        )
        result = await self._commit(step)
        match result:
            case steps.Saved(moved=moved, first_seq=first_seq, tree=tree):
                if tree is not None and state.meter.shared is not None:
                    state.meter.shared.used = tree
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

    def _note(self, saved: Sequence[NewEntry], first_seq: int) -> None:
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
            state.limit_ask = None
            state.meter.end_turn(time.monotonic())
        if then.turn_start is not None:
            state.meter.start_turn(time.monotonic())
        for entry in then.entries:
            if entry.kind == "limit_warning":
                state.meter.tell(entry.data)
        if then.model_call is not None:
            state.reserved = then.model_call.reserve
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

    async def _save_finished_tools(self) -> None:
        happened = self.tools.finished()
        if happened:
            nothing = following.Course(
                steps.Then(), following.LetGo(saved=False), self.state.turn, self.state.turn_count
            )
            try:
                await self._save(happened, nothing)
            except LeaseLost:
                self.log.info("run.lost")


def _may_rest(then: steps.Then) -> bool:
    return then.turn_end is not None and then.turn_start is None
