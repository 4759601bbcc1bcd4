"""Allowances for later calls: what they cover, how long, and how they are taken back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from sessions_app import ids
from sessions_app.errors import Invalid, NotFound
from sessions_app.models import Session
from sessions_app.tool_port import Ask, Call
from tests import factories
from tests.acceptance import agents
from tests.factories import ACTOR
from tests.sessions_app.engine.in_process import working
from tools_app import approvals, remembered
from tools_app.models import Approval, RememberedDecision, ToolCall
from tools_app.remembered import Asked

pytestmark = pytest.mark.django_db

BOB = {"kind": "user", "id": "usr_bob", "name": "Bob"}
PATTERN = {"file": {"starts_with": ["report"]}}


def allowed(
    session: Session, scope: str = "always", *, pattern: Any = None, **columns: Any
) -> RememberedDecision:
    """A decision that a person took and let be remembered."""
    approval = factories.approval(session, pattern=pattern, **columns)
    approvals.decide(approval=approval.pk, decision="allow", remember=scope, actor=ACTOR)
    return RememberedDecision.objects.latest("id")


def found(
    session: Session, arguments: dict[str, Any], *, tool: str = "dev_append", pattern: Any = None
) -> UUID | None:
    asked = Asked(tool, arguments, pattern)
    (row,) = remembered.matching(project=session.project_id, session=session.pk, asked=[asked])
    return row and row.pk


@pytest.fixture
def session() -> Session:
    return factories.session()


@pytest.fixture
def sibling(session: Session) -> Session:
    """Another session of the project."""
    return factories.session(config=session.config)


def test_a_decision_is_remembered_with_who_took_it_and_for_what(session: Session) -> None:
    """T7"""
    row = allowed(session, arguments={"file": "a"})
    approval = Approval.objects.get()
    assert (row.project_id, row.session_id, row.tool) == (session.project_id, None, "dev_append")
    assert (row.arguments, row.pattern, row.approval) == ({"file": "a"}, None, approval)
    assert (row.created_by, row.expires_at, row.revoked_at) == (ACTOR, None, None)
    with_pattern = allowed(session, arguments={"file": "report"}, pattern=PATTERN)
    assert (with_pattern.arguments, with_pattern.pattern) == (None, PATTERN)


def test_nothing_is_remembered_unless_it_was_asked_for(session: Session) -> None:
    """T7: allowed once is allowed once."""
    approval = factories.approval(session)
    approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
    assert not RememberedDecision.objects.exists()


def test_without_a_pattern_only_equal_arguments_are_like_it(session: Session) -> None:
    """T7, C99: the same value in another form is equal, another value never."""
    row = allowed(session, arguments={"file": "a", "delay": 1})
    assert found(session, {"delay": 1.0, "file": "a"}) == row.pk
    assert found(session, {"file": "a", "delay": 1}, pattern=PATTERN) == row.pk
    assert found(session, {"file": "a", "delay": True}) is None
    assert found(session, {"file": "a", "delay": 2}) is None
    assert found(session, {"file": "a"}) is None
    assert found(session, {"file": "a", "delay": 1}, tool="dev_lookup") is None


def test_a_pattern_answers_calls_that_the_same_pattern_asks_about(session: Session) -> None:
    """T7: not those of another rule, however alike, and not those that it does not surely match."""
    row = allowed(session, arguments={"file": "report"}, pattern=PATTERN)
    assert found(session, {"file": "report 2"}, pattern={"file": {"starts_with": ["report"]}}) == row.pk
    assert found(session, {"file": "report"}, pattern={"file": {"starts_with": ["rep"]}}) is None
    assert found(session, {"file": "report"}, pattern={"file": {"equals": "report"}}) is None
    assert found(session, {"file": "report"}) is None
    assert found(session, {"file": "report"}, pattern=PATTERN, tool="dev_lookup") is None


def test_always_covers_the_project_and_session_the_session(session: Session, sibling: Session) -> None:
    """T7"""
    one, always = (
        allowed(session, "session", arguments={"file": "a"}),
        allowed(session, arguments={"file": "b"}),
    )
    assert one.session_id == session.pk
    assert found(session, {"file": "a"}) == one.pk
    assert found(sibling, {"file": "a"}) is None
    assert found(sibling, {"file": "b"}) == always.pk
    assert found(factories.session(), {"file": "b"}) is None


def test_it_holds_until_it_expires(session: Session, tenure: Callable[..., None]) -> None:
    """T7: as long as the setting says, by the database's clock."""
    tenure(remember_for=3600.0)
    row = allowed(session, arguments={"file": "a"})
    assert factories.database_now(3500) < row.expires_at < factories.database_now(3700)
    assert found(session, {"file": "a"}) == row.pk
    RememberedDecision.objects.update(expires_at=factories.database_now(-0.001))
    assert found(session, {"file": "a"}) is None


def test_each_decision_may_have_its_own_time(session: Session) -> None:
    """T7"""
    approval = factories.approval(session)
    with transaction.atomic():
        row = remembered.remember(approval=approval, scope="always", actor=ACTOR, expires_after=60)
    assert factories.database_now(50) < row.expires_at < factories.database_now(70)


def test_a_revoked_one_holds_no_more(session: Session, sibling: Session) -> None:
    """T7: with all that say the same, and none that says something else."""
    first, second = allowed(session, arguments={"file": "a"}), allowed(session, arguments={"file": "a"})
    others = [
        allowed(session, "session", arguments={"file": "a"}),
        allowed(session, arguments={"file": "b"}),
        allowed(session, arguments={"file": "a"}, name="other"),
        allowed(factories.session(), arguments={"file": "a"}),
    ]
    assert remembered.revoke(remembered=[second.pk], actor=BOB) == 2
    assert remembered.revoke(remembered=[second.pk], actor=ACTOR) == 0
    first.refresh_from_db()
    assert (first.revoked_by, first.revoked_at is not None) == (BOB, True)
    assert set(RememberedDecision.objects.filter(revoked_at=None)) == set(others)
    assert found(sibling, {"file": "a"}) is None
    assert found(session, {"file": "a"}) == others[0].pk
    assert remembered.revoke(remembered=[], actor=BOB) == 0


def test_rows_are_listed_by_what_became_of_them(session: Session) -> None:
    """T7"""
    rows = {state: allowed(session, arguments={"file": state}) for state in ("holds", "expired", "revoked")}
    RememberedDecision.objects.filter(pk=rows["expired"].pk).update(expires_at=factories.database_now(-1))
    remembered.revoke(remembered=[rows["revoked"].pk], actor=BOB)
    everything = RememberedDecision.objects.all()
    assert {state: [*remembered.in_state(everything, state)] for state in rows} == {
        state: [row] for state, row in rows.items()
    }


def test_a_row_of_another_project_is_not_there(session: Session) -> None:
    """T7"""
    row = allowed(session)
    assert remembered.get(project=session.project_id, remembered=row.pk) == row
    with pytest.raises(NotFound):
        remembered.get(project=factories.project().pk, remembered=row.pk)


@pytest.mark.parametrize(
    "columns",
    [
        {"pattern": None, "arguments": None},
        {"pattern": {"a": 1}, "arguments": {}},
        {"arguments": {}, "revoked_by": BOB},
        {"arguments": {}, "revoked_at": "2030-01-01T00:00:00Z"},
    ],
)
def test_the_database_refuses_half_a_row(session: Session, columns: dict[str, Any]) -> None:
    """T7"""
    values = {"project_id": session.project_id, "tool": "t", "key": "k", "created_by": ACTOR}
    with pytest.raises(IntegrityError), transaction.atomic():
        RememberedDecision.objects.create(**values | columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"tool": "other"},
        {"session": None},
        {"arguments": {"file": "b"}},
        {"key": "0" * 64},
        {"expires_at": None},
        {"expires_at": "2100-01-01T00:00:00Z"},
    ],
)
def test_the_database_refuses_to_widen_what_is_remembered(
    session: Session, tenure: Callable[..., None], columns: dict[str, Any]
) -> None:
    """T7: a row is what a person allowed."""
    tenure(remember_for=3600.0)
    row = allowed(session, "session", arguments={"file": "a"})
    with pytest.raises(IntegrityError, match="widening a remembered decision refused"), transaction.atomic():
        RememberedDecision.objects.filter(pk=row.pk).update(**columns)


def test_the_database_refuses_to_take_a_revocation_back(session: Session) -> None:
    """T7"""
    row = allowed(session)
    remembered.revoke(remembered=[row.pk], actor=BOB)
    with pytest.raises(IntegrityError, match="changing a revocation refused"), transaction.atomic():
        RememberedDecision.objects.filter(pk=row.pk).update(revoked_at=None, revoked_by=None)


def test_the_database_refuses_to_change_what_an_approval_would_let_be_remembered(session: Session) -> None:
    """T7"""
    approval = factories.approval(session, pattern=PATTERN)
    with pytest.raises(IntegrityError, match="changing what is asked refused"), transaction.atomic():
        Approval.objects.filter(pk=approval.pk).update(pattern={"file": {"matches": ".*"}})


def test_only_decisions_on_calls_are_remembered(session: Session) -> None:
    """T7: going on beyond a limit is decided anew each time."""
    approval = factories.approval(session)
    approval.tool_call = None
    with pytest.raises(Invalid), transaction.atomic():
        remembered.remember(approval=approval, scope="always", actor=ACTOR)


def asking(session: Session, *, position: int = 0, tool_class: str = "outside", **arguments: Any) -> Call:
    """A call of a reply that is about to be stored."""
    return Call(
        id=ids.new_id(),
        session=session.pk,
        turn=ids.new_id(),
        call_id="call_1",
        name="dev_append",
        tool_class=tool_class,
        rerun_safe=False,
        arguments=arguments,
        position=position,
        state="awaiting_approval",
        deadline=60.0,
        ask=Ask(id=ids.new_id(), kind="approval", data={"rule": None}, then_deadline=5.0),
    )


def test_a_call_that_is_allowed_already_goes_on_and_its_siblings_ask(
    session: Session, django_assert_num_queries: Callable[[int], Any]
) -> None:
    """T7, C99: one query for all calls of a reply."""
    allowed(session, arguments={"file": "a"})
    calls = [
        asking(session, file="a"),
        asking(session, file="b"),
        asking(session, file="a", tool_class="custom"),
    ]
    with django_assert_num_queries(1):
        first, second, third = remembered.recall(calls, project=session.project_id, session=session.pk)
    assert (first.state, first.ask, first.deadline) == ("running", None, 5.0)
    assert second == calls[1]
    assert (third.state, third.ask) == ("waiting", None)
    with django_assert_num_queries(0):
        assert remembered.recall([first], project=session.project_id, session=session.pk) == [first]


def test_a_form_is_put_to_people_when_asking_it_is_allowed(session: Session) -> None:
    """T7"""
    form = {"questions": [{"text": "Which?"}]}
    allowed(session, arguments=form)
    call = asking(session, tool_class="human", **form)
    (gone,) = remembered.recall([call], project=session.project_id, session=session.pk)
    assert gone.state == "waiting"
    assert gone.ask is not None
    assert gone.ask.kind == "question"


@pytest.mark.django_db(transaction=True)
def test_an_agent_does_not_ask_again_for_what_is_remembered(settings: Any, tmp_path: Path) -> None:
    """T7, C99: for the pattern of the rule; a revocation makes it ask again, and a rule that denies is stronger."""
    rules = [
        {"tool": "dev_append", "arguments": {"file": {"equals": "report-x"}}, "then": "deny"},
        {"tool": "dev_append", "arguments": {"file": {"starts_with": ["report"]}}, "then": "ask"},
    ]
    a, b, x, d = (agents.call("dev_append", file=f"report-{letter}") for letter in "abxd")
    replies = [{"tool_calls": [a]}, {"tool_calls": [b, x]}, {"text": "Done."}, {"tool_calls": [d]}]
    session = agents.start(*replies, permissions=rules)
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        assert rested(session).status == "waiting"
        first = Approval.objects.get()
        assert first.pattern == {"file": {"starts_with": ["report"]}}
        approvals.decide(approval=first.pk, decision="allow", remember="session", actor=ACTOR)
        assert rested(session).status == "idle"
        assert agents.said(session) == ["Done."]
        remembered.revoke(remembered=[RememberedDecision.objects.get().pk], actor=BOB)
        agents.say(session, "Once more.")
        assert rested(session).status == "waiting"
    assert Approval.objects.get(state="open").arguments == {"file": "report-d"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report-a", "report-b"]
    outcomes = [call.outcome for call in ToolCall.objects.order_by("id")]
    assert outcomes == ["succeeded", "succeeded", "denied", None]


def test_a_decision_on_a_limit_that_is_to_be_remembered_is_refused_as_a_whole(session: Session) -> None:
    """T7: nothing of it is stored."""
    approval = Approval.objects.create(
        project_id=session.project_id,
        session=session,
        turn=factories.open_turn(session),
        name="limit",
        arguments={},
        digest="0" * 64,
    )
    with pytest.raises(Invalid):
        approvals.decide(approval=approval.pk, decision="allow", remember="always", actor=ACTOR)
    approval.refresh_from_db()
    assert approval.state == "open"
