"""A failed model call whose time has come: who makes it again, and what keeps it from being made."""

from typing import Any
from uuid import UUID

import pytest

from sessions_app import control, leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import Lease, ModelCall, Session, Turn
from tests import factories
from tests.acceptance import agents
from tests.sessions_app.engine.in_process import working
from tests.staging import Contender, eventually, holding, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def retry(settings: Any) -> Session:
    """A session whose first model call failed and whose retry is due now; its worker is gone."""
    session = agents.start({"error": {"status": 500}}, {"text": "There."})
    with working(settings, retry_base=60.0, retry_max=60.0):
        eventually(lambda: Session.objects.filter(pk=session, status="backing_off", lease=None).exists())
    past = factories.database_now(-1)
    Session.objects.filter(pk=session).update(retry_at=past, wake_at=past)
    return agents.row(session)


def claim(session: Session, worker: int) -> list[UUID]:
    return [claimed.session for claimed in leases.claim(worker=worker, limit=1, sessions=[session.pk])]


def states(session: Session) -> list[str]:
    calls = ModelCall.objects.filter(session=session).order_by("started_at")
    return list(calls.values_list("state", flat=True))


def test_two_that_claim_a_retry_at_once_make_it_once(settings: Any, retry: Session) -> None:
    """A31: one gets it, whoever is first at the session's row; one new model call, one answer, try 2."""
    workers = [factories.worker().pk for _ in range(2)]
    with holding("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", retry.pk):
        # Claims by id wait for nobody; both see the due retry and the busy row.
        assert [claim(retry, worker) for worker in workers] == [[], []]
    contenders = [Contender(lambda worker=worker: claim(retry, worker)) for worker in workers]
    assert sorted(contender.result() for contender in contenders) == [[], [retry.pk]]
    assert Lease.objects.count() == 1
    assert leases.force_release(retry.pk)
    with working(settings) as first, working(settings) as second:
        first(retry.pk)
        second(retry.pk)
    assert states(retry) == ["failed", "succeeded"]
    assert agents.said(retry.pk) == ["There."]


@pytest.mark.parametrize("stop", [control.cancel, control.archive])
def test_a_retry_is_not_made_once_somebody_has_stopped_its_turn(
    settings: Any, retry: Session, stop: Any
) -> None:
    """A32: the worker that claims it has looked already when the stop commits; it gets nothing, and none does later."""
    worker = factories.worker()
    with holding("SELECT FROM sessions_app_worker WHERE id = %s FOR UPDATE", worker.pk):
        contender = Contender(lambda: claim(retry, worker.pk))
        wait_until_blocked()
        stop(session=retry.pk, actor=SYSTEM)
    assert contender.result() == []
    row = agents.row(retry.pk)
    assert (row.turn_id, row.wake_at, row.retry_at) == (None, None, None)
    with working(settings) as rested:
        other = agents.start({"text": "I work."})
        rested(other)
    assert states(retry) == ["failed"]
    assert agents.said(retry.pk) == []
    assert Turn.objects.get(session=retry).status == "cancelled"
