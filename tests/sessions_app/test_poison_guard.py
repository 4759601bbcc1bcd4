"""R9: who is to blame when workers die, who runs beside whom, and what is taken back."""

import dataclasses
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from sessions_app import crashes, inputs, leases, steps
from sessions_app.engine.tool_batch import run_internal
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import InputState, Lease, Session, Worker
from sessions_app.sweeper import Sweeper
from sessions_app.tool_port import ToolContext
from tests import factories
from tests.sessions_app.test_steps import a_call, a_reply, ends_turn, note, running_call, write
from tests.staging import Contender, holding, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "SELECT id FROM sessions_app_session WHERE id = %s FOR UPDATE"


@pytest.fixture
def worker() -> Worker:
    return factories.worker()


def claim(worker: Worker, limit: int = 64, **kwargs: Any) -> list[UUID]:
    return [claimed.session for claimed in leases.claim(worker=worker.pk, limit=limit, **kwargs)]


def counts(*sessions: Session) -> list[int]:
    return [factories.reread(session).crash_count for session in sessions]


# --- suspects run alone among suspects -------------------------------------------------------------------


@pytest.mark.parametrize("by_id", [False, True])
def test_a_process_runs_at_most_one_suspect_beside_any_number_of_others(worker: Worker, by_id: bool) -> None:
    """R9: from the second crash on; the next one comes when the first is gone or acquitted."""
    config = factories.config()
    suspects = [factories.due(config=config, crash_count=count) for count in (2, 3, 2)]
    others = [factories.due(config=config, crash_count=count) for count in (0, 1, 0)]
    wanted = {"sessions": [row.pk for row in (*suspects, *others)]} if by_id else {}
    taken = claim(worker, **wanted)
    assert set(taken) == {suspects[0].pk, *(row.pk for row in others)}
    assert claim(worker, **wanted) == []
    Session.objects.filter(pk=suspects[0].pk).update(crash_count=0)  # it made progress
    assert claim(worker, **wanted) == [suspects[1].pk]
    assert claim(worker, **wanted) == []
    assert claim(factories.worker(), **wanted) == [suspects[2].pk]


def test_workers_that_claim_at_the_same_moment_get_one_suspect_each_at_most() -> None:
    """R9: none of them gets a second one, and no suspect is left when all have had their chance."""
    config = factories.config()
    suspects = {factories.due(config=config, crash_count=2).pk for _ in range(4)}
    rows = [factories.worker() for _ in range(4)]
    contenders = [Contender(partial(claim, row)) for row in rows]
    taken = [contender.result() for contender in contenders]
    assert all(len(one) <= 1 for one in taken)
    # Who came second at the lock of the first suspect got none, and finds the next one when it looks again.
    taken += [claim(row) for row in rows]
    assert sorted(session for one in taken for session in one) == sorted(suspects)
    assert sorted(Lease.objects.values_list("worker", flat=True)) == sorted(row.pk for row in rows)


def test_a_crowd_of_suspects_in_front_keeps_nobody_waiting(worker: Worker) -> None:
    """R9, L2: a worker that has its suspect sees through all others that are due before."""
    config = factories.config()
    for _ in range(40):
        factories.due(config=config, crash_count=2, priority=-1)
    plain = factories.due(config=config)
    (first,) = claim(worker, 1)
    assert factories.reread(first).crash_count == 2
    assert claim(worker, 1) == [plain.pk]


def test_a_suspect_takes_no_place_before_its_turn(worker: Worker) -> None:
    """L2: within a project priority comes first, also for suspects."""
    config = factories.config()
    suspect = factories.due(config=config, crash_count=2, priority=1)
    plain = factories.due(config=config)
    assert claim(worker, 1) == [plain.pk]
    assert claim(worker, 1) == [suspect.pk]


# --- who is to blame -------------------------------------------------------------------------------------


def die(worker: Worker) -> None:
    leases.end_worker(owner=worker.owner, reason="crash")


def test_without_a_suspect_every_session_of_a_dead_worker_has_crashed(worker: Worker) -> None:
    """R9: any of them may be the cause."""
    sessions = [factories.running(worker, crash_count=count) for count in (0, 1)]
    die(worker)
    assert counts(*sessions) == [1, 2]


def test_with_a_suspect_only_its_count_grows(worker: Worker) -> None:
    """R9: the others are resumed like after any crash, but carry no blame."""
    others = [factories.running(worker, crash_count=count) for count in (0, 1)]
    suspect = factories.running(worker, crash_count=2)
    die(worker)
    assert counts(*others, suspect) == [0, 1, 3]
    assert {factories.reread(row).lease_end["reason"] for row in (*others, suspect)} == {"crash"}
    assert not Lease.objects.exists()


def test_the_blame_stays_with_the_suspect_for_leases_that_end_later(worker: Worker) -> None:
    """R9, L7: a session that was busy is ended by the next look, when the suspect's lease is long gone."""
    late, suspect = factories.running(worker), factories.running(worker, crash_count=2)
    with holding(LOCK, late.pk):
        die(worker)
        assert list(Lease.objects.values_list("pk", flat=True)) == [late.pk]
    assert counts(late, suspect) == [0, 3]
    sweeper = Sweeper()
    try:
        sweeper.act(sweeper.look())
    finally:
        sweeper.disconnect()
    assert not Lease.objects.exists()
    assert counts(late, suspect) == [0, 3]


def test_a_worker_whose_time_ran_out_is_no_different(worker: Worker, settings: Any) -> None:
    """R9, L6: the sweeper reaps it; the suspect is to blame."""
    settings.TENURE = dataclasses.replace(settings.TENURE, server_start_grace=0.0)
    other, suspect = factories.running(worker), factories.running(worker, crash_count=4)
    Worker.objects.filter(pk=worker.pk).update(expires_at=factories.database_now(-1))
    sweeper = Sweeper()
    try:
        sweeper.act(sweeper.look())
    finally:
        sweeper.disconnect()
    assert counts(other, suspect) == [0, 5]
    assert factories.reread(suspect).last_turn.reason == "crash_limit"


def test_a_run_that_fails_under_a_living_worker_blames_itself(worker: Worker) -> None:
    """R9: its process did not die, so no suspect is asked for."""
    own, suspect = factories.running(worker), factories.running(worker, crash_count=2)
    leases.end_lease(own.pk, reason="crash")
    assert counts(own, suspect) == [1, 2]


# --- what acquits ----------------------------------------------------------------------------------------


def test_progress_acquits_and_what_is_none_does_not(worker: Worker) -> None:
    """R9: a reply without calls under way, a result, the end of a turn; not a note, a retry or an outside call."""

    def after(step: steps.StepWrite) -> int:
        (saved,) = steps.commit_steps(worker.pk, [step])
        assert isinstance(saved, steps.Saved)
        return factories.reread(step.session).crash_count

    def suspect() -> Session:
        return factories.running(worker, crash_count=3)

    assert after(write(suspect(), entries=(note(),))) == 3
    session = suspect()
    assert after(a_reply(session, calls=[a_call(session)])) == 3
    session = suspect()
    assert after(a_reply(session, then=ends_turn(session))) == 0


def test_an_interrupted_result_acquits_nobody(worker: Worker) -> None:
    """R9: the call whose worker died has a result, and the crash counts all the same."""
    session = factories.running(worker, crash_count=1)
    running_call(session)
    die(worker)
    assert counts(session) == [2]


def test_an_internal_tool_that_worked_acquits(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: its result and the count are one transaction."""
    session = factories.running(worker, crash_count=3)
    row = factories.tool_call(
        session, tool_class="internal", name="set_label", arguments={"key": "a", "value": "b"}
    )
    call = a_call(
        session, id=row.pk, name="set_label", tool_class="internal", state="ready", arguments=row.arguments
    )
    context = ToolContext(
        project=session.project_id, session=session.pk, attempt=session.attempt, token="t", config={}
    )
    run_internal(call, context, worker.pk, session.attempt)
    assert counts(session) == [0]


def test_at_the_limit_inherited_input_goes_first_in_order_when_somebody_speaks_again(worker: Worker) -> None:
    """R9: the turn has failed, what waited stays received, and the newcomer starts at its end."""
    session = factories.running(worker, crash_count=4)
    first, second = (factories.received_input(session, text=text) for text in ("first", "second"))
    die(worker)
    row = factories.reread(session)
    assert (row.status, row.waiting_on, row.last_turn.reason) == (
        "waiting",
        [{"kind": "crash_limit"}],
        "crash_limit",
    )
    assert claim(factories.worker()) == []
    new = inputs.submit_input(session=session.pk, content=[{"type": "text", "text": "new"}], actor=SYSTEM)
    assert counts(session) == [0]
    assert claim(factories.worker()) == [session.pk]
    waiting = session.inputs.filter(state=InputState.RECEIVED).order_by("rank").values_list("pk", flat=True)
    assert list(waiting) == [first.pk, second.pk, new.pk]


# --- a worker that lives after all -----------------------------------------------------------------------


def test_a_worker_that_comes_back_takes_its_crashes_off(worker: Worker) -> None:
    """R9: also off a session that another worker has taken, and crashed with, meanwhile."""
    idle, taken = factories.running(worker, crash_count=1), factories.running(worker, crash_count=1)
    leases.mark_dead(worker=worker.pk)
    leases.end_leases_of(worker=worker.pk, reason="crash")
    other = factories.worker()
    taken.refresh_from_db()
    factories.leased(taken, other)
    Session.objects.filter(pk=taken.pk).update(crash_count=1)  # so that it is nobody's suspect
    taken.refresh_from_db()
    die(other)
    assert counts(idle, taken) == [2, 2]
    assert leases.take_back_crashes(worker=worker.pk) == 2
    assert counts(idle, taken) == [1, 1]
    assert leases.take_back_crashes(worker=worker.pk) == 0
    assert counts(idle, taken) == [1, 1]


def test_a_count_that_began_anew_is_none_of_its_business(worker: Worker) -> None:
    """R9: progress acquitted the session; the crash it has now is another worker's."""
    session = factories.running(worker)
    die(worker)
    row = factories.reread(session)
    other = factories.worker()
    factories.leased(row, other)
    steps.commit_steps(other.pk, [write(row, entries=(note(),), resets_crashes=True)])
    die(other)
    assert factories.reread(session).crashed_with == [other.pk]
    assert leases.take_back_crashes(worker=worker.pk) == 0
    assert counts(session) == [1]


def test_a_lease_that_ends_after_its_worker_came_back_counts_nothing(worker: Worker) -> None:
    """R9: somebody ends it right now, holding the session's lock; whoever is second sees what the first did."""
    session = factories.running(worker)
    leases.mark_dead(worker=worker.pk)
    with holding(LOCK, session.pk):
        reaper = Contender(lambda: leases.end_lease(session.pk, reason="crash", worker=worker.pk))
        wait_until_blocked()
        back = Contender(lambda: leases.take_back_crashes(worker=worker.pk))
        wait_until_blocked(2)
    assert reaper.result() in {True, False}
    back.result()
    assert counts(session) == [0]
    assert not Lease.objects.exists()
    assert factories.reread(session).status == "queued"


def test_what_waits_on_the_crash_limit_goes_on_when_a_crash_is_taken_back(worker: Worker) -> None:
    """R9: the turn has failed for good; the input that waited gets its own."""
    session = factories.running(worker, crash_count=4)
    factories.received_input(session)
    die(worker)
    assert factories.reread(session).status == "waiting"
    leases.take_back_crashes(worker=worker.pk)
    row = factories.reread(session)
    assert (row.status, row.crash_count) == ("queued", 4)


def test_the_memory_of_dead_workers_does_not_grow_beyond_the_limit(worker: Worker) -> None:
    """R9"""
    session = factories.session(crash_count=5, crashed_with=[1, 2, 3, 4, 5])
    factories.leased(session, worker)
    with transaction.atomic():
        crashes.count(session, Worker(pk=9, dead=True))
    assert (session.crash_count, session.crashed_with) == (5, [2, 3, 4, 5, 9])


def test_to_find_what_to_take_back_costs_no_walk_over_the_sessions(worker: Worker) -> None:
    """R9: only sessions with crashes on their count are looked at."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT id FROM sessions_app_session WHERE crash_count > 0 AND crashed_with @> '[1]'"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert "session_crashed" in plan
