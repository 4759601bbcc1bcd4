"""S4: what happens next, as a table over the view of a session."""

from uuid import UUID

import pytest

from sessions_app.engine.compaction import Because
from sessions_app.engine.limits import Reached
from sessions_app.engine.plan import (
    AskLimit,
    AwaitTools,
    BackOff,
    CallModel,
    Compact,
    DropCompaction,
    EndTurn,
    Failed,
    OpenCall,
    Rest,
    Retry,
    RunTools,
    StartTurn,
    Tail,
    View,
    Wait,
    WaitingInput,
    plan_next,
)

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))
QUEUED = WaitingInput(ONE, "queued")
QUEUED_TOO = WaitingInput(TWO, "queued")
STEERING = WaitingInput(THREE, "steering")
RETRY = Retry(2.0, 1, "overloaded")
LIMIT = Reached("turn.model_calls", "3", "3")
AT_LIMIT = EndTurn("failed", "limit", LIMIT.error, LIMIT)


def view(**parts):
    return View(**({"turn_open": True, "tail": Tail.OWED} | parts))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(view(turn_open=False, tail=Tail.NOTHING), Rest(), id="nothing to do"),
        pytest.param(
            view(turn_open=False, inputs=[QUEUED, QUEUED_TOO]),
            StartTurn((ONE,)),
            id="A47: one queued input a turn",
        ),
        pytest.param(
            view(turn_open=False, inputs=[QUEUED, STEERING]),
            StartTurn((THREE,)),
            id="steering goes before queued",
        ),
        pytest.param(
            view(turn_open=False, inputs=[QUEUED], crash_limited=True), Rest(), id="R9: inherited input stays"
        ),
        pytest.param(view(), CallModel(), id="somebody is owed an answer"),
        pytest.param(view(inputs=[QUEUED]), CallModel(), id="queued input waits for the next turn"),
        pytest.param(view(inputs=[STEERING]), CallModel((THREE,)), id="steering joins the next call"),
        pytest.param(
            view(calls=[OpenCall(ONE, "ready"), OpenCall(TWO, "running")], inputs=[STEERING]),
            RunTools((ONE,)),
            id="the batch comes first",
        ),
        pytest.param(view(calls=[OpenCall(ONE, "running")]), AwaitTools(), id="tools run"),
        pytest.param(
            view(compact=Because.ESTIMATE),
            Compact(Because.ESTIMATE),
            id="R5: a compaction goes before the call",
        ),
        pytest.param(
            view(compact=Because.OVERFLOW, inputs=[STEERING]),
            Compact(Because.OVERFLOW, (THREE,)),
            id="A52: steering stands before it",
        ),
        pytest.param(
            view(compact=Because.REQUESTED, calls=[OpenCall(ONE, "running")]),
            AwaitTools(),
            id="R5: never inside a batch",
        ),
        pytest.param(
            view(compact=Because.ESTIMATE, tail=Tail.ANSWERED),
            EndTurn("succeeded", "done"),
            id="no call, no compaction",
        ),
        pytest.param(view(compact=Because.OVERFLOW, failure=RETRY), BackOff(RETRY), id="R5: it is retried"),
        pytest.param(view(compact=Because.OVERFLOW, retry_later=True), BackOff(None), id="at its time"),
        pytest.param(
            view(compact=Because.OVERFLOW, failure=Failed("auth", {})),
            EndTurn("failed", "auth", {}),
            id="R3: or fails the turn",
        ),
        pytest.param(view(compact=Because.IN_VAIN), DropCompaction(), id="nothing to compact"),
        pytest.param(
            view(turn_open=False, compact=Because.REQUESTED),
            Compact(Because.REQUESTED),
            id="R5: on request without a turn",
        ),
        pytest.param(
            view(turn_open=False, compact=Because.REQUESTED, inputs=[QUEUED]),
            StartTurn((ONE,)),
            id="input goes first and is compacted for",
        ),
        pytest.param(
            view(turn_open=False, compact=Because.REQUESTED, failure=RETRY),
            BackOff(RETRY),
            id="R5: retried without a turn",
        ),
        pytest.param(
            view(turn_open=False, compact=Because.REQUESTED, retry_later=True),
            BackOff(None),
            id="at its time, without a turn",
        ),
        pytest.param(
            view(turn_open=False, compact=Because.REQUESTED, crash_limited=True),
            Rest(),
            id="R9: not at the crash limit",
        ),
        pytest.param(
            view(turn_open=False, compact=Because.IN_VAIN), DropCompaction(), id="nothing, without a turn"
        ),
        pytest.param(
            view(turn_open=False, compact=Because.ESTIMATE), Rest(), id="an estimate waits for the next turn"
        ),
        pytest.param(
            view(calls=[OpenCall(ONE, "waiting"), OpenCall(TWO, "ready")]),
            RunTools((TWO,)),
            id="A81: a blocked call does not block its sibling",
        ),
        pytest.param(
            view(calls=[OpenCall(ONE, "awaiting_approval")], inputs=[STEERING]),
            Wait(),
            id="steering waits for the batch",
        ),
        pytest.param(view(limit=LIMIT), AT_LIMIT, id="R8: no further call"),
        pytest.param(view(limit=LIMIT, inputs=[STEERING]), AT_LIMIT, id="R8: whatever waits"),
        pytest.param(view(limit=LIMIT, compact=Because.ESTIMATE), AT_LIMIT, id="R8: a compaction is a call"),
        pytest.param(view(limit=LIMIT, failure=RETRY), AT_LIMIT, id="R8: so is a retry"),
        pytest.param(view(limit=LIMIT, retry_later=True), BackOff(None), id="at its time"),
        pytest.param(view(limit=LIMIT, may_ask=True), AskLimit(LIMIT), id="R8: people can let it go on"),
        pytest.param(
            view(limit=LIMIT, may_ask=True, inputs=[STEERING]),
            AskLimit(LIMIT),
            id="R8: steering waits for them",
        ),
        pytest.param(view(may_ask=True), CallModel(), id="R8: nobody is asked below the limit"),
        pytest.param(
            view(limit=LIMIT, may_ask=True, tail=Tail.ANSWERED),
            EndTurn("succeeded", "done"),
            id="R8: nobody is asked for a turn that is done",
        ),
        pytest.param(
            view(limit=LIMIT, tail=Tail.ANSWERED),
            EndTurn("succeeded", "done"),
            id="R8: the last call was enough",
        ),
        pytest.param(
            view(limit=LIMIT, calls=[OpenCall(ONE, "ready")]),
            RunTools((ONE,)),
            id="R8: the batch comes first",
        ),
        pytest.param(
            view(limit=LIMIT, failure=Failed("auth", {})),
            EndTurn("failed", "auth", {}),
            id="the cause is named",
        ),
        pytest.param(
            view(limit=LIMIT, turn_open=False, inputs=[QUEUED]),
            StartTurn((ONE,)),
            id="R8: said in a turn of its own",
        ),
        pytest.param(
            view(limit=LIMIT, turn_open=False, compact=Because.REQUESTED),
            DropCompaction(LIMIT),
            id="R8: no compaction without a turn either",
        ),
        pytest.param(view(tail=Tail.ANSWERED), EndTurn("succeeded", "done"), id="answered"),
        pytest.param(
            view(tail=Tail.ANSWERED, inputs=[QUEUED]), EndTurn("succeeded", "done"), id="then the next turn"
        ),
        pytest.param(
            view(tail=Tail.ANSWERED, inputs=[STEERING]),
            CallModel((THREE,)),
            id="I2: steering continues the turn",
        ),
        pytest.param(view(tail=Tail.LENGTH), EndTurn("succeeded", "length"), id="A43: length is a success"),
        pytest.param(
            view(tail=Tail.INVALID_OUTPUT, output_problem="at /n: too big", inputs=[QUEUED]),
            EndTurn(
                "failed",
                "invalid_output",
                {
                    "code": "invalid_output",
                    "detail": "the answer does not fit the output schema, also when asked again: at /n: too big",
                },
            ),
            id="an answer that does not fit, for the last time",
        ),
        pytest.param(
            view(tail=Tail.INVALID_OUTPUT, output_problem="at /n: too big", inputs=[STEERING]),
            CallModel((THREE,)),
            id="I2: steering continues the turn all the same",
        ),
        pytest.param(view(failure=RETRY), BackOff(RETRY), id="a failed call backs off"),
        pytest.param(
            view(failure=RETRY, inputs=[QUEUED]), BackOff(RETRY), id="R6: queued input moves no retry"
        ),
        pytest.param(
            view(failure=RETRY, inputs=[STEERING]), CallModel((THREE,)), id="A50: steering wakes the retry"
        ),
        pytest.param(view(retry_later=True), BackOff(None), id="A33: the durable retry time stands"),
        pytest.param(
            view(retry_later=True, inputs=[STEERING]), CallModel((THREE,)), id="A50: also after a claim"
        ),
        pytest.param(
            view(failure=Failed("auth", {"code": "auth", "detail": "no"}), inputs=[STEERING]),
            EndTurn("failed", "auth", {"code": "auth", "detail": "no"}),
            id="R3: a final failure ends the turn whatever waits",
        ),
    ],
)
def test_the_order_of_decisions(given, expected):
    """S4, I2, R6"""
    assert plan_next(given) == expected


@pytest.mark.parametrize(("tail", "reason"), [(Tail.FILTERED, "filtered"), (Tail.UNKNOWN, "unknown_stop")])
def test_a_filtered_or_unknown_stop_fails_the_turn_even_if_steering_waits(tail, reason):
    """R4, C39, C56"""
    decision = plan_next(view(tail=tail, inputs=[STEERING]))
    assert isinstance(decision, EndTurn)
    assert (decision.status, decision.reason) == ("failed", reason)
