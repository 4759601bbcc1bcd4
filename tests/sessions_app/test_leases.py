"""The one end of a lease, for every reason, and what the fence lets through."""

import pytest
from django.db import IntegrityError, connection, transaction

from sessions_app import control, ids, inputs, leases, steps
from sessions_app.entry_kinds import SYSTEM
from sessions_app.errors import Conflict, LeaseLost, NotFound, WorkerDead, is_lease_lost
from sessions_app.log import NewEntry
from sessions_app.models import Entry, InputState, Lease, ModelCall, Session, Turn, Worker
from tests import factories
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db

ALL = ("crash", "drain", "released", "forced", "cancelled")
UNKNOWN = "Tool call was interrupted; its external outcome is unknown."


@pytest.fixture
def worker():
    return factories.worker()


def started_call(session):
    return ModelCall.objects.create(
        session=session, turn_id=session.turn_id, config=session.config, attempt=session.attempt, covers_seq=0
    )


def running_call(session, **columns):
    return factories.tool_call(session, state="running", **columns)


def kinds(session):
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))


def note(session, **parts):
    values = {"session": session.id, "attempt": session.attempt, "work_rev": session.work_rev}
    entries = (NewEntry(kind="note", data={"text": "noted"}),)
    return steps.StepWrite(**(values | {"entries": entries} | parts))


def name(call):
    return ids.encode("tcl", call.pk)


def crash(session, worker):
    """The session is given to the worker again, which dies with it."""
    current = factories.reread(session)
    if not Lease.objects.filter(pk=session.pk).exists():
        factories.leased(current, worker)
    leases.end_lease(session.id, reason="crash")
    return factories.reread(session)


# --- L7: one function, five reasons ----------------------------------------------------------------------


@pytest.mark.parametrize("reason", ALL)
def test_every_end_takes_the_lease_and_interrupts_the_open_model_call(reason, worker):
    """L7, R1, R7: in one transaction; the provider may bill what nobody will ever see"""
    session = factories.running(worker)
    call = started_call(session)
    assert leases.end_lease(session.id, reason=reason)
    assert not Lease.objects.filter(session=session).exists()
    call.refresh_from_db()
    assert (call.state, call.may_be_billed) == ("interrupted", True)
    assert call.ended_at is not None
    after = factories.reread(session)
    assert after.status != "running"
    assert after.attempt == session.attempt


@pytest.mark.parametrize("reason", ALL)
def test_every_end_settles_running_calls_by_their_class_but_cancel_leaves_them(reason, worker):
    """L7, T4: cancel closes the whole turn itself (I6)"""
    session = factories.running(worker)
    once = running_call(session)
    again = running_call(session, rerun_safe=True)
    ready = factories.tool_call(session, state="ready")
    waiting = factories.tool_call(session, state="waiting")
    leases.end_lease(session.id, reason=reason)
    states = dict(ToolCall.objects.filter(session=session).values_list("pk", "state"))
    if reason == "cancelled":
        assert (states[once.pk], states[again.pk]) == ("running", "running")
        assert kinds(session) == []
    else:
        assert (states[once.pk], states[again.pk]) == ("completed", "ready")
        (entry,) = Entry.objects.filter(session=session)
        assert (entry.kind, entry.data["outcome"], entry.data["tool_call"]) == (
            "tool_result", "interrupted", name(once),
        )  # fmt: skip
        assert entry.data["content"] == [{"type": "text", "text": UNKNOWN}]
        assert entry.attempt == session.attempt
    assert (states[ready.pk], states[waiting.pk]) == ("ready", "waiting")


@pytest.mark.parametrize(
    ("reason", "remembered", "counted"),
    [
        ("crash", True, 1), ("drain", True, 0), ("forced", True, 0), ("released", False, 0), ("cancelled", False, 0),
    ],
)  # fmt: skip
def test_what_the_next_attempt_has_to_know_is_kept_and_only_crashes_count(
    reason, remembered, counted, worker
):
    """L7, S9, R9, C68: reason, attempt and settled calls where a turn is open and was not handed over in peace"""
    session = factories.running(worker)
    once, again = running_call(session), running_call(session, rerun_safe=True)
    leases.end_lease(session.id, reason=reason)
    after = factories.reread(session)
    expected = {"reason": reason, "attempt": 1, "settled": [name(once), name(again)]} if remembered else None
    assert after.lease_end == expected
    assert after.crash_count == counted


@pytest.mark.parametrize("reason", ALL)
def test_an_end_without_an_open_turn_leaves_nothing_to_resume(reason, worker):
    """S9, R9: claimed, and gone before anything began; a crash counts all the same"""
    session = factories.session()
    factories.leased(session, worker)
    leases.end_lease(session.id, reason=reason)
    after = factories.reread(session)
    assert (after.lease_end, after.status, after.wake_at) == (None, "idle", None)
    assert after.crash_count == (reason == "crash")


@pytest.mark.parametrize("reason", ["crash", "drain", "released", "forced"])
def test_every_end_computes_the_due_time(reason, worker):
    """L7, S11: now if somebody waits for an answer, never for a session that has nothing to do"""
    busy, resting, waiting = factories.running(worker), factories.session(), factories.running(worker)
    factories.leased(resting, worker)
    factories.tool_call(waiting, state="waiting")
    for session in (busy, resting, waiting):
        leases.end_lease(session.id, reason=reason)
    now = factories.database_now()
    due = factories.reread(busy)
    assert due.status == "queued"
    assert due.wake_at <= now
    assert [(row.status, row.wake_at) for row in map(factories.reread, (resting, waiting))] == [
        ("idle", None),
        ("waiting", None),
    ]
    assert kinds(waiting) == ["session_waiting"]


def test_the_crash_of_a_draining_worker_is_a_drain(worker):
    """L8, C68: whatever ends its leases from now on costs no crash count"""
    session = factories.running(worker)
    leases.start_draining(worker=worker.pk)
    leases.end_lease(session.id, reason="crash")
    after = factories.reread(session)
    assert (after.lease_end["reason"], after.crash_count) == ("drain", 0)


@pytest.mark.parametrize("reason", ALL)
def test_an_end_can_be_repeated(reason, worker):
    """L7: the second finds no lease, and writes nothing"""
    session = factories.running(worker)
    running_call(session)
    assert leases.end_lease(session.id, reason=reason)
    before = Session.objects.filter(pk=session.pk).values().get()
    assert not leases.end_lease(session.id, reason=reason)
    assert not leases.force_release(session.id)
    assert Session.objects.filter(pk=session.pk).values().get() == before


def test_an_end_for_another_worker_or_attempt_ends_nothing(worker):
    """L7: who comes late has the wrong number"""
    session = factories.running(worker)
    assert not leases.end_lease(session.id, reason="crash", worker=factories.worker().pk)
    assert not leases.release(session.id, worker=worker.pk, attempt=session.attempt + 1)
    assert not leases.end_lease(ids.new_id(), reason="crash")
    assert Lease.objects.filter(session=session).exists()


def test_an_end_that_fails_halfway_changes_nothing(worker, monkeypatch):
    """L7: one transaction; the lease stays until the whole end can be written"""
    session = factories.running(worker)
    call, model_call = running_call(session), started_call(session)
    monkeypatch.setattr(
        leases.ending, "reschedule", lambda row: (_ for _ in ()).throw(RuntimeError("broken"))
    )
    with pytest.raises(RuntimeError, match="broken"):
        leases.end_lease(session.id, reason="crash")
    call.refresh_from_db()
    model_call.refresh_from_db()
    assert (call.state, model_call.state) == ("running", "started")
    assert Lease.objects.filter(session=session).exists()
    assert kinds(session) == []


def test_one_lease_that_cannot_be_ended_does_not_keep_the_others(worker, monkeypatch):
    """A4, L7: the rest is ended, the error reported"""
    sessions = sorted((factories.running(worker) for _ in range(3)), key=lambda row: row.id)
    really = leases.end_lease

    def end(session_id, **kwargs):
        if session_id == sessions[1].id:
            raise RuntimeError("broken")
        return really(session_id, **kwargs)

    monkeypatch.setattr(leases.ending, "end_lease", end)
    with pytest.raises(ExceptionGroup) as caught:
        leases.end_leases_of(worker=worker.pk, reason="crash")
    assert [str(error) for error in caught.value.exceptions] == ["broken"]
    assert list(Lease.objects.values_list("session_id", flat=True)) == [sessions[1].id]


# --- R9: crashes in a row --------------------------------------------------------------------------------


def test_settled_calls_add_up_until_the_resume_is_told(worker):
    """S9: two deaths in a row; the attempt that lives tells of both, and then the slate is clean"""
    session = factories.running(worker)
    first = running_call(session)
    crash(session, worker)
    session = factories.reread(session)
    factories.leased(session, worker)
    second = running_call(session)
    leases.end_lease(session.id, reason="drain")
    after = factories.reread(session)
    assert after.lease_end == {"reason": "drain", "attempt": 2, "settled": [name(first), name(second)]}
    assert after.crash_count == 1

    factories.leased(after, worker)
    (saved,) = steps.commit_steps(worker.pk, [note(after, resumed=True)])
    assert isinstance(saved, steps.Saved)
    assert factories.reread(session).lease_end is None


def test_a_peaceful_release_forgets_nothing_that_is_still_to_be_told(worker):
    """S9: claimed after a crash and released before the first step"""
    session = factories.running(worker)
    call = running_call(session)
    crash(session, worker)
    current = factories.reread(session)
    factories.leased(current, worker)
    leases.release(session.id, worker=worker.pk, attempt=current.attempt)
    assert factories.reread(session).lease_end == {"reason": "crash", "attempt": 1, "settled": [name(call)]}


def test_at_the_crash_limit_the_turn_ends_and_inherited_input_waits_for_a_new_one(worker):
    """R9: five deaths; the turn has failed, its calls are closed, and what waited stays received"""
    session = factories.running(worker)
    turn = session.turn_id
    inherited = factories.received_input(session)
    held = factories.tool_call(session, state="waiting")
    for count in range(1, 5):
        after = crash(session, worker)
        assert (after.crash_count, after.turn_id) == (count, turn)
    running = running_call(session)
    after = crash(session, worker)
    assert (after.turn_id, after.last_turn_id, after.crash_count, after.lease_end) == (None, turn, 5, None)
    ended = Turn.objects.get(pk=turn)
    assert (ended.status, ended.reason, ended.error["code"]) == ("failed", "crash_limit", "crash_limit")
    outcomes = dict(ToolCall.objects.filter(session=session).values_list("pk", "outcome"))
    assert outcomes == {held.pk: "cancelled", running.pk: "interrupted"}
    assert (after.status, after.wake_at, after.waiting_on) == ("waiting", None, [{"kind": "crash_limit"}])
    inherited.refresh_from_db()
    assert inherited.state == InputState.RECEIVED
    assert leases.claim(worker=worker.pk, limit=10) == []

    inputs.submit_input(session=session.id, content=[{"type": "text", "text": "again"}], actor=SYSTEM)
    (claimed,) = leases.claim(worker=worker.pk, limit=10)
    assert claimed.session == session.id
    assert factories.reread(session).crash_count == 0


def test_at_the_crash_limit_a_session_without_input_rests(worker):
    """R9"""
    session = factories.running(worker, crash_count=4)
    after = crash(session, worker)
    assert (after.status, after.wake_at, after.crash_count) == ("idle", None, 5)
    assert kinds(session) == ["turn_ended"]


def test_a_crash_after_the_limit_was_reached_counts_no_further(worker):
    """R9"""
    session = factories.session(crash_count=5)
    after = crash(session, worker)
    assert after.crash_count == 5


# --- L3: the fence ---------------------------------------------------------------------------------------


def test_the_fence_yields_the_locked_row_to_the_attempt_that_holds_it(worker):
    """L3"""
    session = factories.running(worker)
    with leases.fence(session.id, worker=worker.pk, attempt=session.attempt) as row:
        row.name = "mine"
        row.save()
    assert factories.reread(session).name == "mine"


def misused(session, worker):
    other = factories.worker()
    yield "another worker", session.id, other.pk, session.attempt
    yield "an older attempt", session.id, worker.pk, session.attempt - 1
    yield "a later attempt", session.id, worker.pk, session.attempt + 1
    yield "no session", ids.new_id(), worker.pk, session.attempt
    yield "no lease", factories.session(attempt=1).id, worker.pk, 1


def test_the_fence_lets_nobody_else_in(worker):
    """L3: nothing of the block runs"""
    session = factories.running(worker)
    for what, session_id, worker_id, attempt in misused(session, worker):
        with (
            pytest.raises(LeaseLost) as caught,
            leases.fence(session_id, worker=worker_id, attempt=attempt),
        ):
            pytest.fail(f"{what} got in")
        assert caught.value.data == {"reason": None}, what


def test_an_error_inside_the_fence_undoes_everything(worker):
    """L3: one transaction"""
    session = factories.running(worker)
    with (  # noqa: PT012 - the block is what fails
        pytest.raises(ValueError, match="no"),
        leases.fence(session.id, worker=worker.pk, attempt=session.attempt) as row,
    ):
        row.name = "half done"
        row.save()
        raise ValueError("no")
    assert factories.reread(session).name == ""


@pytest.mark.parametrize("reason", ["crash", "drain", "forced"])
def test_who_lost_the_lease_is_told_why(reason, worker):
    """L3: the reason the lease ended, where known"""
    session = factories.running(worker)
    leases.end_lease(session.id, reason=reason)
    with (
        pytest.raises(LeaseLost) as caught,
        leases.fence(session.id, worker=worker.pk, attempt=session.attempt),
    ):
        pytest.fail("got in")
    assert caught.value.data == {"reason": reason}
    assert steps.commit_steps(worker.pk, [note(session)]) == [steps.Lost(reason)]


def raised(function):
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - to be looked at
        return error
    raise AssertionError("nothing was raised")


def from_cause():
    try:
        raise LeaseLost  # noqa: TRY301 - a chain is made
    except LeaseLost as error:
        raise RuntimeError("wrapped") from error


def from_context():
    try:
        raise LeaseLost  # noqa: TRY301 - a chain is made
    except LeaseLost:
        raise RuntimeError("while handling it")  # noqa: B904 - the point of the test


def from_group():
    raise ExceptionGroup("many", [ValueError("other"), ExceptionGroup("inner", [raised(from_cause)])])


def from_group_in_a_chain():
    try:
        from_group()
    except ExceptionGroup as group:
        raise RuntimeError("tools failed") from group


def hidden_behind_none():
    try:
        raise LeaseLost  # noqa: TRY301 - a chain is made
    except LeaseLost:
        raise RuntimeError("context kept though not shown") from None


def circular():
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


@pytest.mark.parametrize(
    ("act", "lost"),
    [
        (from_cause, True), (from_context, True), (from_group, True), (from_group_in_a_chain, True),
        (hidden_behind_none, True), (circular, False), (lambda: int("x"), False),
    ],
)  # fmt: skip
def test_a_lost_lease_is_seen_however_it_is_wrapped(act, lost):
    """L3: causes, contexts and groups are walked, also in a circle"""
    assert is_lease_lost(raised(act)) is lost
    assert not is_lease_lost(None)


# --- L9: from outside ------------------------------------------------------------------------------------


def beat(worker):
    with connection.cursor() as cursor:
        return leases.heartbeat(cursor, worker=worker.pk)


def test_a_forced_release_is_seen_at_the_next_write_and_the_next_heartbeat(worker):
    """L9"""
    session = factories.running(worker)
    assert (session.id, session.attempt) in beat(worker).leases
    assert leases.force_release(session.id)
    assert steps.commit_steps(worker.pk, [note(session)]) == [steps.Lost("forced")]
    assert beat(worker).leases == frozenset()
    assert factories.reread(session).crash_count == 0


def test_a_stolen_session_belongs_to_the_thief_under_a_new_attempt(worker):
    """L9, L1, A10, A28: the old worker's write fails before and after the new one wrote"""
    session = factories.running(worker)
    running_call(session)
    thief = factories.worker()
    claimed = leases.steal(session.id, worker=thief.pk)
    assert claimed == leases.Claimed(session.id, session.attempt + 1)
    assert steps.commit_steps(worker.pk, [note(session)]) == [steps.Lost("forced")]
    current = factories.reread(session)
    assert (current.status, current.wake_at, current.lease_end["reason"]) == ("running", None, "forced")
    (saved,) = steps.commit_steps(thief.pk, [note(current, resumed=True)])
    assert isinstance(saved, steps.Saved)
    assert steps.commit_steps(worker.pk, [note(session)]) == [steps.Lost("forced")]
    assert kinds(session) == ["tool_result", "note"]
    assert beat(worker).leases == frozenset()
    assert beat(thief).leases == {(session.id, 2)}


def test_a_due_session_can_be_given_to_a_worker(worker):
    """L9"""
    session = factories.due()
    assert leases.steal(session.id, worker=worker.pk) == leases.Claimed(session.id, 1)
    assert Lease.objects.get(session=session).worker_id == worker.pk


def test_nothing_is_stolen_for_a_dead_worker_or_from_a_session_without_work(worker):
    """L9, L5: and a refused theft leaves the holder its lease"""
    session = factories.running(worker)
    with pytest.raises(WorkerDead):
        leases.steal(session.id, worker=factories.worker(dead=True).pk)
    with pytest.raises(NotFound):
        leases.steal(ids.new_id(), worker=worker.pk)
    with pytest.raises(Conflict):
        leases.steal(factories.session().id, worker=worker.pk)
    factories.tool_call(session, state="waiting")
    with pytest.raises(Conflict):
        leases.steal(session.id, worker=factories.worker().pk)
    assert Lease.objects.get(session=session).worker_id == worker.pk


def test_a_cancelled_session_is_claimed_anew_and_the_old_attempt_stays_out(worker):
    """L7, I6, A28"""
    session = factories.running(worker)
    factories.received_input(session)
    control.cancel(session=session.id, actor=SYSTEM)
    (claimed,) = leases.claim(worker=worker.pk, limit=1)
    assert claimed.attempt == session.attempt + 1
    assert isinstance(steps.commit_steps(worker.pk, [note(session)])[0], steps.Lost)


# --- what the database itself refuses --------------------------------------------------------------------


def refuse(statement, *parameters):
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def test_the_database_refuses_what_no_code_of_ours_may_do(worker):
    """L1, L5, S11: a second lease, a turned-back attempt, a due time beside a running status, a risen worker"""
    session = factories.running(worker)
    other = factories.worker(dead=True)
    refuse(
        "INSERT INTO sessions_app_lease (session_id, worker_id, attempt) VALUES (%s, %s, 9)",
        session.pk,
        other.pk,
    )
    refuse("UPDATE sessions_app_session SET attempt = 0 WHERE id = %s", session.pk)
    refuse("UPDATE sessions_app_session SET wake_at = clock_timestamp() WHERE id = %s", session.pk)
    refuse("UPDATE sessions_app_worker SET dead = false WHERE id = %s", other.pk)
    assert Worker.objects.get(pk=other.pk).dead


@pytest.mark.parametrize("reason", ALL)
def test_a_late_write_is_told_why_its_lease_ended(worker, reason):
    """L3, L7: the reason is kept on the session, whatever it was"""
    session = factories.running(worker)
    leases.end_lease(session.id, reason=reason)
    with (
        pytest.raises(LeaseLost) as lost,
        leases.fence(session.id, worker=worker.pk, attempt=session.attempt),
    ):
        pass
    assert lost.value.data["reason"] == reason
    step = steps.StepWrite(session=session.id, attempt=session.attempt, work_rev=0)
    assert steps.commit_steps(worker.pk, [step]) == [steps.Lost(reason)]
