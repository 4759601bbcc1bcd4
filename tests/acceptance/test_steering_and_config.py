"""Steering, the queue, other configs and archiving while a real worker runs the session in this process."""

import copy
import dataclasses
from contextlib import ExitStack
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from sessions_app import configs, control, inputs, leases, steps
from sessions_app.api import session_shapes
from sessions_app.engine import calling, following
from sessions_app.engine import state as states
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import Input, ModelCall, Project, Session, Turn, Worker
from sessions_app.providers.port import ModelRequest, Reply
from tests import factories
from tests.acceptance import agents
from tests.sessions_app.engine.in_process import working
from tests.sessions_app.test_claims import bulk
from tests.staging import eventually

pytestmark = pytest.mark.django_db(transaction=True)

SLOW = {"retry_base": 60.0, "retry_max": 60.0}
FAILS = {"error": {"status": 500}}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ModelRequest]:
    """What the worker of this process asks for, in order."""
    seen: list[ModelRequest] = []
    ask = calling.ask

    async def spied(request: ModelRequest, *args: Any, **kwargs: Any) -> Reply:
        # The messages are those of the run's context, which goes on growing.
        seen.append(dataclasses.replace(request, messages=copy.deepcopy(request.messages)))
        return await ask(request, *args, **kwargs)

    monkeypatch.setattr(calling, "ask", spied)
    return seen


def heard(request: ModelRequest) -> list[str]:
    """The texts of the user messages in a request."""
    return [
        block["text"]
        for message in request.messages
        if message["role"] == "user"
        for block in message["content"]
    ]


def backing_off(session: UUID) -> Session:
    found: Session = eventually(
        lambda: Session.objects.filter(pk=session, status="backing_off", lease=None).first(), within=15
    )
    return found


def another_config(session: UUID, *replies: dict[str, Any], name: str = "other") -> UUID:
    document = {
        "instructions": "Be other.",
        "model": f"scripted:{name}",
        "script": {"replies": list(replies)},
    }
    return configs.create_config(project=agents.row(session).project_id, document=document).row.pk


def change_config(session: UUID, config: UUID) -> None:
    control.change_config(session=session, config=config, actor=SYSTEM)


# --- steering and the queue ------------------------------------------------------------------------------


def test_steering_during_backoff_is_asked_now_in_the_same_turn_with_a_fresh_budget(
    settings: Any, requests: list[ModelRequest]
) -> None:
    """A50, R6: both openings in the next request, try 1, and the row of the failed call stays as it was."""
    session = agents.start(FAILS, FAILS, {"text": "There."}, texts=("one",))
    with working(settings, **SLOW) as rested:
        first = backing_off(session)
        failed = ModelCall.objects.filter(session_id=session).values().get()
        agents.say(session, "two", delivery="steering")
        eventually(lambda: ModelCall.objects.filter(session_id=session, state="failed").count() == 2)
        second = backing_off(session)
        agents.say(session, "three", delivery="steering")
        assert rested(session).status == "idle"
    assert [heard(request) for request in requests] == [["one"], ["one", "two"], ["one", "two", "three"]]
    assert first.retry_at != second.retry_at  # less a jitter that each call has its own of
    assert [entry.data["retry"] for entry in agents.log_of(session, "retry_scheduled")] == [1, 1]
    assert ModelCall.objects.filter(pk=failed["id"]).values().get() == failed
    turn = Turn.objects.get(session_id=session)
    assert (turn.status, turn.number) == ("succeeded", 1)
    assert set(Input.objects.values_list("state", "turn_id")) == {("delivered", turn.pk)}


def test_queued_input_leaves_the_retry_its_time_and_starts_the_next_turn(
    settings: Any, requests: list[ModelRequest]
) -> None:
    """R6, A47: also when it is moved and others are taken back; the API shows the time."""
    replies = ({"error": {"status": 429, "retry_after": 1}}, {"text": "one"}, {"text": "two"})
    session = agents.start(*replies, texts=("one",))
    with working(settings) as rested:
        waiting = backing_off(session)
        kept, dropped = agents.say(session, "two"), agents.say(session, "gone")
        inputs.move_input(input=kept, to=inputs.Place("last"), actor=SYSTEM)
        inputs.cancel_input(input=dropped, actor=SYSTEM)
        shown = session_shapes.session(session_shapes.session_rows().get(pk=session))
        assert (shown["status"], shown["queued_inputs"]) == ("backing_off", 1)
        assert shown["retry_at"] == waiting.retry_at.isoformat().replace("+00:00", "Z")
        assert rested(session).status == "idle"
    calls = list(ModelCall.objects.filter(session_id=session).order_by("started_at"))
    assert calls[1].started_at >= waiting.retry_at
    assert [heard(request)[-1] for request in requests] == ["one", "one", "two"]
    assert agents.said(session) == ["one", "two"]
    assert Turn.objects.filter(session_id=session, status="succeeded").count() == 2


def test_a_promoted_input_joins_the_turn_that_backs_off(settings: Any, requests: list[ModelRequest]) -> None:
    """A54: the due time is now."""
    session = agents.start(FAILS, {"text": "There."}, texts=("one",))
    with working(settings, **SLOW) as rested:
        backing_off(session)
        later = agents.say(session, "two")
        inputs.promote_input(input=later, actor=SYSTEM)
        assert rested(session).status == "idle"
    assert heard(requests[-1]) == ["one", "two"]
    assert Turn.objects.filter(session_id=session).count() == 1


def test_a_retry_time_outlives_the_worker_that_stored_it(settings: Any) -> None:
    """A33: Retry-After is durable; the worker that comes next asks then and not before."""
    session = agents.start({"error": {"status": 429, "retry_after": 2}}, {"text": "There."})
    with working(settings):
        before = backing_off(session)
    with working(settings) as rested:
        assert backing_off(session).retry_at == before.retry_at
        assert rested(session).status == "idle"
    failed, succeeded = ModelCall.objects.filter(session_id=session).order_by("started_at")
    assert (failed.state, succeeded.state) == ("failed", "succeeded")
    assert succeeded.started_at >= before.retry_at
    assert agents.resumed(session) == []


@pytest.mark.parametrize("delivered", [True, False])
def test_what_was_said_before_a_crash_and_after_it_reaches_the_model(
    settings: Any, requests: list[ModelRequest], delivered: bool
) -> None:
    """A51: the first worker dies before anything was asked; with the first input delivered or not, none is lost."""
    session = agents.start({"text": "first"}, {"text": "second"}, texts=("one",))
    dead = factories.worker()
    (claimed,) = leases.claim(worker=dead.pk, limit=1)
    if delivered:
        state = states.load({session: claimed.attempt})[session]
        course = following.follow(state, may_act=True)
        step = steps.StepWrite(session=session, attempt=1, work_rev=state.work_rev, then=course.then)
        (result,) = steps.commit_steps(dead.pk, [step])
        assert not result.moved
    leases.end_lease(session, reason="crash")
    agents.say(session, "two", delivery="steering")
    with working(settings) as rested:
        assert rested(session).status == "idle"
    expected = [["one", "two"]] if delivered else [["two"], ["two", "one"]]
    assert [heard(request) for request in requests] == expected
    assert set(Input.objects.values_list("state", flat=True)) == {"delivered"}


# --- another config --------------------------------------------------------------------------------------


def test_a_call_under_way_keeps_its_config_and_the_next_one_has_the_new(
    settings: Any, requests: list[ModelRequest]
) -> None:
    """A61, I7: the round that was sent uses the old one, its tools too; the next uses the new."""
    session = agents.start(
        {"delay": 0.5, "tool_calls": [agents.call("set_label", key="k", value="v")]}, {"text": "old"}
    )
    old = agents.row(session).config_id
    with working(settings) as rested:
        agents.wait_until_asking(session)
        new = another_config(session, {"text": "never"}, {"text": "new"})
        change_config(session, new)
        assert rested(session).status == "idle"
    assert [request.model for request in requests] == ["test", "other"]
    assert [request.instructions for request in requests] == ["Be brief.", "Be other."]
    assert agents.outcomes(session) == [("set_label", "succeeded")]
    assert agents.said(session) == ["new"]
    calls = ModelCall.objects.filter(session_id=session).order_by("started_at")
    assert list(calls.values_list("config_id", "state")) == [(old, "succeeded"), (new, "succeeded")]


def test_a_retry_keeps_its_time_and_is_made_under_the_new_config(
    settings: Any, requests: list[ModelRequest]
) -> None:
    """A62"""
    session = agents.start({"error": {"status": 429, "retry_after": 1}}, {"text": "old"})
    with working(settings) as rested:
        waiting = backing_off(session)
        change_config(session, another_config(session, {"text": "never"}, {"text": "new"}))
        assert backing_off(session).retry_at == waiting.retry_at
        assert rested(session).status == "idle"
    assert [request.model for request in requests] == ["test", "other"]
    assert agents.said(session) == ["new"]
    retried = ModelCall.objects.filter(session_id=session).latest("started_at")
    assert retried.started_at >= waiting.retry_at


def test_an_idle_session_with_another_config_is_not_run(settings: Any, requests: list[ModelRequest]) -> None:
    """A64: no turn and no model call, though a worker stands by; the next input uses the config."""
    session = agents.start({"text": "old"})
    with working(settings) as rested:
        rested(session)
        change_config(session, another_config(session, {"text": "never"}, {"text": "new"}))
        last = agents.row(session)
        assert (last.status, last.wake_at, last.lease_end) == ("idle", None, None)
        agents.say(session, "again")
        eventually(lambda: agents.said(session) == ["old", "new"])
        rested(session)
    kinds = [entry.kind for entry in agents.log_of(session)]
    after = kinds.index("config_changed")
    assert kinds[after + 1] == "input_received"
    assert [request.model for request in requests] == ["test", "other"]


# --- archive ---------------------------------------------------------------------------------------------


def test_archiving_while_the_model_speaks_leaves_nothing_of_it(settings: Any) -> None:
    """A46: the worker loses the session at once and goes on with others; restored, it can be spoken to."""
    session = agents.start({"delay": 30, "text": "late"}, texts=("one", "two"))
    other = agents.start({"text": "mine"})
    with working(settings) as rested:
        agents.wait_until_asking(session)
        control.archive(session=session, actor=SYSTEM)
        row = agents.row(session)
        assert (row.status, row.wake_at, row.retry_at, row.turn_id) == ("archived", None, None, None)
        assert rested(other).status == "idle"
        control.restore(session=session, actor=SYSTEM)
        change_config(session, another_config(session, {"text": "back"}))
        agents.say(session, "three")
        eventually(lambda: agents.said(session) == ["back"], within=15)
        rested(session)
    assert agents.said(session) == ["back"]
    assert list(
        Turn.objects.filter(session_id=session).order_by("number").values_list("reason", flat=True)
    ) == [
        "archived",
        "done",
    ]
    dropped = Input.objects.filter(session_id=session, state="cancelled").get()
    assert dropped.content[0]["text"] == "two"


# --- places ----------------------------------------------------------------------------------------------


@pytest.fixture
def one_project(monkeypatch: pytest.MonkeyPatch) -> Project:
    """All agents of the test belong to it; one of its sessions runs at a time."""
    project = factories.project()
    Project.objects.filter(pk=project.pk).update(max_running=1)
    monkeypatch.setattr(factories, "project", lambda **_: project)
    return project


def test_sessions_beyond_a_limit_start_one_by_one_as_soon_as_a_place_is_free(
    settings: Any, one_project: Project
) -> None:
    """The fallback poll is far away: the release itself has the next one claimed. None overlaps another."""
    with working(settings, worker_poll_interval=60.0):
        sessions = [agents.start({"delay": 0.1, "text": str(number)}) for number in range(5)]
        eventually(lambda: Turn.objects.filter(status="succeeded").count() == 5, within=20)
    calls = list(ModelCall.objects.order_by("started_at"))
    assert len(calls) == len(sessions)
    assert all(before.ended_at <= after.started_at for before, after in pairwise(calls))


def test_a_place_that_a_stopping_worker_leaves_is_taken_by_another(
    settings: Any, one_project: Project
) -> None:
    """The session that had it rests, so nothing is due but what the limit held back; the other worker is woken."""
    with ExitStack() as first:
        first.enter_context(working(settings, worker_poll_interval=60.0))
        held = agents.start({"delay": 1, "text": "first"})
        agents.wait_until_asking(held)
        back = agents.start({"text": "second"})
        with working(settings, worker_poll_interval=60.0):
            eventually(lambda: Worker.objects.filter(dead=False).count() == 2)
            assert agents.row(back).status == "queued"
            first.close()
            eventually(lambda: agents.said(back) == ["second"], within=15)
    assert agents.said(held) == ["first"]


def test_a_crowd_of_ten_thousand_does_not_hold_up_the_single_session_of_another_project(
    settings: Any,
) -> None:
    """Fairness: its model is asked within a second, while one worker goes through the crowd at full speed."""
    crowd = factories.config(
        document={"instructions": "Be brief.", "model": {"provider": "scripted", "name": "x"}}
    )
    bulk(crowd, 10_000, seconds=-3600, priority=-100)
    waiting = Session.objects.filter(project=crowd.project_id, status="queued")
    with working(settings):
        eventually(lambda: waiting.count() < 9_900, within=15)
        single = agents.start({"text": "here"})
        call = eventually(lambda: ModelCall.objects.filter(session_id=single).first(), within=15)
        assert waiting.exists()
    assert (call.started_at - agents.row(single).created_at).total_seconds() < 1
