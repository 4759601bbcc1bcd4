"""Archive and restore: one transaction that leaves nothing pending, and a way back (I6)."""

from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import control, ids, inputs, leases, steps
from sessions_app.errors import NotFound, SessionArchived
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Input, Lease, ModelCall, Session, Turn
from sessions_app.sweeper import Sweeper
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, holding, wait_until_blocked
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


def archive(session: Session) -> Session:
    return control.archive(session=session.pk, actor=ACTOR)


def restore(session: Session) -> Session:
    return control.restore(session=session.pk, actor=ACTOR)


def kinds(session: Session) -> list[str]:
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))


def started() -> Session:
    """A model call is under way."""
    session = factories.running(factories.worker())
    ModelCall.objects.create(
        session=session, turn_id=session.turn_id, config=session.config, attempt=1, covers_seq=0
    )
    return session


def retrying() -> Session:
    """A model call waits for its retry."""
    retry_at = factories.database_now(60)
    session = factories.session(status="backing_off", retry_at=retry_at, wake_at=retry_at)
    factories.open_turn(session)
    return session


def waiting() -> Session:
    """Two people and a backend are asked."""
    session = factories.session(status="waiting")
    factories.open_turn(session)
    factories.tool_call(session, state="waiting", tool_class="human")
    factories.tool_call(session, state="awaiting_approval")
    factories.tool_call(session, state="waiting", tool_class="custom", deadline=factories.database_now(60))
    return session


@pytest.mark.parametrize("at_work", [started, retrying, waiting])
def test_archiving_ends_whatever_is_under_way_and_leaves_no_due_time(at_work: Callable[[], Session]) -> None:
    """A46, I6: lease, model call, tool calls, turn and retry time, in one transaction."""
    session = at_work()
    archive(session)
    row = factories.reread(session)
    assert (row.status, row.turn_id, row.wake_at, row.retry_at) == ("archived", None, None, None)
    assert (row.waiting_on, row.lease_end) == ([], None)
    assert row.archived_at <= factories.database_now()
    assert not Lease.objects.exists()
    turn = Turn.objects.get()
    assert (turn.status, turn.reason) == ("cancelled", "archived")
    assert not ModelCall.objects.filter(state="started").exists()
    assert set(ToolCall.objects.values_list("state", "outcome")) <= {("completed", "cancelled")}
    assert kinds(session)[-2:] == ["turn_ended", "archived"]
    ended = Entry.objects.get(kind="turn_ended")
    assert (ended.data["reason"], ended.actor) == ("archived", ACTOR)  # I8
    seen = Sweeper()
    try:
        assert session.pk not in seen.look().undue  # A145
    finally:
        seen.disconnect()
    assert leases.claim(worker=factories.worker().pk, limit=5) == []


def test_waiting_input_is_dropped_and_each_is_told() -> None:
    """I6: cancelled, with an entry each, in order; what was delivered stays delivered."""
    session = factories.due()
    turn = factories.open_turn(session)
    Input.objects.filter(session=session).update(state="delivered", turn=turn)
    rows = [
        factories.received_input(session, text=text, delivery=way)
        for text, way in [("a", "queued"), ("b", "steering")]
    ]
    archive(session)
    assert list(Input.objects.order_by("rank").values_list("state", flat=True)) == [
        "delivered",
        "cancelled",
        "cancelled",
    ]
    dropped = Entry.objects.filter(kind="input_cancelled").order_by("seq")
    assert [entry.data for entry in dropped] == [
        {"input": ids.encode("inp", row.pk), "reason": "archived"} for row in rows
    ]


def test_machines_are_given_back() -> None:
    """I6"""
    from machines_app.models import Machine, MachineBinding

    session, other = factories.session(), factories.session()
    machine = Machine.objects.create(project_id=session.project_id, name="build-1")
    for row in (session, other):
        MachineBinding.objects.create(session=row, machine=machine)
    archive(session)
    assert MachineBinding.objects.get().session_id == other.pk
    assert kinds(session) == ["machine_detached", "archived"]
    assert Entry.objects.get(kind="machine_detached").data == {"machine": ids.encode("mch", machine.pk)}


def test_archiving_and_restoring_are_told_once_and_may_be_repeated() -> None:
    """S7: the second time there is nothing to do."""
    session = factories.session()
    for _ in range(2):
        archive(session)
    archived_at = factories.reread(session).archived_at
    assert kinds(session) == ["archived"]
    for _ in range(2):
        restore(session)
    row = factories.reread(session)
    assert archived_at is not None
    assert (row.status, row.archived_at) == ("idle", None)
    assert kinds(session) == ["archived", "restored"]
    with pytest.raises(NotFound):
        control.archive(session=ids.new_id(), actor=ACTOR)
    with pytest.raises(NotFound):
        control.restore(session=ids.new_id(), actor=ACTOR)


def test_a_restored_session_takes_input_again_and_what_was_dropped_stays_dropped() -> None:
    """I6: also one that was at its crash limit."""
    session = factories.session(crash_count=5, status="waiting", waiting_on=[{"kind": "crash_limit"}])
    factories.received_input(session, text="old")
    archive(session)
    with pytest.raises(SessionArchived):
        inputs.submit_input(session=session.pk, content=[], actor=ACTOR)
    restore(session)
    assert factories.reread(session).status == "idle"
    inputs.submit_input(session=session.pk, content=[{"type": "text", "text": "new"}], actor=ACTOR)
    row = factories.reread(session)
    assert row.status == "queued"
    assert [item.content[0]["text"] for item in Input.objects.filter(state="received")] == ["new"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["archive", "step"])
def test_an_archive_that_races_a_step_leaves_nothing_of_a_late_one(first: str) -> None:
    """A46, L3: the step is saved before, or lost; the archive ends the turn either way."""
    worker = factories.worker()
    session = factories.running(worker)
    step = steps.StepWrite(
        session=session.pk,
        attempt=session.attempt,
        work_rev=session.work_rev,
        entries=(NewEntry(kind="note", data={"text": "said"}, turn=session.turn_id),),
    )
    acts: dict[str, Callable[[], Any]] = {
        "archive": lambda: archive(session),
        "step": lambda: steps.commit_steps(worker.pk, [step]),
    }
    second = "step" if first == "archive" else "archive"
    with holding(LOCK, session.pk):
        contenders = {first: Contender(acts[first])}
        wait_until_blocked()
        contenders[second] = Contender(acts[second])
        wait_until_blocked(2)
    contenders["archive"].result()
    (result,) = contenders["step"].result()
    said = ["note"] if first == "step" else []
    assert isinstance(result, steps.Saved if first == "step" else steps.Lost)
    assert kinds(session) == [*said, "turn_ended", "archived"]
    assert factories.reread(session).status == "archived"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["archive", "input"])
def test_an_input_that_races_an_archive_is_dropped_with_the_others_or_refused(first: str) -> None:
    """I6, A142: no input is left waiting in an archived session."""
    session = factories.session()
    acts: dict[str, Callable[[], Any]] = {
        "archive": lambda: archive(session),
        "input": lambda: inputs.submit_input(
            session=session.pk, content=[{"type": "text", "text": "x"}], actor=ACTOR
        ),
    }
    second = "input" if first == "archive" else "archive"
    with holding(LOCK, session.pk):
        contenders = {first: Contender(acts[first])}
        wait_until_blocked()
        contenders[second] = Contender(acts[second])
        wait_until_blocked(2)
    contenders["archive"].result()
    if first == "archive":
        with pytest.raises(SessionArchived):
            contenders["input"].result()
        assert not Input.objects.exists()
    else:
        contenders["input"].result()
        assert Input.objects.get().state == "cancelled"
    assert factories.reread(session).status == "archived"
