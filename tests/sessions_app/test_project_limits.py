"""What a project may run at once, held by the claim itself, and what that leaves to others."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from sessions_app import leases, projects, wakeups
from sessions_app.errors import NotFound
from sessions_app.models import AgentConfig, Lease, Project, Session
from tests import factories
from tests.sessions_app.test_claims import buffers, bulk, nodes, plan_of_a_claim
from tests.staging import Contender, holding, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)


def limited(max_running: int | None, *, due: int = 5) -> AgentConfig:
    """A config of a project with this limit and so many due sessions."""
    config = factories.config()
    Project.objects.filter(pk=config.project_id).update(max_running=max_running)
    bulk(config, due)
    return config


def claim(limit: int = 64) -> list[UUID]:
    return [claimed.session for claimed in leases.claim(worker=factories.worker().pk, limit=limit)]


def running(config: AgentConfig) -> int:
    return Lease.objects.filter(session__project=config.project_id).count()


@pytest.fixture
def default_limit(settings: Any) -> Callable[[int], None]:
    def set_to(value: int) -> None:
        settings.TENURE = dataclasses.replace(settings.TENURE, project_max_running=value)

    return set_to


# --- how many --------------------------------------------------------------------------------------------


def test_a_claim_takes_no_more_than_the_project_has_places() -> None:
    """The rest stays due, as it was, and is taken as places become free."""
    config = limited(3)
    assert len(claim()) == 3
    assert claim() == []
    rest = Session.objects.filter(status="queued")
    assert rest.count() == 2
    assert set(rest.values_list("attempt", flat=True)) == {0}
    for free in (1, 2):
        held = Lease.objects.order_by("pk").first()
        assert held is not None
        leases.release(held.pk, worker=held.worker_id, attempt=held.attempt)
        assert len(claim()) == 1, free
    assert running(config) == 3


@pytest.mark.parametrize(
    ("own", "default", "taken"),
    [(None, 0, 5), (None, 2, 2), (0, 2, 5), (1, 2, 1), (4, 2, 4), (4, 0, 4)],
)
def test_the_projects_own_number_goes_before_the_default_and_zero_is_any(
    default_limit: Callable[[int], None], own: int | None, default: int, taken: int
) -> None:
    default_limit(default)
    limited(own)
    assert len(claim()) == taken


def test_within_the_limit_priority_and_due_time_decide() -> None:
    """L2"""
    config = limited(2)
    bulk(config, 1, priority=-5, seconds=-1)
    first = Session.objects.get(priority=-5)
    taken = claim()
    assert len(taken) == 2
    assert first.pk in taken


def test_a_lowered_limit_lets_go_on_what_runs() -> None:
    config = limited(4)
    claim()
    Project.objects.filter(pk=config.project_id).update(max_running=1)
    assert claim() == []
    assert running(config) == 4


def test_places_are_told_to_the_worker() -> None:
    """So that it rings when one becomes free."""
    limited(3)
    limited(None, due=2)
    taken = leases.claim(worker=factories.worker().pk, limit=64)
    assert sorted(claimed.limited for claimed in taken) == [False, False, True, True, True]


def test_by_id_the_limit_does_not_count() -> None:
    """L2: for tests and operators"""
    limited(1)
    ids = list(Session.objects.values_list("pk", flat=True))
    taken = leases.claim(worker=factories.worker().pk, limit=10, sessions=ids)
    assert len(taken) == 5


# --- others ----------------------------------------------------------------------------------------------


def test_a_project_at_its_limit_takes_no_room_from_others() -> None:
    """L2: what it can't run is not even looked at."""
    limited(1, due=500)
    other = limited(None, due=3)
    taken = Session.objects.filter(pk__in=claim(4)).values_list("project_id", flat=True)
    assert sorted(taken).count(other.project_id) == 3
    assert len(taken) == 4


def test_a_crowd_with_places_does_not_delay_the_single_session_of_another() -> None:
    """L2: 10,000 due sessions of one project; the other's is in the first batch."""
    limited(5_000, due=10_000)
    other = limited(1, due=1)
    assert running(other) == 0
    claim(2)
    assert running(other) == 1


# --- races -----------------------------------------------------------------------------------------------


def test_a_claim_that_counted_before_another_took_the_places_takes_none() -> None:
    """The loser has looked (its snapshot shows both places free) and waits for its worker's row; then all commits.

    The winner takes sessions that are newer than that snapshot, so those that the loser found are still due.
    """
    config = limited(2)
    slow = factories.worker()
    with holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", slow.pk):
        contender = Contender(lambda: leases.claim(worker=slow.pk, limit=64))
        wait_until_blocked()
        bulk(config, 2, priority=-5)
        assert len(claim()) == 2
    assert contender.result() == []
    assert set(Lease.objects.values_list("session__priority", flat=True)) == {-5}
    assert running(config) == 2


def test_a_claim_that_lost_a_race_for_one_place_still_takes_the_other() -> None:
    """It finds the project's count moved, and looks again with a new snapshot."""
    config = limited(2)
    slow = factories.worker()
    with holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", slow.pk):
        contender = Contender(lambda: leases.claim(worker=slow.pk, limit=64))
        wait_until_blocked()
        bulk(config, 1, priority=-5)
        assert len(claim(1)) == 1
    assert len(contender.result()) == 1
    assert running(config) == 2


def test_a_claim_passes_over_a_project_whose_places_are_being_given_away_and_serves_others() -> None:
    """Nobody waits for a project's row: not a claim, and not the start of a session."""
    busy, other = limited(2), limited(2)
    with holding("SELECT FROM sessions_app_project WHERE id = %s FOR NO KEY UPDATE", busy.project_id):
        assert len(claim()) == 2
        assert (running(busy), running(other)) == (0, 2)
        factories.session(config=busy)
    assert len(claim()) == 2
    assert running(busy) == 2


def test_many_that_claim_at_once_never_exceed_the_limit_and_use_it_up() -> None:
    """Four claimers on one project with seven places, each taking and giving back, watched all the time."""
    config = limited(7, due=0)
    for priority in range(6):
        bulk(config, 10, priority=priority)
    highest = 0

    def work() -> int:
        nonlocal highest
        worker = factories.worker()
        done = 0
        for _ in range(40):
            for taken in leases.claim(worker=worker.pk, limit=3):
                highest = max(highest, running(config))
                Session.objects.filter(pk=taken.session).update(name="done")
                leases.release(taken.session, worker=worker.pk, attempt=taken.attempt)
                done += 1
        return done

    contenders = [Contender(work) for _ in range(4)]
    assert sum(contender.result(60) for contender in contenders) == 60
    assert 0 < highest <= 7
    assert running(config) == 0


# --- places that become free -----------------------------------------------------------------------------


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    rung: list[str] = []
    monkeypatch.setattr(wakeups, "ring_due", lambda: rung.append("due"))
    return rung


def test_a_new_limit_wakes_the_workers(bell: list[str]) -> None:
    config = limited(1)
    claim()
    call_command("setproject", project=config.project.name, max_running=3)
    assert bell == ["due"]
    assert len(claim()) == 2
    projects.set_max_running(name=config.project.name, max_running=None)
    assert len(claim()) == 2


def test_the_end_of_a_dead_worker_wakes_the_others(bell: list[str]) -> None:
    """Its sessions may rest now; the places they held are free all the same."""
    worker = factories.worker()
    session = factories.session()
    factories.leased(session, worker)
    leases.end_leases_of(worker=worker.pk, reason="crash")
    assert factories.reread(session).status == "idle"
    assert bell == ["due"]


@pytest.mark.parametrize("wrong", ["-1", "many", "1.5", "9999999999"])
def test_a_limit_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(CommandError):
        call_command("setproject", "--max-running", wrong)


def test_a_limit_for_no_project() -> None:
    with pytest.raises(NotFound):
        projects.set_max_running(name="nobody's", max_running=1)
    with pytest.raises(CommandError):
        call_command("setproject", project="nobody's", max_running=1)


# --- what it costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("crowd", ["idle", "due", "running elsewhere"])
def test_a_limit_costs_the_same_however_many_sessions_rest_wait_or_run(crowd: str, generic: bool) -> None:
    """L2: it counts what runs in the project, and at most as many as may run, by an index of only those."""
    worker = factories.worker()
    config = limited(20, due=10)
    bulk(config, 20, status="running", seconds=None)
    before = buffers(plan_of_a_claim(worker, generic=generic))
    if crowd == "idle":
        bulk(config, 20_000, status="idle", seconds=None)
    elif crowd == "due":
        bulk(config, 20_000)
    else:
        bulk(factories.config(), 20_000, status="running", seconds=None)
    plan = plan_of_a_claim(worker, generic=generic)
    sessions = [node for node in nodes(plan) if node.get("Relation Name") == "sessions_app_session"]
    assert not [node for node in sessions if node["Node Type"] == "Seq Scan"]
    assert "session_running" in {node.get("Index Name") for node in sessions}
    assert buffers(plan) <= before + 150


def test_a_claim_is_one_statement_whether_or_not_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second round trip: only a race for the last places looks again."""
    limited(2)
    worker = factories.worker()
    sent: list[Any] = []
    original = leases.claiming.hot_cursor

    @contextmanager
    def counting() -> Iterator[Any]:
        with original() as cursor:

            def execute(*args: Any) -> None:
                sent.append(args)
                cursor.execute(*args)

            yield SimpleNamespace(execute=execute, fetchall=cursor.fetchall)

    monkeypatch.setattr(leases.claiming, "hot_cursor", counting)
    assert len(leases.claim(worker=worker.pk, limit=10)) == 2
    assert leases.claim(worker=worker.pk, limit=10) == []
    assert len(sent) == 2
