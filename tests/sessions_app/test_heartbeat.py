"""The heart of a worker: its decisions as tables, and its life on a real PostgreSQL."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from unittest import mock
from uuid import UUID

import psycopg
import pytest
from django.conf import LazySettings
from django.db import connection

from sessions_app import leases, own_connection
from sessions_app.heartbeat import Heart
from sessions_app.leases import LOCK_CLASS, Beat
from sessions_app.models import Lease, SessionStatus, Worker
from sessions_app.sweeper import Sweeper
from sessions_app.vital_signs import Signs, Verdict, abort_at, judge, lock_proves_nothing
from tests import factories, staging

TTL, REGAIN = 30.0, 0.5


# --- decisions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connected", "locked", "now", "verdict"),
    [
        (100.0, True, 100.0, Verdict.LIVE),
        (100.0, True, 119.9, Verdict.LIVE),
        (100.0, True, 120.0, Verdict.DATABASE_LOST),  # two thirds of the time to live, also if only stuck
        (None, False, 119.9, Verdict.LIVE),  # the database is away: there is time until then
        (None, False, 120.0, Verdict.DATABASE_LOST),
        (104.0, False, 104.4, Verdict.LIVE),  # connected again: half a second to take the lock
        (104.0, False, 104.5, Verdict.LOCK_LOST),
        (119.8, False, 120.0, Verdict.DATABASE_LOST),  # whichever comes first
        (104.0, True, 104.5, Verdict.LIVE),
    ],
)
def test_a_worker_goes_on_or_aborts(
    connected: float | None, locked: bool, now: float, verdict: Verdict
) -> None:
    """L5, L6: last renewed at 100, time to live 30 s, half a second for the lock."""
    signs = Signs(renewed=100.0, connected=connected, locked=locked)
    assert judge(signs, now=now, ttl=TTL, regain=REGAIN) is verdict


@pytest.mark.parametrize("skew", [-86_400.0, 86_400.0])
def test_the_wall_clock_takes_no_part(skew: float) -> None:
    """A19: whatever the host's clock says, the budget follows the monotonic one."""
    signs = Signs(renewed=100.0, connected=100.0, locked=True)
    with mock.patch("time.time", return_value=time.time() + skew):
        assert abort_at(signs, ttl=TTL, regain=REGAIN) == (120.0, Verdict.DATABASE_LOST)


def test_a_slow_renewal_counts_from_its_sending() -> None:
    """L5: sent at 100 and answered at 119; the database may have taken it at 100."""
    signs = Signs(renewed=100.0, connected=90.0, locked=True)
    assert judge(signs, now=119.0, ttl=TTL, regain=REGAIN) is Verdict.LIVE
    assert judge(signs, now=120.5, ttl=TTL, regain=REGAIN) is Verdict.DATABASE_LOST


@pytest.mark.parametrize(
    ("answered_by", "held", "taken", "distrust"),
    [
        (7, True, True, False),
        (7, False, False, False),  # not taken yet, so nothing follows
        (8, True, True, True),  # another process answers without a reconnect of ours
        (8, False, False, True),
        (7, False, True, True),  # taken, and gone
    ],
)
def test_a_pooler_is_recognised(answered_by: int, held: bool, taken: bool, distrust: bool) -> None:
    """L6, C84"""
    assert lock_proves_nothing(answered_by=answered_by, connected_to=7, taken=taken, held=held) is distrust


# --- life --------------------------------------------------------------------------------------------------


class Patient:
    """A heart with what it said."""

    def __init__(self, owner: str = "patient") -> None:
        self._changed = threading.Condition()
        self.beats: list[tuple[Beat, float]] = []
        self.aborts: list[str] = []
        self.heart = Heart(owner=owner, capacity=3, on_beat=self._on_beat, on_abort=self._on_abort)

    def _on_beat(self, beat: Beat, sent_at: float) -> None:
        with self._changed:
            self.beats.append((beat, sent_at))
            self._changed.notify_all()

    def _on_abort(self, reason: str) -> None:
        with self._changed:
            self.aborts.append(reason)
            self._changed.notify_all()

    def start(self) -> int:
        self.heart.start()
        number = self.heart.wait_registered(5)
        assert number is not None
        return number

    def wait(self, condition: Callable[["Patient"], bool], *, within: float = 5.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), within), (self.beats, self.aborts)

    def next_beat(self) -> Beat:
        """Ask for a renewal, and wait for one that was sent after that."""
        asked = time.monotonic()
        self.heart.beat_now()
        self.wait(lambda patient: bool(patient.beats) and patient.beats[-1][1] >= asked)
        return self.beats[-1][0]


@pytest.fixture
def patients(transactional_db: None) -> Iterator[Callable[..., Patient]]:
    made: list[Patient] = []

    def make(owner: str = "patient") -> Patient:
        made.append(Patient(owner))
        return made[-1]

    yield make
    for patient in made:
        patient.heart.stop()


def lock_holder(worker: int) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND objsubid = 2"
            " AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [LOCK_CLASS, worker],
        )
        row = cursor.fetchone()
    return row[0] if row else None


def terminate(pid: int | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])


def short(settings: LazySettings, **seconds: float) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, **seconds)


def test_a_worker_is_registered_by_the_databases_clock_and_locked(patients: Callable[..., Patient]) -> None:
    """A1, L4, L6, C64: this host's clock is wrong by an hour and nobody notices."""
    before = factories.database_now()
    with mock.patch("time.time", return_value=time.time() + 3600):
        patient = patients()
        number = patient.start()
    row = Worker.objects.get(pk=number)
    for moment in (row.started_at, row.renewed_at):
        assert before <= moment <= factories.database_now()
    assert row.expires_at - row.renewed_at >= timedelta(seconds=29.9)
    assert row.expires_at <= factories.database_now(30)
    assert lock_holder(number) == patient.heart.backend_pid
    assert patient.beats[0][0].lock_held
    assert patient.heart.live


def test_it_renews_itself_again_and_again(patients: Callable[..., Patient], settings: LazySettings) -> None:
    """L4"""
    short(settings, heartbeat_interval=0.05)
    patient = patients()
    number = patient.start()
    first = Worker.objects.get(pk=number).expires_at
    patient.wait(lambda patient: len(patient.beats) >= 4)
    assert Worker.objects.get(pk=number).expires_at > first
    sent = [sent_at for _, sent_at in patient.beats]
    assert sent == sorted(sent)


def test_a_beat_tells_which_leases_are_left(patients: Callable[..., Patient]) -> None:
    """L4: read back in the same call; a lease that was ended from outside is missing from the next one."""
    patient = patients()
    number = patient.start()
    session = factories.running(Worker.objects.get(pk=number))
    assert patient.next_beat().leases == {(session.pk, 1)}
    assert leases.force_release(session.pk)
    assert patient.next_beat().leases == frozenset()


def test_a_renewal_that_waits_behind_a_row_lock_is_granted_the_whole_time(
    patients: Callable[..., Patient],
) -> None:
    """A7"""
    patient = patients()
    number = patient.start()
    with staging.holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", number):
        patient.heart.beat_now()
        staging.wait_until_blocked()
        freed = factories.database_now()
    patient.next_beat()
    assert Worker.objects.get(pk=number).expires_at >= freed + timedelta(seconds=30)


def test_a_renewal_that_is_stuck_for_two_thirds_of_the_time_aborts_the_worker(
    patients: Callable[..., Patient], settings: LazySettings
) -> None:
    """L5: also while the heart's own thread hangs in the database; and what ends the wait ends the alarm."""
    short(settings, worker_ttl=0.6, heartbeat_interval=0.1)
    patient = patients()
    number = patient.start()
    with staging.holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", number):
        patient.wait(lambda patient: patient.aborts == ["database lost"])
        told = time.monotonic()
        sent = patient.beats[-1][1]
        assert 0.4 <= told - sent < 0.6, "before anybody may believe it dead"
        assert not patient.heart.live
    patient.next_beat()
    assert patient.heart.live
    assert patient.aborts == ["database lost"]


def test_a_first_renewal_that_fails_once_is_tried_again(
    patients: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A18"""
    failures = iter([psycopg.OperationalError("a hiccup")])
    heartbeat = leases.heartbeat

    def once_broken(cursor: object, *, worker: int) -> Beat:
        for failure in failures:
            raise failure
        return heartbeat(cursor, worker=worker)

    monkeypatch.setattr(leases, "heartbeat", once_broken)
    patient = patients()
    number = patient.start()
    assert Worker.objects.get(pk=number).owner == "patient"
    assert patient.aborts == []


def test_a_database_that_is_away_at_the_start_is_waited_for(
    patients: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A18"""
    connect = own_connection.connect
    tries = threading.Semaphore(0)
    away = threading.Event()
    away.set()

    def maybe(*, purpose: str) -> psycopg.Connection:
        tries.release()
        if away.is_set():
            raise psycopg.OperationalError("the database is away")
        return connect(purpose=purpose)

    monkeypatch.setattr(own_connection, "connect", maybe)
    patient = patients()
    patient.heart.start()
    for _ in range(3):
        assert tries.acquire(timeout=5)
    assert patient.heart.wait_registered(0) is None
    away.clear()
    assert patient.heart.wait_registered(5) is not None
    assert patient.aborts == []


def test_a_worker_that_was_declared_dead_never_comes_back_under_its_number(
    patients: Callable[..., Patient],
) -> None:
    """L5, A10: it says so once, ends, and the process starts over under a new number."""
    patient = patients()
    number = patient.start()
    assert leases.mark_dead(worker=number)
    patient.heart.beat_now()
    patient.wait(lambda patient: patient.aborts == ["declared dead"])
    staging.eventually(lambda: patient.heart.over)
    assert not patient.heart.live
    staging.eventually(lambda: lock_holder(number) is None)  # its backend needs a moment to notice
    assert leases.claim(worker=number, limit=10) == []

    anew = patients()
    assert anew.start() != number
    assert Worker.objects.get(pk=anew.heart.worker).owner == "patient+2"


def test_a_lost_connection_is_replaced_and_the_lock_taken_again_at_once(
    patients: Callable[..., Patient],
) -> None:
    """L6: noticed without waiting for the next beat, which is five seconds away, and nobody is reaped."""
    patient = patients()
    number = patient.start()
    lost = patient.heart.backend_pid
    cut = time.monotonic()
    terminate(lost)
    staging.eventually(lambda: lock_holder(number) not in {None, lost}, within=0.5 + 0.5)
    patient.wait(lambda patient: patient.beats[-1][1] > cut)
    assert patient.beats[-1][0].lock_held
    assert patient.aborts == []
    assert Worker.objects.get(pk=number).liveness == "lock"
    assert Worker.objects.get(pk=number).lock_free_at is None


def test_a_lock_that_stays_taken_aborts_the_worker_within_half_a_second(
    patients: Callable[..., Patient],
) -> None:
    """L6: the database can be reached, and somebody else holds the lock."""
    patient = patients()
    number = patient.start()
    with staging.another_connection() as thief:
        waiting = thief.cursor()
        thief.autocommit = True
        stealing = staging.Contender(
            lambda: waiting.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS, number])
        )
        staging.wait_until_blocked()
        terminate(patient.heart.backend_pid)
        stealing.result()
        cut = time.monotonic()
        patient.wait(lambda patient: patient.aborts == ["lock lost"], within=2)
        assert time.monotonic() - cut < 0.5 + 0.5
        assert not patient.heart.live
        waiting.execute("SELECT pg_advisory_unlock(%s, %s)", [LOCK_CLASS, number])
    # It goes on trying, and lives again once it has the lock.
    staging.eventually(lambda: patient.heart.live)
    assert patient.aborts == ["lock lost"]


def test_the_servers_half_of_a_broken_connection_is_ended_so_that_the_lock_is_free(
    patients: Callable[..., Patient],
) -> None:
    """L6: our side saw the connection break; the server did not, and holds the lock for it."""
    patient = patients()
    number = patient.start()
    zombie = patient.heart._connection
    assert zombie is not None
    with mock.patch.object(Heart, "_still_open", return_value=False), mock.patch.object(zombie, "close"):
        with mock.patch.object(leases, "heartbeat", side_effect=psycopg.OperationalError("broken")):
            patient.heart.beat_now()
            staging.eventually(lambda: patient.heart._connection not in {None, zombie})
        staging.eventually(lambda: lock_holder(number) == patient.heart.backend_pid)
    zombie.close()
    assert patient.next_beat().lock_held
    assert patient.aborts == []


def test_behind_a_pooler_it_counts_on_its_time_to_live_alone(
    patients: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L6, C84: another server process answers than the one that was connected to."""
    heartbeat = leases.heartbeat

    def pooled(cursor: object, *, worker: int) -> Beat:
        return dataclasses.replace(heartbeat(cursor, worker=worker), backend_pid=1, lock_held=False)

    monkeypatch.setattr(leases, "heartbeat", pooled)
    patient = patients()
    number = patient.start()
    assert Worker.objects.get(pk=number).liveness == "ttl"
    assert patient.heart.live
    terminate(patient.heart.backend_pid)
    patient.next_beat()
    assert patient.aborts == []


def test_draining_is_committed_before_it_is_said(patients: Callable[..., Patient]) -> None:
    """L8: from then on an end of its leases counts as drain, and it can claim no more."""
    patient = patients()
    number = patient.start()
    assert patient.heart.drain() is True
    assert Worker.objects.get(pk=number).draining
    assert patient.next_beat().draining
    factories.due()
    assert leases.claim(worker=number, limit=10) == []


def test_draining_without_a_database_is_given_up_in_time(
    patients: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8"""
    patient = patients()
    patient.start()

    def away(*, purpose: str) -> psycopg.Connection:
        raise psycopg.OperationalError(purpose)

    monkeypatch.setattr(own_connection, "connect", away)
    terminate(patient.heart.backend_pid)
    staging.eventually(lambda: patient.heart.backend_pid is None)
    started = time.monotonic()
    assert patient.heart.drain(limit=0.2) is False
    assert time.monotonic() - started < 1


def test_a_clean_end_leaves_nothing_to_wait_for(patients: Callable[..., Patient]) -> None:
    """L8: dead at once, the lock free, and what it still held claimable without counting as a crash."""
    patient = patients()
    number = patient.start()
    held = factories.running(Worker.objects.get(pk=number))
    patient.heart.stop()
    assert patient.heart.over
    assert Worker.objects.get(pk=number).dead
    assert lock_holder(number) is None
    assert not Lease.objects.exists()
    session = factories.reread(held)
    assert (session.status, session.crash_count) == (SessionStatus.QUEUED, 0)
    assert (session.lease_end or {})["reason"] == "drain"
    assert patient.aborts == []


def test_an_error_of_ours_in_the_heart_aborts_the_worker(
    patients: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L5: nothing runs on without a heart."""
    patient = patients()
    patient.start()
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    monkeypatch.setattr(leases, "heartbeat", mock.Mock(side_effect=KeyError("a bug")))
    patient.heart.beat_now()
    patient.wait(lambda patient: patient.aborts == ["heart failed"])
    staging.eventually(lambda: patient.heart.over and raised)


def test_a_living_heart_is_never_suspect(patients: Callable[..., Patient], settings: LazySettings) -> None:
    """L6: the sweeper's look and the heart's lock mean the same lock; and its death is seen at two looks."""
    short(settings, server_start_grace=0.0, lock_free_looks_apart=0.05)
    patient = patients()
    number = patient.start()
    one = Sweeper()
    try:
        seen = one.look()
        assert (seen.suspects, seen.unlocked) == ((), ())
        with mock.patch.object(own_connection, "connect", side_effect=psycopg.OperationalError("gone")):
            terminate(patient.heart.backend_pid)
            staging.eventually(lambda: one.look().suspects == (number,))
            staging.eventually(lambda: one.look().unlocked == (number,))
        patient.next_beat()
        assert one.look().unlocked == ()
        assert not Worker.objects.get(pk=number).dead
    finally:
        one.disconnect()


def test_ids_in_a_beat_are_what_the_worker_compares_its_runs_with(patients: Callable[..., Patient]) -> None:
    """L4"""
    patient = patients()
    number = patient.start()
    factories.due()
    claimed = leases.claim(worker=number, limit=1)[0]
    ((session, attempt),) = patient.next_beat().leases
    assert (session, attempt) == (claimed.session, claimed.attempt)
    assert isinstance(session, UUID)
