"""The step commit: all or nothing, fenced, shared, and never written twice."""

from decimal import Decimal

import psycopg
import pytest
from django.db import connection

from sessions_app import entries, ids, leases, steps
from sessions_app.due import Due
from sessions_app.errors import LeaseLost
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Lease, ModelCall, ModelCallState, Session, Turn, TurnStatus
from sessions_app.providers.port import Usage
from sessions_app.tool_port import Call, Completed, ToolOutcome
from tests import factories
from tests.staging import Contender, another_connection, holding, wait_until_blocked
from tools_app.models import ToolCall, ToolCallState

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "SELECT id FROM sessions_app_session WHERE id = %s FOR UPDATE"


@pytest.fixture
def worker():
    return factories.worker()


def note(text="noted"):
    return NewEntry(kind="note", data={"text": text})


def write(session, **parts):
    values = {"session": session.id, "attempt": session.attempt, "work_rev": session.work_rev}
    return steps.StepWrite(**(values | parts))


def started_call(session):
    return ModelCall.objects.create(
        session=session, turn_id=session.turn_id, config=session.config, attempt=session.attempt, covers_seq=0
    )


def a_call(session, **parts):
    values = {
        "id": ids.new_id(), "session": session.id, "turn": session.turn_id, "call_id": "call_1", "name": "dev_append",
        "tool_class": "outside", "rerun_safe": False, "arguments": {}, "position": 0, "state": "running",
    }  # fmt: skip
    return Call(**(values | parts))


def a_reply(session, *, calls=(), then=None):
    """The step of a saved reply with these calls."""
    model_call = started_call(session)
    message = NewEntry(kind="assistant_message", data={"content": [], "stop": "done"}, turn=session.turn_id)
    return write(
        session,
        entries=(message, *(entries.tool_started(call) for call in calls)),
        message=0,
        calls=tuple(calls),
        model_call_end=steps.ModelCallEnd(
            id=model_call.id, turn=session.turn_id, state="succeeded", usage=Usage(10, 20, 3, 4)
        ),
        then=then or steps.Then(),
    )


def ends_turn(session):
    """What follows a last reply: the end of the turn and the release."""
    ended = entries.turn_ended(
        turn=session.turn_id, number=session.turn_count, status="succeeded", reason="done", error=None
    )
    return steps.Then(
        entries=(ended,),
        turn_end=steps.TurnEnd(id=session.turn_id, status="succeeded", reason="done"),
        release=Due(None, "idle"),
    )


def kinds(session):
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))


def test_a_reply_its_calls_and_the_usage_are_one_step(worker):
    """S2, S5, R7: and the outside call is committed as running, with the attempt, by the reply's own step"""
    session = factories.running(worker)
    call = a_call(session)
    (saved,) = steps.commit_steps(worker.pk, [a_reply(session, calls=[call])])
    assert saved == steps.Saved(moved=False, first_seq=1, work_rev=0)
    row = ToolCall.objects.get(pk=call.id)
    assert (row.state, row.attempt, row.message_seq) == (ToolCallState.RUNNING, session.attempt, 1)
    after = factories.reread(session)
    assert (after.output_seq, after.model_calls, after.tool_calls, after.output_tokens) == (1, 1, 1, 20)
    assert ModelCall.objects.get(session=session).state == ModelCallState.SUCCEEDED
    assert after.turn.input_tokens == 10


def test_the_last_reply_ends_its_turn_and_lets_go_in_the_same_step(worker):
    """S7, I5"""
    session = factories.running(worker)
    steps.commit_steps(worker.pk, [a_reply(session, then=ends_turn(session))])
    after = factories.reread(session)
    assert (after.status, after.turn, after.wake_at) == ("idle", None, None)
    assert after.last_turn.status == TurnStatus.SUCCEEDED
    assert after.last_turn.output_seq == 1
    assert not Lease.objects.filter(session=session).exists()
    assert kinds(session) == ["assistant_message", "turn_ended"]


def test_new_work_keeps_the_reply_and_holds_back_the_end_of_the_turn(worker):
    """S11, I5: an input that arrived while the reply was on its way is seen before the turn ends"""
    session = factories.running(worker)
    step = a_reply(session, then=ends_turn(session))
    Session.objects.filter(pk=session.pk).update(work_rev=1)
    (saved,) = steps.commit_steps(worker.pk, [step])
    assert (saved.moved, saved.work_rev) == (True, 1)
    after = factories.reread(session)
    assert (after.status, after.turn_id) == ("running", session.turn_id)
    assert kinds(session) == ["assistant_message"]
    assert Lease.objects.filter(session=session).exists()


def single(worker, session):
    (result,) = steps.commit_steps(worker.pk, [write(session, entries=(note(),))])
    return result


def with_a_sibling(worker, session):
    sibling = factories.running(worker)
    return steps.commit_steps(
        worker.pk, [write(sibling, entries=(note(),)), write(session, entries=(note(),))]
    )[1]


def through_the_fence(worker, session):
    try:
        with leases.fence(session.id, worker=worker.pk, attempt=session.attempt):
            return "entered"
    except LeaseLost as lost:
        return steps.Lost(lost.data["reason"])


@pytest.mark.parametrize("commit", [single, with_a_sibling, through_the_fence])
def test_a_lease_that_ends_while_a_write_waits_for_the_session_is_lost(worker, commit):
    """L3, A10: hold the session row, delete the lease, commit; the waiting write must not see the old lease"""
    session = factories.running(worker)
    with holding(LOCK, session.id) as other:
        contender = Contender(lambda: commit(worker, session))
        wait_until_blocked()
        other.execute("DELETE FROM sessions_app_lease WHERE session_id = %s", [session.id])
    assert isinstance(contender.result(), steps.Lost)
    assert kinds(session) == []


def test_a_busy_session_is_tried_again_alone_and_never_reported_lost(worker):
    """L11"""
    busy, free = factories.running(worker), factories.running(worker)
    batch = [write(busy, entries=(note(),)), write(free, entries=(note(),))]
    with holding(LOCK, busy.id):
        contender = Contender(lambda: steps.commit_steps(worker.pk, batch))
        wait_until_blocked()
        # The free one is committed already, while the busy one waits.
        assert kinds(free) == ["note"]
    assert all(isinstance(result, steps.Saved) for result in contender.result())
    assert kinds(busy) == ["note"]


@pytest.mark.parametrize("late", ["heartbeat", "append", "finish", "release"])
def test_late_writes_of_an_older_attempt_change_nothing_under_the_same_worker_name(worker, late):
    """C62, A28: the attempt is the fence, not the owner's name"""
    session = factories.running(worker)
    leases.end_lease(session.id, reason="forced")
    current = factories.reread(session)
    factories.leased(current, worker)
    before = kinds(session)
    if late == "heartbeat":
        with connection.cursor() as cursor:
            beat = leases.heartbeat(cursor, worker=worker.pk)
        assert (session.id, session.attempt) not in beat.leases
    elif late == "release":
        assert not leases.release(session.id, worker=worker.pk, attempt=session.attempt)
    else:
        step = write(
            session, entries=(note(),), then=ends_turn(session) if late == "finish" else steps.Then()
        )
        assert steps.commit_steps(worker.pk, [step]) == [steps.Lost("forced")]
    assert kinds(session) == before
    assert Lease.objects.get(session=session).attempt == current.attempt
    assert factories.reread(session).status == "running"


def test_one_bad_row_fails_alone(worker):
    """C71: what the database refuses is found one by one; the rest of the batch is saved"""
    good, bad = factories.running(worker), factories.running(worker)
    call = a_call(bad)  # never inserted, so it cannot be completed
    refused = write(
        bad,
        entries=(note(),),
        results=(Completed(call, "running", ToolOutcome("succeeded", []), bad.attempt),),
    )
    first, second = steps.commit_steps(worker.pk, [write(good, entries=(note(),)), refused])
    assert isinstance(first, steps.Saved)
    assert isinstance(second, steps.Refused)
    assert (kinds(good), kinds(bad)) == (["note"], [])


def lose_the_answer(monkeypatch, point, *, really):
    """Make the connection break once at a point of the commit."""
    broken = []

    def at(name):
        if name == point and not broken:
            broken.append(name)
            if really:
                with another_connection() as other:
                    pid = connection.connection.info.backend_pid
                    other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            else:
                connection.connection.close()
                raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(steps.commit, "crash_point", at)
    return broken


@pytest.mark.parametrize("count", [1, 3])
def test_a_commit_whose_answer_got_lost_is_found_and_not_repeated(worker, monkeypatch, count):
    """S10, C83: committed, but the worker was not told"""
    sessions = [factories.running(worker) for _ in range(count)]
    batch = [a_reply(session, calls=[a_call(session)], then=steps.Then()) for session in sessions]
    broken = lose_the_answer(monkeypatch, "step.committed", really=False)
    results = steps.commit_steps(worker.pk, batch)
    assert broken
    assert results == [steps.Saved(moved=False, first_seq=1, work_rev=0)] * count
    for session in sessions:
        assert kinds(session) == ["assistant_message", "tool_started"]
        assert factories.reread(session).model_calls == 1


def test_a_release_whose_answer_got_lost_is_found_as_followed(worker, monkeypatch):
    """S10"""
    session = factories.running(worker)
    lose_the_answer(monkeypatch, "step.committed", really=False)
    (saved,) = steps.commit_steps(worker.pk, [a_reply(session, then=ends_turn(session))])
    assert saved.moved is False
    assert kinds(session) == ["assistant_message", "turn_ended"]


def test_what_was_planned_and_not_written_is_found_as_not_followed(worker, monkeypatch):
    """S10, S11: saved under a moved rev, and the answer lost; the looking up must not claim the end of the turn"""
    session = factories.running(worker)
    step = a_reply(session, then=ends_turn(session))
    Session.objects.filter(pk=session.pk).update(work_rev=1)
    lose_the_answer(monkeypatch, "step.committed", really=False)
    (saved,) = steps.commit_steps(worker.pk, [step])
    assert saved == steps.Saved(moved=True, first_seq=1, work_rev=1)
    assert factories.reread(session).turn_id == session.turn_id


def test_a_commit_that_never_happened_is_repeated(worker, monkeypatch):
    """S10: the server ended the connection before COMMIT; read back, and written once"""
    session = factories.running(worker)
    broken = lose_the_answer(monkeypatch, "step.written", really=True)
    (saved,) = steps.commit_steps(worker.pk, [write(session, entries=(note(),))])
    assert broken
    assert saved == steps.Saved(moved=False, first_seq=1, work_rev=0)
    assert kinds(session) == ["note"]


def test_the_same_step_sent_again_later_is_found(worker):
    """S10: the caller repeats a step whose outcome could not be looked up while the database was away"""
    session = factories.running(worker)
    step = write(session, entries=(note(),))
    steps.commit_steps(worker.pk, [step])
    assert steps.commit_steps(worker.pk, [step]) == [steps.Saved(moved=False, first_seq=1, work_rev=0)]
    assert kinds(session) == ["note"]


def test_a_backoff_keeps_one_time_for_retry_and_wake(worker):
    """R2, S11: were they read from the clock twice, the wake could come before the retry"""
    session = factories.running(worker)
    step = write(session, entries=(note(),), then=steps.Then(retry_in=5.0, release=Due(None, "backing_off")))
    steps.commit_steps(worker.pk, [step])
    after = factories.reread(session)
    assert after.status == "backing_off"
    assert after.wake_at == after.retry_at
    assert 4 < (after.wake_at - factories.database_now()).total_seconds() <= 5


class CountingCursor(psycopg.Cursor):
    statements: list[str] = []

    def execute(self, query, params=None, **options):
        self.statements.append(str(query).split("\n")[0] or str(query).split("\n")[1])
        return super().execute(query, params, **options)


@pytest.fixture
def statements(monkeypatch):
    monkeypatch.setattr(psycopg, "Cursor", CountingCursor)
    CountingCursor.statements = []
    return CountingCursor.statements


def transactions(sessions):
    """How many transactions wrote the entries of these sessions."""
    return Entry.objects.filter(session__in=sessions).values("xid").distinct().count()


def asks_the_model(session, model_call=None):
    return steps.Then(
        model_call=steps.ModelCallStart(
            id=model_call or ids.new_id(), turn=session.turn_id, config=session.config_id
        )
    )


def a_result(session, call):
    """The step of a tool result that makes the next model call due."""
    result = ToolOutcome("succeeded", [])
    return write(
        session,
        entries=(entries.tool_result(call, result),),
        results=(Completed(call, "running", result, session.attempt),),
        then=asks_the_model(session),
    )


def running_call(session):
    row = factories.tool_call(session, state=ToolCallState.RUNNING)
    return a_call(session, id=row.pk)


@pytest.mark.parametrize("sessions", [1, 16])
def test_a_step_costs_the_same_few_statements_and_one_commit_however_many_share_it(
    worker, statements, sessions
):
    """Speed: two locks and one statement per table, for replies as for results"""
    held = [factories.running(worker) for _ in range(sessions)]
    replies = [a_reply(session, calls=[a_call(session)]) for session in held]
    statements.clear()
    steps.commit_steps(worker.pk, replies)
    # session and lease locks; entries, calls, end of the model call, turn, session
    assert len(statements) == 7, statements
    assert transactions(held) == 1
    other = [factories.running(worker) for _ in range(sessions)]
    results = [a_result(session, running_call(session)) for session in other]
    statements.clear()
    steps.commit_steps(worker.pk, results)
    # session and lease locks; entries, results, start of the model call, session
    assert len(statements) == 6, statements
    assert transactions(other) == 1


def test_sequence_numbers_have_no_gap_over_shared_commits(worker):
    """S1, A144"""
    session = factories.running(worker)
    for _ in range(5):
        steps.commit_steps(worker.pk, [write(session, entries=(note("a"), note("b")))])
    rows = Entry.objects.filter(session=session).order_by("seq").values_list("seq", "parent_seq")
    assert list(rows) == [(seq, seq - 1) for seq in range(1, 11)]


def test_text_that_cannot_be_stored_is_replaced_on_its_way_into_the_log(worker):
    """S8, C29, C31"""
    session = factories.running(worker)
    data = {"text": "a\x00b \ud83d c", "ke\x00y": float("nan"), "kept": "\\u0000"}
    steps.commit_steps(worker.pk, [write(session, entries=(NewEntry(kind="note", data=data),))])
    stored = Entry.objects.get(session=session).data
    assert stored == {"text": "a\ufffdb \ufffd c", "ke\ufffdy": None, "kept": "\\u0000"}


def ends_call(session, state="succeeded", *, cost=None, added=None):
    """The step in which a model call ends that cost so much."""
    call = started_call(session)
    end = steps.ModelCallEnd(id=call.id, turn=session.turn_id, state=state, cost=cost, cost_added=added)
    return call, write(session, entries=(note(),), model_call_end=end)


@pytest.mark.parametrize(
    ("calls", "total"),
    [
        ([("succeeded", "0.25", "0.25"), ("succeeded", "0.5", "0.5")], "0.75"),
        ([("failed", None, "0"), ("succeeded", "0.5", "0.5")], "0.5"),
        ([("failed", "0", "0")], "0"),
        ([("succeeded", "0.5", "0.5"), ("succeeded", None, None), ("succeeded", "0.5", "0.5")], None),
        ([("succeeded", None, None), ("succeeded", "0.5", "0.5")], None),
        ([], None),
    ],
)
def test_costs_are_summed_and_what_is_unknown_stays_unknown(worker, calls, total):
    """R7: on the call, the turn and the session, in the statements that end the call."""
    session = factories.running(worker)
    for state, cost, added in calls:
        amounts = {name: value and Decimal(value) for name, value in (("cost", cost), ("added", added))}
        call, step = ends_call(session, state, **amounts)
        (saved,) = steps.commit_steps(worker.pk, [step])
        assert isinstance(saved, steps.Saved)
        call.refresh_from_db()
        assert call.cost == amounts["cost"]
        assert call.ended_at is not None
    expected = None if total is None else Decimal(total)
    assert factories.reread(session).cost == expected
    assert Turn.objects.get(pk=session.turn_id).cost == expected
    # A step without a call leaves them alone.
    steps.commit_steps(worker.pk, [write(session, entries=(note(),))])
    assert factories.reread(session).cost == expected
