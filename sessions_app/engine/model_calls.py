"""The model's part of a run: one call, and what its reply or failure means for the session."""

import dataclasses
from typing import Any
from uuid import UUID

from structlog.typing import FilteringBoundLogger

from sessions_app import entries, ids, steps, tool_port
from sessions_app.crashpoints import crash_point
from sessions_app.engine import calling, compacting, plan, retry, spending, structured
from sessions_app.engine.compaction import Because
from sessions_app.engine.happening import Happened, Holder
from sessions_app.engine.state import SessionState
from sessions_app.log import NewEntry
from sessions_app.models import TurnReason
from sessions_app.providers.port import Category, ModelCallFailed, Reply, Stop
from sessions_app.tool_port import Call, Toolkit

_CALLS_NOT_RUN = frozenset({Stop.LENGTH, Stop.FILTERED, Stop.UNKNOWN})


class ModelCalls:
    """Asks the model for one session; both acts return what has to be saved and leave the rest to the run."""

    def __init__(self, holder: Holder, state: SessionState, log: FilteringBoundLogger) -> None:
        self.holder = holder
        self.state = state
        self.log = log

    async def reply(self, call_id: UUID) -> Happened:
        state = self.state
        crash_point("model.before")
        try:
            async with spending.in_time(self.state.time_left()):
                toolkit = await tool_port.runtime().toolkit(
                    state.document,
                    project=state.project,
                    turn=self._turn(),
                    in_database=self.holder.in_database,
                )
                request = await calling.request_for(state, call_id, toolkit, self.holder.in_database)
                reply = await calling.ask(request)
            crash_point("model.after")
            blocks, calls = await self._calls_of(reply, toolkit)
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
        return Happened(
            entries=[
                message,
                *(entries.tool_started(call) for call in started),
                *entries.asked(calls),
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
                reserved=state.reserved,
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

    async def _calls_of(self, reply: Reply, toolkit: Toolkit) -> tuple[list[dict[str, Any]], list[Call]]:
        """The reply's blocks as saved, and its calls; a reply that ended early runs none (R4)."""
        state = self.state
        if reply.stop in _CALLS_NOT_RUN:
            return reply.content, []
        blocks, calls = toolkit.prepare(session=state.id, turn=self._turn(), blocks=reply.content)
        calls = [dataclasses.replace(call, config=state.config_id) for call in calls]
        state.documents[state.config_id] = state.document
        calls = spending.refuse_beyond(calls, state.meter.allowed_tool_calls())
        if any(call.state == "awaiting_approval" for call in calls):
            calls = await self.holder.in_database(self._recall, calls)
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

    def _recall(self, calls: list[Call]) -> list[Call]:
        """People may have allowed the like of these calls before (T7)."""
        return tool_port.runtime().recall(calls, project=self.state.project, session=self.state.id)

    def _failed(self, call_id: UUID, failure: ModelCallFailed) -> Happened:
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

    def _failed_call(self, call_id: UUID, failure: ModelCallFailed, verdict: retry.Verdict) -> Happened:
        state = self.state
        text_id = ids.encode("mcl", call_id)
        self.log.info("model_call.failed", category=failure.category.value, detail=failure.detail)
        data = calling.failure(state, text_id, failure, verdict)
        usage = failure.usage or steps.NO_USAGE
        costs = calling.costs_of_failure(state, failure)
        return Happened(
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
                reserved=state.reserved,
            ),
        )

    async def compact(self, call_id: UUID, because: Because) -> Happened:
        """Ask for a summary of the older part; with a checkpoint saved the session goes on as if it were it."""
        state = self.state
        crash_point("model.before")
        try:
            job = compacting.job_of(state)
            async with spending.in_time(self.state.time_left()):
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
        return Happened(
            entries=[NewEntry(kind="checkpoint", data=data, turn=state.turn)],
            model_call_end=steps.ModelCallEnd(
                id=call_id,
                turn=state.turn,
                state="succeeded",
                usage=reply.usage,
                first_token_seconds=reply.time_to_first_token,
                cost=costs.cost,
                cost_added=costs.added,
                reserved=state.reserved,
            ),
            resets_crashes=True,
            compaction_over=True,
        )

    def _compaction_failed(self, call_id: UUID, because: Because, failure: ModelCallFailed) -> Happened:
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
