"""The list of invariants finds what it is there for: one healthy history, and what each kind of damage is called."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import invariants
from sessions_app.ids import new_id
from sessions_app.invariants import RULES, Effect, History, Logged, people_are_asked_once
from sessions_app.models import Child, InputState, ModelCall, Session, TreeBudget, TurnReason, Worker
from tests import factories
from tests.acceptance import agents
from tests.people import answer_everything
from tests.processes.workers import Workers
from tests.staging import eventually


def told(history: History) -> list[str]:
    return [sentence for rule in RULES for sentence in rule(history)]


def entry(history: History, kind: str) -> int:
    return next(at for at, logged in enumerate(history.entries) if logged.kind == kind)


def without(kind: str) -> Callable[[History], History]:
    def damage(history: History) -> History:
        at = entry(history, kind)
        return dataclasses.replace(history, entries=[*history.entries[:at], *history.entries[at + 1 :]])

    return damage


def doubled(kind: str) -> Callable[[History], History]:
    def damage(history: History) -> History:
        at = entry(history, kind)
        return dataclasses.replace(history, entries=[*history.entries[: at + 1], *history.entries[at:]])

    return damage


def of_session(**columns: Any) -> Callable[[History], History]:
    def damage(history: History) -> History:
        row = Session.objects.get(pk=history.session.pk)
        for name, value in columns.items():
            setattr(row, name, value)
        return dataclasses.replace(history, session=row)

    return damage


def changed(kind: str, **data: Any) -> Callable[[History], History]:
    def damage(history: History) -> History:
        entries = list(history.entries)
        at = entry(history, kind)
        entries[at] = entries[at]._replace(data=entries[at].data | data)
        return dataclasses.replace(history, entries=entries)

    return damage


def asked_again(history: History) -> History:
    early = history.model_calls[0]
    late = ModelCall(session_id=early.session_id, state="interrupted", attempt=1, covers_seq=early.covers_seq)
    return dataclasses.replace(history, model_calls=[*history.model_calls, late])


def effect(times: int, *, rerun_safe: bool = False) -> Callable[[History], History]:
    def damage(history: History) -> History:
        call = history.entries[entry(history, "tool_result")].data["tool_call"]
        return dataclasses.replace(
            history, effects=[Effect(tool_call=call, times=times, rerun_safe=rerun_safe)]
        )

    return damage


def undelivered(history: History) -> History:
    history.inputs[0].state = InputState.RECEIVED
    return history


def backwards(history: History) -> History:
    entries = list(history.entries)
    at = entry(history, "tool_result")
    entries[at] = entries[at]._replace(attempt=9)
    return dataclasses.replace(history, entries=entries)


DAMAGE: list[tuple[Callable[[History], History], str]] = [
    (without("turn_started"), "have gaps"),
    (doubled("tool_result"), "has 2 results"),
    (without("tool_result"), "has no result"),
    (doubled("user_message"), "was delivered 2 times"),
    (without("user_message"), "was delivered 0 times"),
    (undelivered, "an input still waits"),
    (changed("user_message", input="inp_x"), "which does not exist"),
    (changed("tool_result", outcome="interrupted"), "says"),
    (changed("tool_result", tool_call="tcl_x"), "a call that nobody made"),
    (doubled("turn_started"), "starts a turn inside another"),
    (doubled("turn_ended"), "not the open one"),
    (changed("turn_ended", reason=TurnReason.LENGTH), "its log says length"),
    (of_session(model_calls=7), "counts 7 model calls"),
    (of_session(input_tokens=10_000), "count 10000 input_tokens"),
    (of_session(tool_calls=7), "counts 7 tool calls"),
    (of_session(next_seq=99), "the next number is 99"),
    (of_session(status="running"), "the session is running"),
    (of_session(attempt=0), ", the session 0"),
    (asked_again, "was saved before it"),
    (backwards, "go back"),
    (lambda history: dataclasses.replace(history, leased=True), "a lease is left"),
    (lambda history: dataclasses.replace(history, resumed=(2,)), "[2] should have"),
    (effect(2), "had its effect 2 times"),
    (effect(0), "has succeeded without an effect"),
    (effect(0, rerun_safe=True), "has succeeded without an effect"),
    (without("approval_decided"), "is still open, and the session does not wait"),
    (without("question_answered"), "is still open, and the session does not wait"),
    (doubled("question_answered"), "came to an end 2 times"),
    (without("approval_requested"), "does not say that it was asked"),
    (changed("approval_decided", decision="deny"), "though nobody had allowed"),
]


@pytest.mark.processes
def test_damage_is_found_and_health_is_not_reported(workers: Workers) -> None:
    """Every rule of the shared list, on the rows of a real session."""
    form = [{"text": "Sure?", "options": [{"label": "Yes"}]}]
    session = agents.start(
        {"tool_calls": [agents.call("dev_append", file="x"), agents.call("ask_user", questions=form)]},
        {"text": "Done."},
        permissions=[{"tool": "dev_append", "then": "ask"}],
    )
    worker = workers.start()

    def finished() -> bool:
        assert worker.status is None, worker.story()
        answer_everything([session])
        return agents.row(session).status == "idle"

    eventually(finished, within=20)
    assert told(invariants.read(session, resumed=())) == []
    missed = {}
    for number, (damage, wanted) in enumerate(DAMAGE):
        found = told(damage(invariants.read(session)))
        if not any(wanted in sentence for sentence in found):
            missed[number, wanted] = found
    assert missed == {}


@pytest.mark.parametrize(("reason", "violations"), [("branch", 0), ("crash", 1)])
def test_a_denied_call_is_interrupted_only_where_a_rewind_left_its_result_behind(
    reason: str, violations: int
) -> None:
    """T7: it never began, and what a new branch says of it is no run."""
    call = {"tool_call": "tcl_1"}
    entries = [
        Logged(1, 0, "approval_requested", None, 1, {**call, "approval": "apr_1"}),
        Logged(2, 1, "approval_decided", None, None, {"approval": "apr_1", "decision": "deny"}),
        Logged(3, 0, "session_resumed", None, 2, {"reason": reason, "repaired_tool_calls": ["tcl_1"]}),
        Logged(4, 3, "tool_result", None, 2, {**call, "outcome": "interrupted"}),
    ]
    history = History(session=Session(), entries=entries)
    assert len(list(people_are_asked_once(history))) == violations


@pytest.mark.processes
def test_a_lease_of_a_dead_worker_is_found(workers: Workers) -> None:
    """Of the whole deployment: leases whose worker is dead, or whose attempt is not the session's."""
    session = agents.start({"text": "Slow.", "delay": 30})
    worker = workers.start()
    agents.wait_until_asking(session)
    assert invariants.check_workers() == []
    worker.kill()
    Worker.objects.update(dead=True)
    (sentence,) = invariants.check_workers()
    assert "is dead" in sentence
    Session.objects.filter(pk=session).update(attempt=7)
    assert any("another attempt" in sentence for sentence in invariants.check_workers())


# --- trees of sessions -----------------------------------------------------------------------------------


def subagent(**columns: Any) -> Child:
    parent = factories.session()
    session = factories.session(config=parent.config, parent=parent)
    values = {"working": True} | columns
    return Child.objects.create(session=session, parent=parent, tool_call=new_id(), turn=new_id(), **values)


@pytest.mark.django_db
def test_an_end_that_nobody_was_told_of_is_a_violation() -> None:
    """T8"""
    child = subagent()
    assert invariants.check_trees() == [f"session {child.pk} rests, and its parent was not told"]
    factories.received_input(child.session)
    assert invariants.check_trees() == []
    Child.objects.filter(pk=child.pk).update(working=False, status="succeeded", reason="done")
    assert invariants.check_trees() == [f"session {child.pk} works, and counts as resting"]


@pytest.mark.django_db
def test_a_reservation_that_no_call_holds_is_a_violation() -> None:
    """R8"""
    session = factories.session()
    session.tree = session.pk
    session.save()
    TreeBudget.objects.create(session=session, reserved_model_calls=1, reserved_tokens=700)
    (found,) = invariants.check_trees()
    assert "700 tokens reserved for calls that reserved 0" in found
    factories.open_turn(session)
    ModelCall.objects.create(
        session=session, turn=session.turn, config=session.config, attempt=1, covers_seq=0, reserved=700
    )
    assert invariants.check_trees() == []
