"""Subagents and the question at a limit, as clients see them."""

import pytest

from sessions_app import children, entries, ids, leases, session_service, steps
from sessions_app.engine.limits import Reached
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import Session
from sessions_app.session_service import Parent
from tests import factories
from tests.sessions_app.api.conftest import Api
from tools_app.models import Approval, ChildWait, ToolCallState, ToolClass

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent(api: Api) -> Session:
    """Held in the middle of a turn."""
    return factories.running(factories.worker(), config=factories.config(project=api.project))


def child_of(parent: Session) -> Session:
    with leases.fence(parent.pk, worker=parent.lease.worker_id, attempt=parent.attempt) as row:
        child = session_service.start_session(
            project=row.project_id,
            actor=children.actor_of(row),
            config=row.config_id,
            name="helper",
            child_of=Parent(row, ids.new_id()),
        )
        row.save()
    return child


def named(session: Session) -> str:
    return ids.encode("ses", session.pk)


def test_a_subagent_shows_its_parent_and_a_parent_lists_its_subagents(api: Api, parent: Session) -> None:
    """T8: each is a session like any other"""
    child = child_of(parent)
    assert api.get(f"/sessions/{named(child)}").json()["parent"] == named(parent)
    assert api.get(f"/sessions/{named(parent)}").json()["parent"] is None
    listed = api.get(f"/sessions?parent={named(parent)}").json()["data"]
    assert [(one["id"], one["name"]) for one in listed] == [(named(child), "helper")]


def test_a_waiting_parent_says_for_whom_and_its_cancel_reaches_them(api: Api, parent: Session) -> None:
    """S7, T8: by one request, in one transaction"""
    child = child_of(parent)
    call = factories.tool_call(
        factories.reread(parent), state=ToolCallState.WAITING, tool_class=ToolClass.INTERNAL
    )
    ChildWait.objects.create(tool_call=call, children=[str(child.pk)])
    leases.end_lease(parent.pk, reason="released")
    shown = api.get(f"/sessions/{named(parent)}").json()
    assert shown["status"] == "waiting"
    (wait,) = shown["waiting_on"]
    assert (wait["kind"], wait["id"]) == ("child", named(child))
    factories.open_turn(factories.reread(child))
    assert api.post(f"/sessions/{named(parent)}/cancel").status_code == 200
    assert factories.reread(child).last_turn.status == "cancelled"
    kinds = [one["kind"] for one in api.get(f"/sessions/{named(parent)}/entries").json()["data"]]
    assert kinds[-3:] == ["tool_result", "turn_ended", "child_ended"]


@pytest.mark.django_db(transaction=True)
def test_the_question_at_a_limit_is_decided_like_any_approval(api: Api, parent: Session) -> None:
    """R8, H6"""
    ask = steps.LimitAsk(id=ids.new_id(), limit="turn.tokens", used="120", of="100")
    reached = Reached(ask.limit, ask.used, ask.of)
    then = steps.Then(entries=(entries.limit_asked(ask.id, reached, turn=parent.turn_id),), limit_ask=ask)
    step = steps.StepWrite(session=parent.pk, attempt=parent.attempt, work_rev=parent.work_rev, then=then)
    steps.commit_steps(parent.lease.worker_id, [step])
    leases.end_lease(parent.pk, reason="released")
    (wait,) = api.get(f"/sessions/{named(parent)}").json()["waiting_on"]
    assert (wait["kind"], wait["id"]) == ("limit", ids.encode("apr", ask.id))
    (shown,) = api.get("/approvals?state=open").json()["data"]
    assert (shown["name"], shown["tool_call"]) == ("limit", None)
    assert shown["arguments"] == {"limit": "turn.tokens", "used": "120", "of": "100"}
    answer = api.post(f"/approvals/{wait['id']}/decision", {"decision": "allow"})
    assert answer.status_code == 200
    after = factories.reread(parent)
    assert (after.status, after.limit_ask) == ("queued", None)
    assert after.limit_grants == {"turn": str(parent.turn_id), "limits": {"turn.tokens": 1}}
    assert Approval.objects.get(pk=ask.id).state == "allowed"


def test_sessions_started_over_the_api_stand_alone(api: Api) -> None:
    """T8: only an agent's own call makes a subagent"""
    config = factories.config(project=api.project)
    alone = session_service.start_session(project=api.project.pk, actor=SYSTEM, config=config.pk)
    assert (alone.parent_id, alone.tree) == (None, None)
