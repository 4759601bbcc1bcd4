"""Claims: who gets which session, in which order, and what looking for one costs."""

import json
import re
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from sessions_app import leases
from sessions_app.models import Lease, Session
from tests import factories
from tests.staging import Contender, another_connection, holding, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

# Columns that have no default in the database; bulk rows skip the ORM.
BULK = """
INSERT INTO sessions_app_session (id, project_id, config_id, name, labels, metadata, priority, status, waiting_on,
    turn_count, input_tokens, output_tokens, cached_tokens, reasoning_tokens, model_calls, tool_calls, next_seq,
    head_seq, work_rev, attempt, crash_count, wake_at)
SELECT gen_random_uuid(), %s, %s, '', '{}', '{}', %s, %s, '[]', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
    clock_timestamp() + make_interval(secs => %s) FROM generate_series(1, %s)
"""


def bulk(config, count, *, status="queued", seconds=-60.0, priority=0) -> None:
    """`count` sessions; `seconds` is when they are due, counted from now, None for never."""
    with connection.cursor() as cursor:
        cursor.execute(BULK, [config.project_id, config.pk, priority, status, seconds, count])
        cursor.execute("ANALYZE sessions_app_session")


def claim(worker, limit=1, **kwargs) -> list[UUID]:
    return [claimed.session for claimed in leases.claim(worker=worker.pk, limit=limit, **kwargs)]


@pytest.fixture
def worker():
    return factories.worker()


def test_a_claim_makes_the_lease_and_raises_the_attempt(worker):
    """L1, L2: session, worker, attempt and the database's time; the due time is gone while it is held"""
    session = factories.due(attempt=7, waiting_on=[{"kind": "tool"}])
    before = factories.database_now()
    (claimed,) = leases.claim(worker=worker.pk, limit=1)
    assert (claimed.session, claimed.attempt) == (session.id, 8)
    lease = Lease.objects.get(session=session)
    assert (lease.worker_id, lease.attempt) == (worker.pk, 8)
    assert before <= lease.acquired_at <= factories.database_now()
    after = factories.reread(session)
    assert (after.status, after.wake_at, after.waiting_on, after.attempt) == ("running", None, [], 8)


def test_the_attempt_grows_with_every_claim_and_is_never_reset(worker):
    """L1: also by an end of the lease, whatever its reason"""
    session = factories.due()
    for number, reason in enumerate(("crash", "drain", "released", "forced", "cancelled"), start=1):
        (claimed,) = leases.claim(worker=worker.pk, limit=1)
        assert claimed.attempt == number
        leases.end_lease(session.id, reason=reason)


def test_only_sessions_whose_time_has_come_are_claimed(worker):
    """L2: not idle ones, and not those that wait for a later time; by the database's clock"""
    factories.session()
    factories.session(status="backing_off", wake_at=factories.database_now(60))
    due = factories.due()
    assert claim(worker, 10) == [due.id]


def test_within_a_project_priority_comes_first_and_then_the_due_time(worker):
    """A20, L2: lower first; of equals, who waits longest"""
    config = factories.config()
    rows = {
        (priority, seconds): factories.session(
            config=config, status="queued", priority=priority, wake_at=factories.database_now(seconds)
        ).id
        for priority, seconds in [(0, -1), (100, -90), (0, -5), (-100, -2), (1, -60), (-100, -3)]
    }
    assert [claim(worker, 1) for _ in rows] == [[rows[key]] for key in sorted(rows)]


def test_one_call_takes_the_first_ones_and_no_more_than_asked(worker):
    """L2: several per call"""
    config = factories.config()
    bulk(config, 5, seconds=-10)
    first = [factories.due(config=config, priority=-1).id for _ in range(3)]
    assert set(claim(worker, 3)) == set(first)
    assert len(claim(worker, 64)) == 5
    assert claim(worker, 64) == []


def test_a_crowd_in_one_project_does_not_delay_the_single_session_of_another(worker):
    """L2, A20: projects take turns, so it is in the first batch, whichever project comes first by id"""
    before, crowd, after = factories.config(), factories.config(), factories.config()
    bulk(crowd, 10_000, seconds=-3600, priority=-100)
    singles = [factories.due(config=config, priority=100).id for config in (before, after)]
    taken = claim(worker, 4)
    assert len(taken) == 4
    assert set(singles) <= set(taken)


def test_projects_are_dealt_out_in_rounds(worker):
    """L2: with room for six, three projects get two each, though one has waited longer"""
    configs = [factories.config() for _ in range(3)]
    for age, config in enumerate(configs, start=1):
        bulk(config, 10, seconds=-100 * age)
    taken = Session.objects.filter(pk__in=claim(worker, 6)).values_list("project_id", flat=True)
    assert sorted(taken) == sorted(config.project_id for config in configs for _ in range(2))


def test_by_id_only_the_named_ones_are_taken_and_only_if_due(worker):
    """L2: for tests and operators; one that is not due uses up no place"""
    idle, due, other, leased = factories.session(), factories.due(), factories.due(), factories.due()
    factories.leased(leased, factories.worker())
    assert claim(worker, 1, sessions=[idle.id, leased.id, due.id]) == [due.id]
    assert factories.reread(other).status == "queued"
    assert claim(worker, 1, sessions=[]) == []


@pytest.mark.parametrize("by_id", [False, True])
def test_a_session_with_a_lease_is_never_claimed_however_old_the_lease(worker, by_id):
    """L2, A14, C64, C74: only an end of the lease frees it, not a worker that is expired or dead"""
    holder = factories.worker(expires_in=-86_400, dead=True)
    session = factories.due()
    lease = factories.leased(session, holder)
    Lease.objects.filter(pk=lease.pk).update(acquired_at=factories.database_now(-86_400))
    named = {"sessions": [session.id]} if by_id else {}
    assert claim(worker, 10, **named) == []
    # Not even if a due time stands beside the lease, which no code of ours writes.
    Session.objects.filter(pk=session.pk).update(status="queued", wake_at=factories.database_now(-1))
    assert claim(worker, 10, **named) == []
    assert Lease.objects.get(session=session).worker_id == holder.pk


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("state", ["dead", "draining"])
def test_a_dead_or_draining_worker_gets_nothing(state, by_id):
    """L2, L5, L8"""
    worker = factories.worker(**{state: True})
    session = factories.due()
    assert claim(worker, 10, **({"sessions": [session.id]} if by_id else {})) == []
    after = factories.reread(session)
    assert (after.status, after.attempt) == ("queued", 0)


def test_an_active_worker_keeps_its_session_from_one_that_polls(worker):
    """A14: B claims nothing, and there is one lease"""
    session = factories.due()
    assert claim(worker) == [session.id]
    assert claim(factories.worker(), 10) == []
    assert Lease.objects.count() == 1


def test_a_busy_session_is_passed_over_and_the_next_one_taken(worker):
    """L2: SKIP LOCKED; the claim neither waits nor comes back empty-handed"""
    config = factories.config()
    busy = factories.due(config=config, priority=-1)
    free = factories.due(config=config)
    with holding("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", busy.id):
        assert claim(worker, 1) == [free.id]
    assert claim(worker, 1) == [busy.id]


@pytest.mark.parametrize("by_id", [False, True])
def test_what_was_claimed_between_the_look_and_the_lock_is_not_claimed_again(worker, by_id):
    """A30, L1: the claim has looked already and waits for its worker's row; meanwhile another one is faster"""
    session = factories.due()
    rival = factories.worker()
    named = {"sessions": [session.id]} if by_id else {}
    with holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", worker.pk):
        contender = Contender(lambda: claim(worker, 10, **named))
        wait_until_blocked()
        assert claim(rival, 10) == [session.id]
    assert contender.result() == []
    assert Lease.objects.get().worker_id == rival.pk
    assert factories.reread(session).attempt == 1


def test_a_worker_that_dies_while_its_claim_waits_gets_nothing(worker):
    """L2, L7: so no lease appears behind the back of whoever ends those of a dead worker"""
    factories.due()
    with holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", worker.pk) as reaper:
        contender = Contender(lambda: claim(worker, 10))
        wait_until_blocked()
        reaper.execute("UPDATE sessions_app_worker SET dead = true WHERE id = %s", [worker.pk])
    assert contender.result() == []
    assert not Lease.objects.exists()


@pytest.mark.parametrize("projects", [1, 3])
def test_two_that_claim_at_once_share_the_sessions_without_double_or_rest(projects):
    """L1, L2, A30: all are claimed once, and neither goes away empty"""
    for config in [factories.config() for _ in range(projects)]:
        bulk(config, 600 // projects)

    def claim_all(worker):
        taken: list[UUID] = []
        while batch := claim(worker, 7):
            taken += batch
        return taken

    workers = [factories.worker() for _ in range(2)]
    # Both stand at the door before either goes in: a slow start of one would leave it nothing.
    with holding("SELECT FROM sessions_app_worker FOR UPDATE"):
        contenders = [Contender(partial(claim_all, worker)) for worker in workers]
        wait_until_blocked(2)
    first, second = (contender.result(30) for contender in contenders)
    assert len(first) + len(second) == 600
    assert len(set(first) | set(second)) == 600
    assert first
    assert second
    assert set(Session.objects.values_list("attempt", flat=True)) == {1}


# --- what a claim costs ----------------------------------------------------------------------------------


def plan_of_a_claim(worker, *, generic: bool, max_running: int = 0) -> dict[str, Any]:
    """The plan of a claim as executed, and undone; with the plan made for any values, or for these."""
    names = ("worker", "limit", "look", "suspect_from", "max_running")
    sql = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", leases.claiming._CLAIM)
    with another_connection() as other:
        mode = "force_generic_plan" if generic else "force_custom_plan"
        other.execute(f"SET plan_cache_mode = {mode}".encode())
        other.execute(f"PREPARE claim (int, int, int, int, int) AS {sql}".encode())
        row = other.execute(
            (
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
                f"EXECUTE claim ({worker.pk}, 8, 24, 2, {max_running})"
            ).encode()
        ).fetchone()
        other.rollback()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def buffers(plan) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("crowd", ["idle", "backing off"])
def test_a_claim_costs_the_same_however_many_sessions_rest_or_wait(worker, crowd, generic):
    """L2, DESIGN: it reads the partial index and the rows it takes, whatever the planner thinks of the table"""
    config = factories.config()
    for priority in (0, 1):
        bulk(config, 10, priority=priority)
    before = buffers(plan_of_a_claim(worker, generic=generic))
    if crowd == "idle":
        bulk(config, 20_000, status="idle", seconds=None)
    else:
        bulk(config, 10_000, status="backing_off", seconds=3600)
        bulk(config, 10_000, status="backing_off", seconds=3600, priority=1)
    plan = plan_of_a_claim(worker, generic=generic)
    sessions = [node for node in nodes(plan) if node.get("Relation Name") == "sessions_app_session"]
    assert not [node for node in sessions if node["Node Type"] == "Seq Scan"]
    assert "session_due" in {node.get("Index Name") for node in sessions}
    # Some more pages for a deeper index and for room on other pages; a walk would be hundreds.
    assert buffers(plan) <= before + 150


def test_a_claim_of_nothing_costs_the_same_however_many_sessions_wait(worker):
    """L2: the poll of an idle worker"""
    config = factories.config()
    bulk(config, 20_000, status="backing_off", seconds=3600)
    assert buffers(plan_of_a_claim(worker, generic=True)) <= 30
