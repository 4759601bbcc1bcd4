"""The sweeper on a real PostgreSQL: whom it reaps, whom it spares, and which due times it puts right."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from unittest import mock

import psycopg
import pytest
from django.conf import LazySettings
from django.db import connection
from django.db.models import F

from sessions_app import leases, own_connection, sweeper
from sessions_app.errors import LeaseLost, WorkerDead
from sessions_app.hosting.stop import StopFlag
from sessions_app.models import (
    Delivery,
    Entry,
    IdempotencyRecord,
    Lease,
    Session,
    SessionStatus,
    Worker,
)
from sessions_app.models.fields import ClockTimestamp
from sessions_app.sweep_look import look
from sessions_app.sweeper import Sweeper
from tests import factories, staging
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _settings(settings: LazySettings) -> None:
    """Without the grace after a server start, which has a test of its own."""
    settings.TENURE = dataclasses.replace(settings.TENURE, server_start_grace=0.0)


@pytest.fixture
def one() -> Iterator[Sweeper]:
    one = Sweeper()
    yield one
    one.disconnect()


def sweep(one: Sweeper) -> sweeper.Report:
    return one.act(one.look())


@pytest.fixture
def lock_of() -> Iterator[Callable[[Worker], psycopg.Connection]]:
    """Holds a worker's advisory lock as its heart would; closing the connection is its death."""
    held = []

    def take(worker: Worker) -> psycopg.Connection:
        other = staging.another_connection()
        other.autocommit = True
        assert other.execute(
            "SELECT pg_try_advisory_lock(%s, %s)", [leases.LOCK_CLASS, worker.pk]
        ).fetchone() == (True,)
        held.append(other)
        return other

    yield take
    for other in held:
        other.close()


def first_look_was(worker: Worker, *, seconds_ago: float) -> None:
    Worker.objects.filter(pk=worker.pk).update(lock_free_at=factories.database_now(-seconds_ago))


def call(
    session: Session, *, state: str = "waiting", tool_class: str = "custom", **columns: object
) -> ToolCall:
    return ToolCall.objects.create(
        project_id=session.project_id,
        session=session,
        turn=session.turn,
        message_seq=1,
        position=ToolCall.objects.count(),
        call_id="c",
        name="tool",
        tool_class=tool_class,
        arguments={},
        state=state,
        **columns,
    )


# --- the time to live --------------------------------------------------------------------------------------


def test_an_expired_worker_loses_its_lease_and_its_session_is_due_because_it_has_work(one: Sweeper) -> None:
    """A3, L4, C78: a host that lost power holds nothing for longer than its time to live."""
    lost = factories.worker(expires_in=-1)
    busy = factories.running(lost)

    report = sweep(one)

    assert report.reaped == [lost.pk]
    assert Worker.objects.get(pk=lost.pk).dead
    assert not Lease.objects.exists()
    assert factories.reread(busy).status == SessionStatus.QUEUED
    assert factories.reread(busy).wake_at is not None
    assert factories.reread(busy).crash_count == 1


def test_a_session_without_work_gets_no_due_time_when_its_worker_is_reaped(one: Sweeper) -> None:
    """A3: due time only if work exists."""
    idle = factories.session()
    factories.leased(idle, factories.worker(expires_in=-1))
    waiting = factories.running(factories.worker(expires_in=-1))
    call(waiting)

    sweep(one)

    assert (factories.reread(idle).status, factories.reread(idle).wake_at) == (SessionStatus.IDLE, None)
    assert (factories.reread(waiting).status, factories.reread(waiting).wake_at) == (
        SessionStatus.WAITING,
        None,
    )


def test_a_message_that_came_after_the_power_cut_is_used_by_the_next_attempt(one: Sweeper) -> None:
    """C78"""
    stuck = factories.session()
    factories.leased(stuck, factories.worker(expires_in=-1))
    factories.received_input(stuck)
    sweep(one)
    claimed = leases.claim(worker=factories.worker().pk, limit=10)
    assert [item.session for item in claimed] == [stuck.pk]


def test_only_the_stored_deadline_counts(one: Sweeper) -> None:
    """A6, C64: a long lease of a lost worker ends, a short one of a living worker stays."""
    soon = factories.worker(expires_in=20, capacity=1)
    late = factories.worker(expires_in=600)
    gone = factories.worker(expires_in=-0.001)
    for worker in (soon, late, gone):
        factories.running(worker)
    assert sweep(one).reaped == [gone.pk]
    assert set(Lease.objects.values_list("worker_id", flat=True)) == {soon.pk, late.pk}


def test_this_hosts_clock_has_no_say(one: Sweeper) -> None:
    """C64, A19: expiry is written and judged by the database's clock alone."""
    alive, gone = factories.worker(expires_in=30), factories.worker(expires_in=-1)
    for skew in (-120, 120):
        with mock.patch("time.time", return_value=time.time() + skew):
            seen = one.look()
        assert seen.expired == (gone.pk,), alive


def test_one_failing_session_does_not_keep_the_others_leased(
    one: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A4: the rest is reaped, the error reported; and the failing one at the next look."""
    lost = factories.worker(expires_in=-1)
    sessions = [factories.running(lost) for _ in range(3)]
    broken = sessions[1].pk
    original = leases.end_lease

    def end_lease(session_id: object, **arguments: object) -> bool:
        if session_id == broken:
            raise RuntimeError("cannot be ended")
        return original(session_id, **arguments)

    monkeypatch.setattr(leases.ending, "end_lease", end_lease)
    report = sweep(one)
    assert len(report.errors) == 1
    assert list(Lease.objects.values_list("pk", flat=True)) == [broken]

    monkeypatch.undo()
    report = sweep(one)
    assert (report.errors, report.ended) == ([], 1)
    assert not Lease.objects.exists()


def test_one_failing_worker_does_not_keep_the_others_alive(
    one: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A4"""
    workers = [factories.worker(expires_in=-1) for _ in range(3)]
    original = leases.mark_dead

    def mark_dead(*, worker: int, **arguments: bool) -> bool:
        if worker == workers[0].pk:
            raise RuntimeError("cannot be marked")
        return original(worker=worker, **arguments)

    monkeypatch.setattr(leases, "mark_dead", mark_dead)
    report = sweep(one)
    assert len(report.errors) == 1
    assert set(report.reaped) == {workers[1].pk, workers[2].pk}


def test_a_busy_session_is_skipped_and_the_others_go_on(one: Sweeper) -> None:
    """A8"""
    lost = factories.worker(expires_in=-1)
    busy, free = factories.running(lost), factories.running(lost)
    with staging.holding("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", busy.pk):
        report = sweep(one)
        assert (report.errors, report.ended) == ([], 1)
        assert not Lease.objects.filter(pk=free.pk).exists()
        assert Lease.objects.filter(pk=busy.pk).exists()
    # The worker is dead by now, and the next look comes back for what is left.
    assert sweep(one).ended == 1


def test_a_busy_worker_row_is_skipped_and_the_others_go_on(one: Sweeper) -> None:
    """A8, A9: whoever holds an expired worker's row may be renewing it right now."""
    renewing, lost = factories.worker(expires_in=-1), factories.worker(expires_in=-1)
    with staging.holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", renewing.pk):
        assert sweep(one).reaped == [lost.pk]
    assert not Worker.objects.get(pk=renewing.pk).dead


def test_a_renewal_under_way_wins_against_the_reaper() -> None:
    """A9: the reaper waits for the row, reads expiry again, and reaps nobody."""
    late = factories.worker(expires_in=-1)
    session = factories.running(late)
    renewal = "UPDATE sessions_app_worker SET expires_at = clock_timestamp() + interval '30 s' WHERE id = %s"
    with staging.holding(renewal, late.pk):
        reaper = staging.Contender(lambda: leases.mark_dead(worker=late.pk, only_if_expired=True))
        staging.wait_until_blocked()
    assert reaper.result() is False
    assert Lease.objects.filter(pk=session.pk).exists()


def test_a_reaper_under_way_wins_against_the_renewal() -> None:
    """A10: the old worker waits, and then learns that it was declared dead; its number never comes back."""
    late = factories.worker(expires_in=-1)
    with staging.holding("UPDATE sessions_app_worker SET dead = true WHERE id = %s", late.pk):
        renewal = staging.Contender(lambda: beat(late.pk))
        staging.wait_until_blocked()
    with pytest.raises(WorkerDead):
        renewal.result()
    with pytest.raises(WorkerDead):
        beat(late.pk)
    assert leases.register_worker(owner="replacement", capacity=1).pk != late.pk


def test_a_reaped_attempt_can_write_no_more_also_after_it_was_replaced(one: Sweeper) -> None:
    """A10: the replacement has a new number and a new attempt; the old ones are worth nothing."""
    old = factories.worker(expires_in=-1)
    session = factories.running(old)
    sweep(one)
    with pytest.raises(LeaseLost) as lost, leases.fence(session.pk, worker=old.pk, attempt=1):
        pass
    assert lost.value.data == {"reason": "crash"}

    replacement = factories.worker()
    assert leases.claim(worker=replacement.pk, limit=1) == [leases.Claimed(session.pk, 2)]
    for worker, attempt in ((old.pk, 1), (old.pk, 2), (replacement.pk, 1)):
        with pytest.raises(LeaseLost), leases.fence(session.pk, worker=worker, attempt=attempt):
            pass
    with leases.fence(session.pk, worker=replacement.pk, attempt=2) as held:
        assert held.pk == session.pk


def test_hosts_with_wrong_clocks_take_a_session_only_when_the_databases_time_has_come(one: Sweeper) -> None:
    """C64: A stops renewing; B is two minutes ahead and C two behind."""
    due = factories.due()
    a, b, c = factories.worker(), factories.worker(), factories.worker()
    assert len(leases.claim(worker=a.pk, limit=1)) == 1

    def by(worker: Worker, *, clock_offset: float) -> list[leases.Claimed]:
        with mock.patch("time.time", return_value=time.time() + clock_offset):
            sweep(one)
            return leases.claim(worker=worker.pk, limit=1)

    assert by(b, clock_offset=120) == []
    assert by(c, clock_offset=-120) == []
    Worker.objects.filter(pk=a.pk).update(expires_at=F("expires_at") - timedelta(seconds=31))
    assert [claimed.session for claimed in by(c, clock_offset=-120)] == [due.pk]


def beat(worker: int) -> leases.Beat:
    with connection.cursor() as cursor:
        return leases.heartbeat(cursor, worker=worker)


def test_a_renewal_that_waited_grants_the_whole_time_from_then_on() -> None:
    """A7, A1: also when the lock it waited for changed nothing, the time is the database's after the wait."""
    worker = factories.worker(expires_in=1)
    with staging.holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", worker.pk):
        renewal = staging.Contender(lambda: beat(worker.pk))
        staging.wait_until_blocked()
        freed = factories.database_now()
    renewal.result()
    assert Worker.objects.get(pk=worker.pk).expires_at >= freed + timedelta(seconds=30)


def test_two_sweepers_that_saw_the_same_do_no_harm() -> None:
    """L7: the second finds everything done."""
    lost = factories.worker(expires_in=-1)
    session = factories.running(lost)
    first, second = Sweeper(), Sweeper()
    try:
        seen = first.look(), second.look()
        assert first.act(seen[0]).ended == 1
        assert second.act(seen[1]).ended == 0
    finally:
        first.disconnect()
        second.disconnect()
    assert factories.reread(session).crash_count == 1


def test_work_begun_between_look_and_act_is_left_alone(one: Sweeper) -> None:
    """C74: a worker that registered and claimed after the look is none of its business."""
    due = factories.due()
    due.__class__.objects.filter(pk=due.pk).update(wake_at=None)
    seen = one.look()
    assert seen.undue == (due.pk,)
    Session.objects.filter(pk=due.pk).update(wake_at=ClockTimestamp())
    claimed = leases.claim(worker=factories.worker().pk, limit=1)
    report = one.act(seen)
    assert report.rescheduled == []
    assert Lease.objects.get().attempt == claimed[0].attempt == 1
    assert factories.reread(due).status == SessionStatus.RUNNING


# --- the lock ----------------------------------------------------------------------------------------------


def test_a_free_lock_is_proof_only_at_the_second_look(
    one: Sweeper, lock_of: Callable[[Worker], psycopg.Connection]
) -> None:
    """L6: the first look stamps, a second one at least a second later reaps."""
    worker = factories.worker(liveness="lock")
    session = factories.running(worker)
    lock = lock_of(worker)
    assert one.look() == sweeper.LookResult()

    lock.close()
    staging.eventually(lambda: one.look().suspects == (worker.pk,))
    assert sweep(one).reaped == [], "a second look at the same moment proves nothing"

    first_look_was(worker, seconds_ago=1.001)
    assert sweep(one).reaped == [worker.pk]
    assert factories.reread(session).status == SessionStatus.QUEUED


def test_a_lock_that_is_taken_again_is_no_longer_suspect(
    one: Sweeper, lock_of: Callable[[Worker], psycopg.Connection]
) -> None:
    """L6: a lost connection is not a death."""
    worker = factories.worker(liveness="lock")
    assert one.look().suspects == (worker.pk,)
    first_look_was(worker, seconds_ago=5)
    lock_of(worker)
    assert sweep(one).reaped == []
    assert Worker.objects.get(pk=worker.pk).lock_free_at is None


def test_a_lock_taken_between_look_and_act_saves_the_worker(
    one: Sweeper, lock_of: Callable[[Worker], psycopg.Connection]
) -> None:
    """L6: judged again under the lock of the worker's row."""
    worker = factories.worker(liveness="lock")
    first_look_was(worker, seconds_ago=5)
    seen = one.look()
    assert seen.unlocked == (worker.pk,)
    lock_of(worker)
    assert one.act(seen).reaped == []
    assert not Worker.objects.get(pk=worker.pk).dead


def test_a_beat_between_look_and_act_saves_the_worker(one: Sweeper) -> None:
    """L6: a heartbeat is a sign of life too; it takes the stamp away."""
    worker = factories.worker(liveness="lock")
    first_look_was(worker, seconds_ago=5)
    seen = one.look()
    beat(worker.pk)
    assert one.act(seen).reaped == []


def test_behind_a_pooler_a_free_lock_proves_nothing(one: Sweeper) -> None:
    """L6: such a worker counts on its time to live alone."""
    factories.worker(liveness="ttl")
    assert one.look() == sweeper.LookResult()


def test_a_lock_of_another_kind_or_database_does_not_count(one: Sweeper) -> None:
    """L6: only the two-part lock under our constant keeps a worker alive."""
    worker = factories.worker(liveness="lock")
    with staging.another_connection() as other:
        other.execute("SELECT pg_advisory_lock(%s), pg_advisory_lock(%s, %s)", [worker.pk, 1, worker.pk])
        assert one.look().suspects == (worker.pk,)


def test_right_after_a_start_of_the_server_nobody_is_reaped(one: Sweeper, settings: LazySettings) -> None:
    """L6: a restart frees every lock and delays every renewal."""
    expired = factories.worker(expires_in=-1)
    unlocked = factories.worker(liveness="lock")
    first_look_was(unlocked, seconds_ago=5)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM clock_timestamp() - greatest(pg_postmaster_start_time(), ("
            "SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer')))::float"
        )
        up = cursor.fetchone()[0]
    settings.TENURE = dataclasses.replace(settings.TENURE, server_start_grace=up + 600)
    assert one.look() == sweeper.LookResult()
    settings.TENURE = dataclasses.replace(settings.TENURE, server_start_grace=up)
    assert (one.look().expired, one.look().unlocked) == ((expired.pk,), (unlocked.pk,))


# --- due times ---------------------------------------------------------------------------------------------


def input_waits() -> Session:
    return factories.due()


def turn_is_the_models() -> Session:
    session = factories.session(status=SessionStatus.QUEUED)
    factories.open_turn(session)
    return session


def call_is_ready() -> Session:
    session = factories.session(status=SessionStatus.QUEUED)
    factories.open_turn(session)
    call(session, state="ready", tool_class="outside")
    return session


def deadline_has_passed() -> Session:
    session = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(session)
    call(session, deadline=factories.database_now(-1))
    return session


def retry_is_due() -> Session:
    session = factories.session(status=SessionStatus.BACKING_OFF, retry_at=factories.database_now(60))
    factories.open_turn(session)
    return session


def input_was_never_scheduled() -> Session:
    session = factories.session()
    factories.received_input(session)
    return session


def lease_vanished() -> Session:
    session = factories.session(status=SessionStatus.RUNNING)
    factories.open_turn(session)
    return session


def due_time_is_far_too_late() -> Session:
    session = factories.session(status=SessionStatus.QUEUED)
    factories.received_input(session)
    session.wake_at = factories.database_now(3600)
    session.save()
    return session


RUNNABLE = [
    input_waits, turn_is_the_models, call_is_ready, deadline_has_passed, retry_is_due,
    input_was_never_scheduled, lease_vanished, due_time_is_far_too_late,
]  # fmt: skip


@pytest.mark.parametrize("made", RUNNABLE, ids=lambda made: made.__name__)
def test_a_due_time_that_was_removed_is_restored(one: Sweeper, made: Callable[[], Session]) -> None:
    """A145, S11"""
    session = made()
    if made is not due_time_is_far_too_late:
        Session.objects.filter(pk=session.pk).update(wake_at=None)
    assert sweep(one).rescheduled == [session.pk]
    restored = factories.reread(session)
    assert restored.wake_at is not None
    assert restored.wake_at <= (restored.retry_at or factories.database_now())
    assert sweep(one).rescheduled == [], "and stays as it is"


def test_a_turn_that_waits_for_nothing_goes_on(one: Sweeper) -> None:
    """A145: its last call was answered, and the due time got lost."""
    session = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(session)
    assert one.audit().rescheduled == [session.pk]
    assert factories.reread(session).status == SessionStatus.QUEUED


def idle() -> Session:
    return factories.session()


def archived() -> Session:
    session = factories.session(status=SessionStatus.ARCHIVED, archived_at=factories.database_now())
    factories.received_input(session)
    return session


def crash_limited() -> Session:
    session = factories.session(
        status=SessionStatus.WAITING, waiting_on=[{"kind": "crash_limit"}], crash_count=5
    )
    factories.received_input(session)
    return session


def waits_for_a_backend() -> Session:
    session = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(session)
    call(session)
    factories.received_input(session)
    factories.received_input(session, delivery=Delivery.STEERING)
    return session


def is_leased() -> Session:
    session = factories.running(factories.worker())
    factories.received_input(session)
    call(session, state="ready", tool_class="outside")
    return session


def is_due_already() -> Session:
    return factories.due()


def retries_later() -> Session:
    later = factories.database_now(60)
    session = factories.session(status=SessionStatus.BACKING_OFF, retry_at=later, wake_at=later)
    factories.open_turn(session)
    return session


@pytest.mark.parametrize(
    "made",
    [idle, archived, crash_limited, waits_for_a_backend, is_leased, is_due_already, retries_later],
    ids=lambda made: made.__name__,
)
def test_a_session_that_rests_or_waits_rightly_is_left_alone(
    one: Sweeper, made: Callable[[], Session]
) -> None:
    """A145: for a stopped or ended one, nothing is restored."""
    session = made()
    before = Session.objects.filter(pk=session.pk).values().get()
    assert one.look() == sweeper.LookResult()
    assert one.audit().rescheduled == []
    assert Session.objects.filter(pk=session.pk).values().get() == before
    assert not Entry.objects.exists()


def test_a_busy_session_gets_its_due_time_at_a_later_look(one: Sweeper) -> None:
    """A8, S11"""
    session = turn_is_the_models()
    with staging.holding("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", session.pk):
        assert sweep(one).rescheduled == []
    assert sweep(one).rescheduled == [session.pk]


def test_the_walk_through_waiting_inputs_reaches_all_of_them(
    one: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S11: a few at a time, so that a long backlog costs no more than a short one."""
    monkeypatch.setattr("sessions_app.sweep_look.INPUTS_A_LOOK", 2)
    forgotten = {input_was_never_scheduled().pk for _ in range(5)}
    found: list[object] = []
    for _ in range(3):
        found += sweep(one).rescheduled
    assert set(found) == forgotten
    assert one.look().inputs_up_to is not None, "and it starts again from the beginning"


def test_the_look_reads_no_idle_session(one: Sweeper) -> None:
    """S11: its cost follows partial indexes that hold no idle session."""
    config = factories.config()
    Session.objects.bulk_create([Session(project_id=config.project_id, config=config) for _ in range(2000)])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sessions_app_session")
    one.look()
    before = reads()
    one.look()
    assert reads() - before == 0


def reads() -> int:
    """Rows of the session table that were read so far, by sequential scan or by index."""
    with own_connection.connect(purpose="test") as other:
        other.execute("SELECT pg_stat_force_next_flush()")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute("SELECT pg_stat_clear_snapshot()")
        row = other.execute(
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables"
            " WHERE relname = 'sessions_app_session'"
        ).fetchone()
    assert row is not None
    return int(row[0])


# --- cost, upkeep, life ------------------------------------------------------------------------------------


def test_a_look_is_one_statement_and_writes_nothing_when_nothing_is_wrong(
    one: Sweeper, lock_of: Callable[[Worker], psycopg.Connection]
) -> None:
    """The idle budget: one transaction a look, and none beside it."""
    worker = factories.worker(liveness="lock")
    lock_of(worker)
    factories.running(worker)
    waits_for_a_backend()
    one.look()
    statements: list[object] = []
    execute = psycopg.Connection.execute

    def counted(self: psycopg.Connection, query: object, *args: object, **kwargs: object) -> object:
        statements.append(query)
        return execute(self, query, *args, **kwargs)

    with (
        mock.patch.object(psycopg.Connection, "execute", counted),
        mock.patch.object(connection, "ensure_connection", side_effect=AssertionError("Django's was used")),
    ):
        one.turn()
    assert len(statements) == 1

    with own_connection.connect(purpose="test") as other, other.transaction():
        assert look(other) == sweeper.LookResult()
        assert other.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)


def test_old_answers_and_dead_workers_are_dropped_and_the_others_kept(one: Sweeper) -> None:
    for name, age in (("old", 49 * 3600), ("new", 60)):
        record = IdempotencyRecord.objects.create(
            holder="key:1", operation="POST /x", key=name, fingerprint="f", status=200, body=None
        )
        IdempotencyRecord.objects.filter(pk=record.pk).update(created_at=factories.database_now(-age))
    dead = {"dead": True, "expires_in": -90000}
    old, holding = factories.worker(**dead), factories.worker(**dead)
    factories.leased(factories.session(), holding)
    Worker.objects.update(renewed_at=F("expires_at"))
    recent, alive = factories.worker(dead=True), factories.worker()

    assert one.purge() is False

    assert list(IdempotencyRecord.objects.values_list("key", flat=True)) == ["new"]
    assert set(Worker.objects.values_list("pk", flat=True)) == {holding.pk, recent.pk, alive.pk}
    assert not Worker.objects.filter(pk=old.pk).exists()


def test_the_loop_survives_its_connection_and_ends_when_told(settings: LazySettings) -> None:
    """A database restart is waited for, not died of."""
    settings.TENURE = dataclasses.replace(settings.TENURE, sweep_interval=0.05)
    stop = StopFlag()
    loop = staging.Contender(lambda: sweeper.run("sweeper", stop))
    try:
        pid = staging.eventually(sweeping_backend)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        staging.eventually(lambda: sweeping_backend() not in {None, pid})
        lost = factories.worker(expires_in=-1)
        staging.eventually(lambda: Worker.objects.filter(pk=lost.pk, dead=True).exists())
    finally:
        stop.drain(limit=5, margin=1)
        loop.result()
    staging.eventually(lambda: sweeping_backend() is None)


def sweeping_backend() -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'tenure sweep'"
            " AND datname = current_database()"
        )
        row = cursor.fetchone()
    return row[0] if row else None


def test_a_lost_process_is_reaped_by_the_loop_after_two_looks(settings: LazySettings) -> None:
    """L6: with real looks and no hand on the stamp; the second look comes as soon as it counts."""
    settings.TENURE = dataclasses.replace(settings.TENURE, sweep_interval=0.5, lock_free_looks_apart=0.2)
    worker = factories.worker(liveness="lock")
    session = factories.running(worker)
    stop = StopFlag()
    started = time.monotonic()
    loop = staging.Contender(lambda: sweeper.run("sweeper", stop))
    try:
        staging.eventually(lambda: factories.reread(session).status == SessionStatus.QUEUED)
        assert 0.2 <= time.monotonic() - started < 0.5 + 0.2
    finally:
        stop.drain(limit=5, margin=1)
        loop.result()
