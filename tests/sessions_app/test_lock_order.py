"""Locks: one order for all services, waits that end, and a crowd that never deadlocks (L11)."""

import random
import threading
from contextlib import suppress
from functools import partial

import psycopg
import pytest
from django.db import DatabaseError, connection, connections

from sessions_app import control, inputs, invariants, leases, session_service, steps
from sessions_app.database import is_transient, ran_out_of_time
from sessions_app.due import Due
from sessions_app.engine import worker as engine_worker
from sessions_app.entry_kinds import SYSTEM
from sessions_app.errors import Conflict, LeaseLost, WorkerDead
from sessions_app.ids import new_id
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Input, Lease, Session, Worker
from sessions_app.session_service import Parent
from tests import factories
from tests.staging import Contender, another_connection, holding, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

LOCK_SESSION = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"
LOCK_LEASE = "SELECT FROM sessions_app_lease WHERE session_id = %s FOR UPDATE"
LOCK_WORKER = "SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE"


def note():
    return NewEntry(kind="note", data={"text": "noted"})


def write(session, **parts):
    values = {"session": session.id, "attempt": session.attempt, "work_rev": session.work_rev}
    return steps.StepWrite(**(values | {"entries": (note(),)} | parts))


def seqs(session):
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("seq", flat=True))


@pytest.fixture
def worker():
    return factories.worker()


# --- the order, one service at a time --------------------------------------------------------------------

# Each is called with a session that `worker` holds, and its first lock must be the session's.
SERVICES = {
    "end_lease": lambda session, worker: leases.end_lease(session.id, reason="crash"),
    "release": lambda session, worker: leases.release(session.id, worker=worker.pk, attempt=session.attempt),
    "force_release": lambda session, worker: leases.force_release(session.id),
    "steal": lambda session, worker: leases.steal(session.id, worker=factories.worker().pk),
    "commit_steps": lambda session, worker: steps.commit_steps(worker.pk, [write(session)]),
    "cancel": lambda session, worker: control.cancel(session=session.id, actor=SYSTEM),
    "submit_input": lambda session, worker: inputs.submit_input(
        session=session.id, content=[{"type": "text", "text": "hello"}], actor=SYSTEM
    ),
    "update_session": lambda session, worker: session_service.update_session(
        session=session.id, actor=SYSTEM, name="renamed"
    ),
    "end_leases_of": None,
}


@pytest.mark.parametrize("service", [name for name, act in SERVICES.items() if act])
def test_a_service_waits_for_the_session_before_it_locks_anything_below(service, worker):
    """L11: while it waits for the session's row, the lease and the worker are free for everybody"""
    session = factories.running(worker)
    with holding(LOCK_SESSION, session.id):
        contender = Contender(partial(SERVICES[service], session, worker))
        wait_until_blocked()
        with another_connection() as other:
            other.execute("SET lock_timeout = '1s'")
            other.execute(LOCK_LEASE, [session.id])
            other.execute(LOCK_WORKER, [worker.pk])
    contender.result()


def test_sessions_are_locked_in_id_order_whatever_the_order_of_the_steps(worker):
    """L11: looking up three steps after a lost answer waits at the second and holds the first alone"""
    first, second, third = sorted((factories.running(worker) for _ in range(3)), key=lambda row: row.id)
    with holding(LOCK_SESSION, second.id):
        contender = Contender(
            lambda: steps.commit._find(worker.pk, [write(row) for row in (third, first, second)])
        )
        wait_until_blocked()
        with another_connection() as other:
            other.execute(LOCK_SESSION + " NOWAIT", [third.id])
        with another_connection() as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(LOCK_SESSION + " NOWAIT", [first.id])
    assert contender.result() == [None, None, None]


def test_reaping_holds_no_session_while_it_waits_for_the_worker(worker):
    """L11, L7: it marks the worker dead in a transaction of its own, and ends the leases afterwards"""
    session = factories.running(worker)
    with holding(LOCK_WORKER, worker.pk):
        contender = Contender(lambda: leases.end_worker(owner=worker.owner, reason="crash"))
        wait_until_blocked()
        assert steps.commit_steps(worker.pk, [write(session)]) == [
            steps.Saved(moved=False, first_seq=1, work_rev=0)
        ]
    assert contender.result() == 1
    assert not Lease.objects.exists()


def test_a_shared_commit_does_not_wait_for_the_lease_of_a_busy_session(worker):
    """L11: whoever ends a lease holds its row too; the other steps of the batch are saved meanwhile"""
    busy, free = factories.running(worker), factories.running(worker)
    with holding(LOCK_SESSION, busy.id) as ending:
        ending.execute("DELETE FROM sessions_app_lease WHERE session_id = %s", [busy.id])
        contender = Contender(lambda: steps.commit_steps(worker.pk, [write(busy), write(free)]))
        wait_until_blocked()
        assert seqs(free) == [1]
    lost, saved = contender.result()
    assert (lost, saved) == (steps.Lost(None), steps.Saved(moved=False, first_seq=1, work_rev=0))
    assert seqs(busy) == []


def test_ending_the_leases_of_a_worker_waits_for_no_busy_session(worker):
    """L7: it is left for the next look"""
    busy, free = factories.running(worker), factories.running(worker)
    with holding(LOCK_SESSION, busy.id):
        assert leases.end_leases_of(worker=worker.pk, reason="crash") == 1
        assert list(Lease.objects.values_list("session_id", flat=True)) == [busy.id]
    assert leases.end_leases_of(worker=worker.pk, reason="crash") == 1
    assert not Lease.objects.filter(session=free).exists()


# --- waits that end --------------------------------------------------------------------------------------


@pytest.fixture
def short_limits(monkeypatch):
    """A worker's connection, whose limits are short."""
    engine_worker._prepare_thread([])
    engine_worker._with_connection(lambda: None)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'; SET statement_timeout = '500ms'")
    yield
    connections.close_all()


def limits():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'), "
            "current_setting('idle_in_transaction_session_timeout')"
        )
        return cursor.fetchone()


def test_a_workers_connections_have_limits_also_after_a_reconnect():
    """L11"""
    connections.close_all()
    engine_worker._prepare_thread([])
    try:
        assert engine_worker._with_connection(limits) == ("2s", "5s", "5s")
        connection.close()
        assert engine_worker._with_connection(limits) == ("2s", "5s", "5s")
    finally:
        connections.close_all()


@pytest.mark.usefixtures("short_limits")
def test_waiting_for_a_lock_ends_and_says_that_it_may_be_tried_again(worker):
    """L11, C71"""
    session = factories.running(worker)
    with holding(LOCK_SESSION, session.id), pytest.raises(DatabaseError) as caught:
        engine_worker._with_connection(leases.force_release, session.id)
    assert is_transient(caught.value)
    assert not ran_out_of_time(caught.value)
    assert engine_worker._with_connection(leases.force_release, session.id)


@pytest.mark.usefixtures("short_limits")
def test_a_statement_that_takes_too_long_is_ended(worker):
    """L11"""

    def slow():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    with pytest.raises(DatabaseError) as caught:
        engine_worker._with_connection(slow)
    assert ran_out_of_time(caught.value)


@pytest.mark.usefixtures("short_limits")
def test_a_step_whose_parent_stays_locked_is_handed_back_and_told_later(worker):
    """L11, T8: neither the end of a subagent's turn nor what its parent hears of it is half done"""
    parent = factories.running(worker)
    child = factories.running(worker, config=parent.config, parent=parent)
    end = steps.TurnEnd(id=child.turn_id, status="succeeded", reason="done")
    step = write(child, then=steps.Then(turn_end=end, release=Due(None, "idle")), parent=parent.id)
    with holding(LOCK_SESSION, parent.id):
        busy, saved = engine_worker._with_connection(
            steps.commit_steps, worker.pk, [step, write(factories.running(worker))]
        )
    assert isinstance(busy, steps.Busy)
    assert isinstance(saved, steps.Saved)
    assert factories.reread(child).turn_id == child.turn_id
    (late,) = engine_worker._with_connection(steps.commit_steps, worker.pk, [step])
    assert isinstance(late, steps.Saved)


@pytest.mark.usefixtures("short_limits")
def test_a_step_whose_session_stays_locked_is_handed_back_and_the_others_are_saved(worker):
    """L11: busy, not lost and not refused; it is saved once the lock is gone"""
    locked, free = factories.running(worker), factories.running(worker)
    batch = [write(locked), write(free)]
    with holding(LOCK_SESSION, locked.id):
        busy, saved = engine_worker._with_connection(steps.commit_steps, worker.pk, batch)
    assert isinstance(busy, steps.Busy)
    assert saved == steps.Saved(moved=False, first_seq=1, work_rev=0)
    (late,) = engine_worker._with_connection(steps.commit_steps, worker.pk, batch[:1])
    assert late == steps.Saved(moved=False, first_seq=1, work_rev=0)


def test_code_in_a_fence_that_does_something_else_loses_its_transaction(worker):
    """L11: a fence is for the database alone; whoever thinks or calls out in it is stopped, and writes nothing"""
    session = factories.running(worker)
    entered, released = threading.Event(), threading.Event()

    def dawdle():
        with leases.fence(session.id, worker=worker.pk, attempt=session.attempt) as row:
            row.name = "half done"
            row.save()
            entered.set()
            # Outside the database; the test goes on when the server has let go of the row.
            assert released.wait(5)

    contender = Contender(lambda: in_a_worker_thread(dawdle))
    assert entered.wait(5)
    with another_connection() as other:
        other.execute(LOCK_SESSION, [session.id])
        released.set()
    with pytest.raises(DatabaseError) as caught:
        contender.result()
    assert ran_out_of_time(caught.value)
    assert factories.reread(session).name == ""


def in_a_worker_thread(function):
    """As a worker's thread does it, with short limits; afterwards the thread's connection works again."""
    engine_worker._prepare_thread([])
    engine_worker._with_connection(lambda: None)
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '200ms'")
    try:
        return engine_worker._with_connection(function)
    finally:
        assert engine_worker._with_connection(limits) == ("2s", "5s", "5s")


def test_a_worker_that_freezes_in_a_commit_does_not_keep_the_session_locked(worker, monkeypatch):
    """L11: the server takes its locks back; the step is saved when the worker wakes up and tries again"""
    session = factories.running(worker)
    frozen, thawed = threading.Event(), threading.Event()

    def freeze(name):
        if name == "step.locked" and not frozen.is_set():
            frozen.set()
            assert thawed.wait(5)

    monkeypatch.setattr(steps.commit, "crash_point", freeze)
    step = write(session)
    contender = Contender(lambda: in_a_worker_thread(lambda: steps.commit_steps(worker.pk, [step])))
    assert frozen.wait(5)
    with another_connection() as other:
        other.execute("SET lock_timeout = '3s'")
        other.execute(LOCK_SESSION, [session.id])
    thawed.set()
    # The broken connection was noticed, the step looked for, not found, and written.
    assert contender.result() == [steps.Saved(moved=False, first_seq=1, work_rev=0)]
    assert seqs(session) == [1]


# --- all at once -----------------------------------------------------------------------------------------

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
ROUNDS = 120


def deadlocks():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(DEADLOCKS)
        return cursor.fetchone()[0]


class Crowd:
    """A few sessions, and everybody who may touch them; what each does is drawn at random."""

    def __init__(self):
        self.sessions = [factories.due() for _ in range(5)]
        self.saved = 0
        self.lock = threading.Lock()

    def work(self, random_):
        """A worker: claim, save steps in shared commits, now and then let go; a new one when it was reaped."""
        worker = factories.worker()
        for _ in range(ROUNDS):
            held = leases.claim(worker=worker.pk, limit=3)
            if not held and Worker.objects.filter(pk=worker.pk, dead=True).exists():
                worker = factories.worker()
            held += [
                leases.Claimed(row.session_id, row.attempt) for row in Lease.objects.filter(worker=worker)
            ]
            last = random_.random() < 0.3
            batch = {
                item.session: steps.StepWrite(
                    session=item.session, attempt=item.attempt, work_rev=self.rev(item.session),
                    entries=(note(),), then=steps.Then(release=Due("now", "queued")) if last else steps.Then(),
                )
                for item in held
            }  # fmt: skip
            if batch:
                wanted = list(batch.values())
                random_.shuffle(wanted)
                results = steps.commit_steps(worker.pk, wanted)
                with self.lock:
                    self.saved += sum(isinstance(result, steps.Saved) for result in results)
            with connection.cursor() as cursor:
                try:
                    leases.heartbeat(cursor, worker=worker.pk)
                except WorkerDead:
                    worker = factories.worker()

    def rev(self, session):
        return Session.objects.values_list("work_rev", flat=True).get(pk=session)

    def operate(self, random_):
        """People and sweepers: say something, cancel, take sessions away, declare workers dead."""
        rival = factories.worker()
        for _ in range(ROUNDS):
            session = random_.choice(self.sessions).id
            match random_.randrange(8):
                case 0 | 1:
                    inputs.submit_input(
                        session=session, content=[{"type": "text", "text": "go"}], actor=SYSTEM
                    )
                case 2:
                    control.cancel(session=session, actor=SYSTEM)
                case 3:
                    leases.end_lease(session, reason=random_.choice(["crash", "drain", "forced"]))
                case 4:
                    try:
                        leases.steal(session, worker=rival.pk)
                    except Conflict:
                        continue
                    except WorkerDead:
                        rival = factories.worker()
                case 5:
                    session_service.update_session(
                        session=session, actor=SYSTEM, priority=random_.randrange(9)
                    )
                case 6:
                    self.reap(random_)
                case 7:
                    self.think_in_a_fence(session)

    def reap(self, random_):
        living = list(Worker.objects.filter(dead=False, leases__isnull=False).distinct())
        if living:
            leases.end_worker(owner=random_.choice(living).owner, reason="crash")

    def think_in_a_fence(self, session):
        lease = Lease.objects.filter(pk=session).first()
        if lease is not None:
            try:
                with leases.fence(session, worker=lease.worker_id, attempt=lease.attempt) as row:
                    row.labels = {"thought": str(row.next_seq)}
                    row.save()
            except LeaseLost:
                pass


class Families(Crowd):
    """The same for a session and its subagents: every end of one of them is told to the one above."""

    def __init__(self):
        self.worker = factories.worker()
        self.saved = 0
        self.lock = threading.Lock()
        root = factories.running(self.worker)
        second = self.child(root)
        third = self.child(second)
        self.sessions = [root, second, third, self.child(root), self.child(second)]

    def child(self, parent):
        with leases.fence(parent.id, worker=self.worker.pk, attempt=parent.attempt) as row:
            made = session_service.start_session(
                project=row.project_id, actor=SYSTEM, config=row.config_id, child_of=Parent(row, new_id())
            )
            row.save()
        factories.open_turn(made)
        factories.leased(made, self.worker)
        return factories.reread(made)

    def act(self, random_):
        for _ in range(ROUNDS // 2):
            session = random_.choice(self.sessions)
            match random_.randrange(7):
                case 0 | 1:
                    content = [{"type": "text", "text": "go"}]
                    inputs.submit_input(session=session.id, content=content, actor=SYSTEM)
                case 2:
                    control.cancel(session=session.id, actor=SYSTEM)
                case 3:
                    leases.end_lease(session.id, reason=random_.choice(["crash", "drain", "forced"]))
                case 4:
                    for waiting in Input.objects.filter(session=session, state="received")[:1]:
                        with suppress(Conflict):
                            inputs.cancel_input(input=waiting.pk, actor=SYSTEM)
                case 5:
                    self.end_turns(random_)
                case 6:
                    self.think_in_a_fence(session.id)

    def end_turns(self, random_):
        """A worker claims what is due, and ends its turns, or asks the model, in one shared commit."""
        worker = factories.worker()
        ends = []
        for held in leases.claim(worker=worker.pk, limit=3):
            row = factories.reread(held.session)
            then = steps.Then(release=Due(None, "idle"))
            if row.turn_id is not None and random_.random() < 0.4:
                # Held from here on, in the middle of a model call, until somebody ends the lease.
                call = steps.ModelCallStart(
                    id=new_id(), turn=row.turn_id, config=row.config_id, reserve=random_.randrange(1, 99)
                )
                then = steps.Then(model_call=call)
            elif row.turn_id is not None:
                end = steps.TurnEnd(id=row.turn_id, status="succeeded", reason="done")
                then = steps.Then(turn_end=end, release=Due(None, "idle"))
            ends.append(
                steps.StepWrite(
                    session=held.session, attempt=held.attempt, work_rev=row.work_rev, entries=(note(),),
                    then=then, parent=row.parent_id if then.turn_end is not None else None,
                )
            )  # fmt: skip
        random_.shuffle(ends)
        if ends:
            results = steps.commit_steps(worker.pk, ends)
            with self.lock:
                self.saved += sum(isinstance(result, steps.Saved) for result in results)


def test_a_family_that_does_everything_at_once_never_deadlocks():
    """L11, T8: parents, children and grandchildren end, are spoken to and cancelled from all sides"""
    family = Families()
    before = deadlocks()
    seed = random.randrange(2**32)
    contenders = [Contender(partial(family.act, random.Random(seed + number))) for number in range(4)]
    for contender in contenders:
        contender.result(timeout=60)
    assert deadlocks() - before == 0, f"seed {seed}"
    assert Entry.objects.filter(kind="note").count() == family.saved > 0, f"seed {seed}"
    assert invariants.check_trees() == [], f"seed {seed}"
    for session in map(factories.reread, family.sessions):
        assert seqs(session) == list(range(1, session.next_seq)), f"seed {seed}"


def test_a_crowd_that_does_everything_at_once_never_deadlocks():
    """L11, L1, S1: five sessions, three workers, two that operate, and nothing is lost or doubled in the log"""
    crowd = Crowd()
    before = deadlocks()
    seed = random.randrange(2**32)
    acts = [crowd.work] * 3 + [crowd.operate] * 2
    contenders = [Contender(partial(act, random.Random(seed + number))) for number, act in enumerate(acts)]
    for contender in contenders:
        contender.result(timeout=60)
    assert deadlocks() - before == 0, f"seed {seed}"
    notes = Entry.objects.filter(kind="note").count()
    assert notes == crowd.saved > 0, f"seed {seed}"
    for session in map(factories.reread, crowd.sessions):
        assert seqs(session) == list(range(1, session.next_seq)), f"seed {seed}"
        leased = Lease.objects.filter(session=session).first()
        assert (session.status == "running") == (leased is not None), f"seed {seed}"
        if leased is not None:
            assert (session.wake_at, leased.attempt) == (None, session.attempt), f"seed {seed}"
