"""R8, `on_limit: ask`: people let a turn go on at a limit, or end it, with a real worker in this process."""

from datetime import timedelta

import pytest
from django.db.models import F

from sessions_app import configs, control, ids, inputs, invariants, profiles, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.errors import Invalid
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, Lease, Session, SessionStatus, TreeBudget, Turn
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.staging import eventually
from tools_app import approvals, questions
from tools_app.models import Approval, ApprovalState, Question

pytestmark = pytest.mark.django_db(transaction=True)

ANN = {"kind": "user", "id": "usr_ann", "name": "Ann"}
LABEL = {"tool_calls": [{"name": "set_label", "arguments": {"key": "a", "value": "b"}}]}


TOOLS = {"ask_user": {}, "set_label": {}}


def text(words):
    return [{"type": "text", "text": words}]


def document(*replies, limits, on_limit="ask", **more):
    return {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "limited"},
        "script": {"replies": list(replies)},
        "tools": {"set_label": {}, "start_subagent": {}},
        "limits": limits | {"on_limit": on_limit},
    } | more


def start(*replies, project=None, **parts):
    project = project or factories.project().pk
    config = configs.create_config(project=project, document=document(*replies, **parts)).row
    return session_service.start_session(
        project=project, actor=SYSTEM, config=config.pk, input=NewInput(content=text("go"), actor=SYSTEM)
    ).pk


def asked(session):
    """The open approval of a session that waits for it."""
    eventually(
        lambda: Session.objects.filter(pk=session, status=SessionStatus.WAITING, lease=None).first(),
        within=15,
    )
    return Approval.objects.get(session=session, state=ApprovalState.OPEN)


def rests(session):
    return eventually(
        lambda: Session.objects.filter(pk=session, status="idle", lease=None).first(), within=15
    )


def ends(session):
    rows = Turn.objects.filter(session_id=session).order_by("number")
    return [(row.status, row.reason) for row in rows]


def kinds(session):
    return list(Entry.objects.filter(session_id=session).order_by("seq").values_list("kind", flat=True))


def test_a_turn_asks_at_its_limit_and_goes_on_with_as_much_again(settings):
    """R8, L10: nobody holds it while it waits; the approval names the limit"""
    session = start(LABEL, LABEL, LABEL, {"text": "Done."}, limits={"turn": {"model_calls": 2}})
    with working(settings):
        approval = asked(session)
        row = factories.reread(session)
        (wait,) = row.waiting_on
        assert (wait["kind"], wait["id"]) == ("limit", ids.encode("apr", approval.pk))
        assert wait["since"].endswith("Z"), "a time as everywhere in the API"
        assert (approval.name, approval.tool_call_id, approval.rule) == ("limit", None, None)
        assert approval.arguments == {"limit": "turn.model_calls", "used": "2", "of": "2"}
        approvals.decide(approval=approval.pk, decision="allow", actor=ANN)
        rests(session)
    assert ends(session) == [("succeeded", "done")]
    assert Entry.objects.filter(session_id=session, kind="assistant_message").count() == 4
    assert "limit_reached" not in kinds(session)
    assert kinds(session).count("session_waiting") == 1
    assert invariants.check_session(session) == []


def test_what_is_granted_is_used_up_and_asked_about_again(settings):
    """R8: each time another budget of the same size"""
    session = start(*[LABEL] * 5, {"text": "Done."}, limits={"turn": {"model_calls": 2}})
    with working(settings):
        first = asked(session)
        approvals.decide(approval=first.pk, decision="allow", actor=ANN)
        eventually(lambda: Approval.objects.filter(session=session).count() == 2)
        second = asked(session)
        approvals.decide(approval=second.pk, decision="allow", actor=ANN)
        rests(session)
    assert [(one.arguments["used"], one.arguments["of"]) for one in (first, second)] == [
        ("2", "2"),
        ("4", "4"),
    ]
    assert ends(session) == [("succeeded", "done")]
    assert Approval.objects.filter(session=session, state="allowed").count() == 2


def test_an_allowance_of_time_begins_with_the_answer(settings):
    """R8: the turn waited for people far longer than its limit, first for an answer and then for the allowance"""
    ask = {"tool_calls": [{"name": "ask_user", "arguments": {"questions": [{"text": "Which?"}]}}]}
    session = start(ask, LABEL, {"text": "Done."}, limits={"turn": {"wall_time": "20s"}}, tools=TOOLS)
    with working(settings):
        question = eventually(Question.objects.first, within=15)
        eventually(lambda: not Lease.objects.filter(pk=session).exists())
        Turn.objects.filter(session_id=session).update(started_at=F("started_at") - timedelta(hours=2))
        questions.answer(question=question.pk, answers=[{"text": "This."}], actor=ANN)
        approval = asked(session)
        assert float(approval.arguments["used"]) > 7200
        Turn.objects.filter(session_id=session).update(started_at=F("started_at") - timedelta(days=1))
        Approval.objects.update(created_at=F("created_at") - timedelta(days=1))
        approvals.decide(approval=approval.pk, decision="allow", actor=ANN)
        rests(session)
    assert ends(session) == [("succeeded", "done")]
    assert Approval.objects.count() == 1


def test_a_denial_ends_the_turn_by_the_limit_and_the_next_turn_is_asked_about_anew(settings):
    """R8, H4"""
    session = start(LABEL, LABEL, LABEL, {"text": "Done."}, limits={"turn": {"model_calls": 1}})
    with working(settings):
        approvals.decide(approval=asked(session).pk, decision="deny", actor=ANN, reason="enough")
        rests(session)
        assert ends(session) == [("failed", "limit")]
        inputs.submit_input(session=session, content=text("again"), actor=SYSTEM)
        second = asked(session)
        approvals.decide(approval=second.pk, decision="deny", actor=ANN)
        rests(session)
    assert ends(session) == [("failed", "limit")] * 2
    assert kinds(session).count("limit_reached") == 2
    assert factories.reread(session).limit_ask is None


def test_what_is_granted_to_a_turn_ends_with_it_and_to_a_session_stays(settings):
    """R8"""
    session = start(
        LABEL, {"text": "One."}, LABEL, {"text": "Two."}, limits={"turn": {"model_calls": 1}, "session": {}}
    )
    with working(settings):
        approvals.decide(approval=asked(session).pk, decision="allow", actor=ANN)
        rests(session)
        inputs.submit_input(session=session, content=text("again"), actor=SYSTEM)
        approvals.decide(approval=asked(session).pk, decision="allow", actor=ANN)
        rests(session)
    assert ends(session) == [("succeeded", "done")] * 2
    other = start(*[LABEL] * 3, {"text": "One."}, {"text": "Two."}, limits={"session": {"model_calls": 3}})
    with working(settings):
        approvals.decide(approval=asked(other).pk, decision="allow", actor=ANN)
        rests(other)
        inputs.submit_input(session=other, content=text("again"), actor=SYSTEM)
        rests(other)
        eventually(lambda: len(ends(other)) == 2 and factories.reread(other).status == "idle")
    assert ends(other) == [("succeeded", "done")] * 2
    assert Approval.objects.filter(session=other).count() == 1


def test_a_higher_limit_takes_the_place_of_the_answer(settings):
    """R8, H5: what was asked is closed, and the turn goes on"""
    session = start(LABEL, {"text": "Done."}, limits={"turn": {"model_calls": 1}})
    with working(settings):
        approval = asked(session)
        session_service.update_session(session=session, actor=SYSTEM, limits={"turn": {"model_calls": 9}})
        rests(session)
    approval.refresh_from_db()
    assert approval.state == ApprovalState.CANCELLED
    assert ends(session) == [("succeeded", "done")]
    assert "approval_closed" in kinds(session)


def test_steering_does_not_get_around_the_question_and_closes_it_only_when_told_to(settings):
    """R8, H5, I2"""
    session = start(LABEL, {"text": "Done."}, limits={"turn": {"model_calls": 1}})
    with working(settings):
        first = asked(session)
        inputs.submit_input(session=session, content=text("hurry"), actor=SYSTEM, delivery="steering")
        assert factories.reread(session).status == SessionStatus.WAITING
        inputs.submit_input(
            session=session, content=text("now"), actor=SYSTEM, delivery="steering", cancel_open=True
        )
        eventually(lambda: Approval.objects.filter(session=session).count() == 2)
        second = asked(session)
        approvals.decide(approval=second.pk, decision="allow", actor=ANN)
        rests(session)
    first.refresh_from_db()
    assert first.state == ApprovalState.CANCELLED
    assert ends(session) == [("succeeded", "done")]


def test_a_cancel_closes_the_question(settings):
    """H5, I6"""
    session = start(LABEL, {"text": "Done."}, limits={"turn": {"model_calls": 1}})
    with working(settings):
        approval = asked(session)
        control.cancel(session=session, actor=SYSTEM)
    with pytest.raises(approvals.ApprovalCancelled):
        approvals.decide(approval=approval.pk, decision="allow", actor=ANN)
    assert factories.reread(session).limit_ask is None
    assert kinds(session)[-2:] == ["approval_closed", "turn_ended"]


def test_an_allowance_at_a_limit_can_not_be_remembered(settings):
    """T7: there is a limit to change for that"""
    session = start(LABEL, limits={"turn": {"model_calls": 1}})
    with working(settings):
        approval = asked(session)
    with pytest.raises(Invalid):
        approvals.decide(approval=approval.pk, decision="allow", actor=ANN, remember="always")


def test_a_subagent_at_the_limit_of_its_tree_asks_and_what_is_granted_is_the_trees(settings):
    """R8, T8: it shows in the inbox with its own session, and its parent goes on waiting"""
    project = factories.project().pk
    helper = configs.create_config(
        project=project, document=document(LABEL, LABEL, {"text": "Helped."}, limits={}, on_limit="fail")
    ).row
    profiles.create_profile(project=project, name="helper", config=helper.pk, actor=SYSTEM)
    parent = start(
        {
            "tool_calls": [
                {"name": "start_subagent", "arguments": {"input": "x", "profile": "helper", "wait": True}}
            ]
        },
        {"text": "Thanks."},
        project=project,
        limits={"session": {"model_calls": 3}},
    )
    with working(settings):
        approval = eventually(lambda: Approval.objects.filter(state="open").first(), within=15)
        (child,) = Session.objects.filter(parent_id=parent)
        assert approval.session_id == child.pk
        assert approval.arguments == {"limit": "tree.model_calls", "used": "3", "of": "3"}
        asked(child.pk)
        approvals.decide(approval=approval.pk, decision="allow", actor=ANN)
        rests(parent)
    assert ends(child.pk) == ends(parent) == [("succeeded", "done")]
    assert TreeBudget.objects.get(pk=parent).granted == {"model_calls": 1}
