"""From a decision to what is saved for it: the `Then` of a step, and the act that comes after the commit.

Decisions that only write (the end of a turn, the start of the next) are followed through until one acts or
lets go, so that a reply, the end of its turn and the start of the next one are one commit. Pure but for new
ids; nothing here changes the state, `apply` does once the step is saved.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sessions_app import entries, ids, steps
from sessions_app.due import Due
from sessions_app.engine import plan
from sessions_app.engine.compaction import Because
from sessions_app.engine.limits import Near, Reached
from sessions_app.engine.pressure import COMPACTION
from sessions_app.engine.state import QueuedInput, SessionState
from sessions_app.log import NewEntry


@dataclass(frozen=True, slots=True)
class CallModel:
    call_id: UUID


@dataclass(frozen=True, slots=True)
class Compact:
    call_id: UUID
    because: Because


@dataclass(frozen=True, slots=True)
class RunTools:
    """Tools run; the ones named here have yet to be started."""

    start: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class LetGo:
    """Nothing more to do. `saved`: the release is part of the step, else the tables decide the due time."""

    saved: bool


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """The turn that this step starts is over already: that is the next step's business."""


type Act = CallModel | Compact | RunTools | LetGo | PlanAgain


@dataclass(slots=True)
class Course:
    """What follows, and what the state becomes when it is saved."""

    then: steps.Then
    act: Act
    turn: UUID | None
    turn_count: int
    delivered: list[QueuedInput] = field(default_factory=list)
    messages: list[tuple[int, NewEntry]] = field(default_factory=list)  # (place among `then.entries`, entry)


def follow(state: SessionState, *, may_act: bool) -> Course:
    """Decide until something acts. With `may_act` off (a planned stop) nothing new is begun."""
    course = _Course(state)
    standing = state.standing()
    view = replace(state.view(), limit=standing.reached, may_ask=state.may_ask_about(standing.reached))
    course.warn(standing.near)
    while True:
        decision = plan.plan_next(view)
        match decision:
            case plan.EndTurn() if course.turn_start is not None:
                return course.done(PlanAgain())
            case plan.EndTurn():
                course.end_turn(decision)
                view = replace(
                    view,
                    turn_open=False,
                    failure=None,
                    retry_later=False,
                    crash_limited=False,
                    limit=state.standing_of_new_turn().reached,
                    may_ask=state.may_ask_about(state.standing_of_new_turn().reached),
                )
            case plan.StartTurn() if may_act:
                course.start_turn(decision.inputs)
                left = [item for item in view.inputs if item.id not in decision.inputs]
                view = replace(
                    view,
                    turn_open=True,
                    tail=plan.Tail.OWED,
                    inputs=left,
                    failure=None,
                    retry_later=False,  # of a compaction between turns
                    compact=state.why_compact(course.delivered),
                    limit=state.standing_of_new_turn().reached,
                    may_ask=state.may_ask_about(state.standing_of_new_turn().reached),
                )
            case plan.Compact() if may_act:
                course.deliver(decision.steering)
                return course.done(Compact(course.start_compaction(), decision.because))
            case plan.DropCompaction() if may_act:
                course.drop_compaction(decision.limit)
                view = replace(view, compact=None)
            case plan.CallModel() if may_act:
                course.deliver(decision.steering)
                return course.done(CallModel(course.start_model_call()))
            case plan.RunTools() if may_act:
                outside = tuple(id_ for id_ in decision.ready if state.calls[id_].tool_class == "outside")
                course.start_calls(outside)
                return course.done(RunTools(decision.ready))
            case plan.AwaitTools():
                return course.done(RunTools())
            case plan.AskLimit() if course.turn_start is not None:
                return course.done(PlanAgain())
            case plan.AskLimit(limit=reached) if may_act:
                course.ask(reached)
                return course.done(LetGo(saved=False))
            case plan.BackOff(retry=plan.Retry() as retry):
                course.back_off(retry)
                return course.done(LetGo(saved=True))
            case plan.Rest() if not view.inputs:
                course.release = Due(None, "idle")
                return course.done(LetGo(saved=True))
            case _:
                # A wait, a stop, or a time that is stored already: the tables know best.
                return course.done(LetGo(saved=False))


class _Course:
    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.turn = state.turn
        self.turn_count = state.turn_count
        self.entries: list[NewEntry] = []
        self.messages: list[tuple[int, NewEntry]] = []
        self.delivered: list[QueuedInput] = []
        self.turn_end: steps.TurnEnd | None = None
        self.turn_start: steps.TurnStart | None = None
        self.model_call: steps.ModelCallStart | None = None
        self.compaction_over = False
        self.started: tuple[UUID, ...] = ()
        self.retry_in: float | None = None
        self.release: Due | None = None
        self.limit_ask: steps.LimitAsk | None = None

    def warn(self, near: Iterable[Near]) -> None:
        if self.turn is not None:
            self.entries += [entries.limit_warning(one, turn=self.turn) for one in near]

    def end_turn(self, decision: plan.EndTurn) -> None:
        turn = self._open_turn()
        if decision.limit is not None:
            self.entries.append(entries.limit_reached(decision.limit, turn=turn))
        self.turn_end = steps.TurnEnd(
            id=turn, status=decision.status, reason=decision.reason, error=decision.error
        )
        self.entries.append(
            entries.turn_ended(
                turn=turn,
                number=self.turn_count,
                status=decision.status,
                reason=decision.reason,
                error=decision.error,
            )
        )
        self.turn = None

    def start_turn(self, inputs: tuple[UUID, ...]) -> None:
        self.turn = ids.new_id()
        self.turn_count += 1
        self.turn_start = steps.TurnStart(id=self.turn, number=self.turn_count)
        self.entries.append(entries.turn_started(turn=self.turn, number=self.turn_count))
        self.deliver(inputs)

    def deliver(self, inputs: tuple[UUID, ...]) -> None:
        turn = self._open_turn() if inputs else None
        for item in self.state.inputs:
            if item.id in inputs and turn is not None:
                entry = entries.user_message(
                    input_id=item.id,
                    delivery=item.delivery,
                    content=item.content,
                    actor=item.actor,
                    turn=turn,
                )
                self.messages.append((len(self.entries), entry))
                self.entries.append(entry)
                self.delivered.append(item)

    def start_model_call(self) -> UUID:
        self.model_call = steps.ModelCallStart(
            id=ids.new_id(), turn=self._open_turn(), config=self.state.config_id, **self._reservation()
        )
        return self.model_call.id

    def _reservation(self) -> dict[str, Any]:
        shared = self.state.meter.shared
        return {} if shared is None else {"reserve": self.state.tokens_asked(), "within": shared.most}

    def start_compaction(self) -> UUID:
        self.model_call = steps.ModelCallStart(
            id=ids.new_id(),
            turn=self.turn,
            config=self.state.config_id,
            purpose=COMPACTION,
            **self._reservation(),
        )
        return self.model_call.id

    def drop_compaction(self, limit: Reached | None) -> None:
        self.compaction_over = True
        if limit is None:
            text = "A compaction was asked for, but there is nothing to summarize yet."
        else:
            text = f"A compaction was asked for, but {limit.error['detail']}."
        self.entries.append(entries.note(text, turn=self.turn))

    def start_calls(self, calls: tuple[UUID, ...]) -> None:
        self.started = calls
        self.entries += [entries.tool_started(self.state.calls[call]) for call in calls]

    def ask(self, reached: Reached) -> None:
        self.limit_ask = steps.LimitAsk(
            id=ids.new_id(), limit=reached.limit, used=reached.used, of=reached.of
        )
        self.entries.append(entries.limit_asked(self.limit_ask.id, reached, turn=self._open_turn()))

    def back_off(self, retry: plan.Retry) -> None:
        self.retry_in = retry.delay
        self.release = Due(None, "backing_off")
        data: dict[str, Any] = {
            "retry": retry.number,
            "delay": round(retry.delay, 3),
            "reason": retry.because,
        }
        self.entries.append(NewEntry(kind="retry_scheduled", data=data, turn=self.turn))

    def done(self, act: Act) -> Course:
        then = steps.Then(
            entries=tuple(self.entries),
            turn_end=self.turn_end,
            turn_start=self.turn_start,
            deliver=tuple(item.id for item in self.delivered),
            start_calls=self.started,
            model_call=self.model_call,
            retry_in=self.retry_in,
            compaction_over=self.compaction_over,
            limit_ask=self.limit_ask,
            release=self.release,
        )
        return Course(then, act, self.turn, self.turn_count, self.delivered, self.messages)

    def _open_turn(self) -> UUID:
        if self.turn is None:
            raise RuntimeError("planned to go on with a turn that is not open")
        return self.turn
