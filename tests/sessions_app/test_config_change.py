"""Another config for a session: an entry, and the next model call (I7)."""

from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import control, ids, steps
from sessions_app.control import ConfigMoved
from sessions_app.engine import following
from sessions_app.engine import state as states
from sessions_app.errors import NotFound, SessionArchived
from sessions_app.models import AgentConfig, Entry, ModelCall, Session
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, holding, wait_until_blocked
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


def another(session: Session) -> AgentConfig:
    document = {"instructions": "Be other.", "model": {"provider": "scripted", "name": "other"}}
    return factories.config(document=document, project=session.project)


def change(session: Session, config: AgentConfig, **values: Any) -> Session:
    return control.change_config(session=session.pk, config=config.pk, actor=ACTOR, **values)


def test_on_an_idle_session_it_is_an_entry_and_no_work() -> None:
    """A65's event, A64: no turn, no model call, and a stale due time is cleaned."""
    session = factories.session(wake_at=factories.database_now(-5))
    old, new = session.config, another(session)
    change(session, new)
    row = factories.reread(session)
    assert (row.config_id, row.status, row.wake_at, row.turn_id) == (new.pk, "idle", None, None)
    assert row.work_rev == 1
    entry = Entry.objects.get()
    assert (entry.kind, entry.actor) == ("config_changed", ACTOR)  # I8
    assert entry.data == {"config": ids.encode("cfg", new.pk), "previous": ids.encode("cfg", old.pk)}


def test_the_config_it_has_already_is_no_change() -> None:
    session = factories.session()
    change(session, session.config)
    assert not Entry.objects.exists()
    assert factories.reread(session).work_rev == 0


def test_who_expects_another_config_gets_a_conflict_and_changes_nothing() -> None:
    """A65, I7: with the session as it is."""
    session = factories.session()
    mine, theirs = another(session), another(session)
    expected = session.config_id
    change(session, theirs, expected_config=expected)
    with pytest.raises(ConfigMoved) as caught:
        change(session, mine, expected_config=expected)
    assert caught.value.status == 409
    assert caught.value.data["current"].config_id == theirs.pk
    assert factories.reread(session).config_id == theirs.pk
    assert Entry.objects.count() == 1


def test_a_config_of_another_project_is_not_there() -> None:
    session = factories.session()
    for config in (factories.config(), AgentConfig(pk=ids.new_id())):
        with pytest.raises(NotFound):
            change(session, config)
    with pytest.raises(NotFound):
        control.change_config(session=ids.new_id(), config=session.config_id, actor=ACTOR)
    archived = factories.session(status="archived", archived_at=factories.database_now())
    with pytest.raises(SessionArchived):
        change(archived, another(archived))


def test_a_retry_keeps_its_time_and_runs_under_the_new_config() -> None:
    """A62, I7"""
    worker = factories.worker()
    retry_at = factories.database_now(60)
    session = factories.session(status="backing_off", retry_at=retry_at, wake_at=retry_at)
    factories.open_turn(session)
    new = another(session)
    change(session, new)
    row = factories.reread(session)
    assert (row.status, row.wake_at, row.retry_at) == ("backing_off", retry_at, retry_at)
    Session.objects.filter(pk=session.pk).update(retry_at=factories.database_now(-1))
    factories.leased(factories.reread(session), worker)
    state = states.load({session.pk: 1})[session.pk]
    assert (state.config_id, state.document) == (new.pk, new.document)
    course = following.follow(state, may_act=True)
    assert course.then.model_call is not None
    assert course.then.model_call.config == new.pk


def test_an_open_question_stays_open() -> None:
    """I7"""
    session = factories.session(status="waiting")
    factories.open_turn(session)
    call = factories.tool_call(session, state="waiting", tool_class="human")
    change(session, another(session))
    assert ToolCall.objects.get(pk=call.pk).state == "waiting"
    assert factories.reread(session).status == "waiting"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["change", "call"])
def test_a_call_is_sent_under_one_config_whichever_comes_first(first: str) -> None:
    """A61, A62, R1: the row of a call names the config that it is sent with, also in a race with a change."""
    worker = factories.worker()
    session = factories.due()
    old, new = session.config_id, another(session)
    factories.leased(session, worker)

    def planned() -> steps.StepWrite:
        row = factories.reread(session)
        state = states.load({row.pk: row.attempt})[row.pk]
        course = following.follow(state, may_act=True)
        assert course.then.model_call is not None
        return steps.StepWrite(session=row.pk, attempt=row.attempt, work_rev=state.work_rev, then=course.then)

    step = planned()
    acts: dict[str, Callable[[], Any]] = {
        "change": lambda: change(session, new),
        "call": lambda: steps.commit_steps(worker.pk, [step]),
    }
    second = "call" if first == "change" else "change"
    with holding(LOCK, session.pk):
        contenders = {first: Contender(acts[first])}
        wait_until_blocked()
        contenders[second] = Contender(acts[second])
        wait_until_blocked(2)
    contenders["change"].result()
    (result,) = contenders["call"].result()
    assert result.moved == (first == "change")
    if first == "change":
        assert not ModelCall.objects.exists()
        (result,) = steps.commit_steps(worker.pk, [planned()])
        assert not result.moved
    assert ModelCall.objects.get().config_id == (new.pk if first == "change" else old)
    assert factories.reread(session).config_id == new.pk
