"""The tools for subagents, in a session that holds them and in whole runs with the scripted provider."""

import pytest

from sessions_app import children, configs, control, ids, inputs, profiles, session_service, steps
from sessions_app.due import Due
from sessions_app.engine.tool_batch import run_internal
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Child, Entry, Input, InputState, Lease, Session, SessionStatus
from sessions_app.tool_port import ToolContext
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.staging import Contender, eventually, holding, wait_until_blocked
from tools_app import approvals, call_facts
from tools_app.child_waits import shown
from tools_app.models import Approval, ChildWait, ToolCall, ToolCallState, ToolClass

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = ("start_subagent", "message_subagent", "wait_subagents", "stop_subagent", "list_subagents")


def text(words):
    return [{"type": "text", "text": words}]


def document(*replies, tools=TOOLS, **more):
    return {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "tree"},
        "tools": {name: {} for name in tools},
        "script": {"replies": list(replies)},
    } | more


def calls(name, *arguments):
    return {"tool_calls": [{"name": name, "arguments": values} for values in arguments]}


@pytest.fixture
def project():
    return factories.project()


@pytest.fixture
def profile(project):
    """Makes a profile of the project that plays these replies."""

    def make(name, *replies, **more):
        config = configs.create_config(project=project.pk, document=document(*replies, **more)).row
        return profiles.create_profile(project=project.pk, name=name, config=config.pk, actor=SYSTEM)

    return make


@pytest.fixture
def start(project):
    """Starts a session that plays these replies."""

    def begin(*replies, said="go", **more):
        config = configs.create_config(project=project.pk, document=document(*replies, **more)).row
        return session_service.start_session(
            project=project.pk,
            actor=SYSTEM,
            config=config.pk,
            input=NewInput(content=text(said), actor=SYSTEM),
        ).pk

    return begin


def entries_of(session, *kinds):
    rows = Entry.objects.filter(session_id=session).order_by("seq")
    return [row.data for row in (rows.filter(kind__in=kinds) if kinds else rows)]


def results_of(session):
    return [data["content"] for data in entries_of(session, "tool_result")]


def told(content):
    """What a result says of subagents."""
    (block,) = content
    return block["value"]["subagents"]


def children_of(session):
    return list(Session.objects.filter(parent_id=session).order_by("created_at"))


# --- whole runs ------------------------------------------------------------------------------------------


def test_an_agent_starts_three_waits_for_all_and_goes_on_with_their_answers(settings, start, profile):
    """T8, L10: nobody holds the parent while they work, and what they said is the result of the wait"""
    profile("helper", {"text": "Looked.", "delay": 0.5})
    parent = start(
        calls(
            "start_subagent", *({"input": f"part {n}", "profile": "helper", "name": f"n{n}"} for n in "123")
        ),
        calls("wait_subagents", {}),
        {"text": "All of it."},
    )
    with working(settings) as rested:
        waiting = eventually(
            lambda: Session.objects.filter(pk=parent, status=SessionStatus.WAITING, lease=None).first(),
            within=10,
        )
        assert {item["kind"] for item in waiting.waiting_on} == {"child"}
        mine = {ids.encode("ses", child.pk) for child in children_of(parent)}
        assert {item["id"] for item in waiting.waiting_on} <= mine
        after = eventually(
            lambda: Session.objects.filter(pk=parent, status=SessionStatus.IDLE).first(), within=15
        )
        for child in children_of(parent):
            rested(child.pk)
    assert after.last_turn.status == "succeeded"
    waited = told(results_of(parent)[-1])
    assert [(one["name"], one["status"], one["answer"]) for one in waited] == [
        (f"n{n}", "succeeded", "Looked.") for n in "123"
    ]
    assert len(entries_of(parent, "child_started")) == 3
    assert {data["reason"] for data in entries_of(parent, "child_ended")} == {"done"}
    assert len(entries_of(parent, "child_ended")) == 3
    assert not Child.objects.filter(working=True).exists()


def test_a_start_that_waits_brings_the_failure_of_its_subagent(settings, start, profile):
    """T8: failures come back as well; the call itself has worked"""
    profile("broken", {"error": {"status": 401}})
    parent = start(
        calls("start_subagent", {"input": "try", "profile": "broken", "wait": True}), {"text": "It failed."}
    )
    with working(settings):
        eventually(lambda: Session.objects.filter(pk=parent, status="idle", turn_count=1).first(), within=15)
    (result,) = entries_of(parent, "tool_result")
    assert result["outcome"] == "succeeded"
    (one,) = told(result["content"])
    assert (one["status"], one["reason"], one["error"]["code"]) == ("failed", "auth", "auth")
    assert entries_of(parent, "child_ended")[0]["status"] == "failed"


def test_waiting_for_any_goes_on_with_the_first(settings, start, profile):
    """T8"""
    profile("quick", {"text": "Here."})
    profile("slow", {"text": "At last.", "delay": 3})
    parent = start(
        calls("start_subagent", {"input": "a", "profile": "slow"}, {"input": "b", "profile": "quick"}),
        calls("wait_subagents", {"mode": "any"}),
        {"text": "One is enough."},
    )
    with working(settings):
        eventually(lambda: Session.objects.filter(pk=parent, status="idle", turn_count=1).first(), within=15)
        slow, quick = told(results_of(parent)[-1])
        control.cancel(session=children_of(parent)[0].pk, actor=SYSTEM)
    assert (slow["status"], quick["status"], quick["answer"]) == ("working", "succeeded", "Here.")


def test_a_subagent_may_have_subagents_down_to_the_depth_that_every_session_above_allows(
    settings, start, profile
):
    """T8: the one that may start no more is told so and goes on"""
    profile("leaf", calls("start_subagent", {"input": "deeper"}), {"text": "No deeper."})
    profile(
        "middle",
        calls("start_subagent", {"input": "down", "profile": "leaf", "wait": True}),
        {"text": "Been below."},
        subagents={"max_depth": 5},
    )
    parent = start(
        calls("start_subagent", {"input": "down", "profile": "middle", "wait": True}), {"text": "Up again."}
    )
    with working(settings):
        eventually(lambda: Session.objects.filter(pk=parent, status="idle", turn_count=1).first(), within=20)
    (middle,) = children_of(parent)
    (leaf,) = children_of(middle.pk)
    assert children_of(leaf.pk) == []
    (refused,) = entries_of(leaf.pk, "tool_result")
    assert refused["outcome"] == "failed"
    assert "max_depth" in refused["content"][0]["text"]
    (one,) = told(results_of(parent)[0])
    assert one["answer"] == "Been below."
    assert {row.tree for row in Session.objects.all()} == {parent}


def test_an_agent_may_not_start_more_than_its_config_allows(settings, start, profile):
    """T8: those that this turn started count, whether they work or not"""
    profile("helper", {"text": "Done."})
    parent = start(
        calls("start_subagent", *({"input": n, "profile": "helper", "wait": True} for n in "abc")),
        {"text": "Two it is."},
        subagents={"max_children": 2},
    )
    with working(settings):
        eventually(lambda: Session.objects.filter(pk=parent, status="idle", turn_count=1).first(), within=15)
    outcomes = [data["outcome"] for data in entries_of(parent, "tool_result")]
    assert sorted(outcomes) == ["failed", "succeeded", "succeeded"]
    (why,) = [d["content"][0]["text"] for d in entries_of(parent, "tool_result") if d["outcome"] == "failed"]
    assert "max_children" in why
    assert len(children_of(parent)) == 2


def test_without_a_profile_a_subagent_is_an_agent_like_its_parent(settings, start):
    """T8: under the config that the parent has now"""
    parent = start(
        calls("start_subagent", {"input": "the same", "labels": {"part": "1"}}),
        {"text": "Started."},
        subagents={"max_depth": 1},
    )
    with working(settings) as rested:
        eventually(lambda: Session.objects.filter(pk=parent, status="idle", turn_count=1).first(), within=15)
        (child,) = children_of(parent)
        rested(child.pk)
    assert child.config_id == factories.reread(parent).config_id
    assert child.labels == {"part": "1"}
    (said,) = entries_of(child.pk, "user_message")
    assert said["content"] == text("the same")
    (created,) = entries_of(child.pk, "session_created")
    assert created["parent"] == ids.encode("ses", parent)


# --- one call at a time ----------------------------------------------------------------------------------


@pytest.fixture
def worker():
    return factories.worker()


@pytest.fixture
def parent(worker, project):
    """A session in the middle of a turn, held by a worker."""
    config = configs.create_config(project=project.pk, document=document()).row
    return factories.running(worker, config=config)


@pytest.fixture
def run(worker, call_of):
    """Calls a tool in a session that is held; gives the row of the call afterwards."""

    def call(session, tool, /, **arguments):
        row = factories.tool_call(
            factories.reread(session),
            state=ToolCallState.READY,
            tool_class=ToolClass.INTERNAL,
            name=tool,
            arguments=arguments,
        )
        context = ToolContext(
            session.project_id,
            session.pk,
            session.attempt,
            ids.encode("tcl", row.pk),
            session.config.document,
        )
        run_internal(call_of(row), context, worker.pk, session.attempt)
        return ToolCall.objects.get(pk=row.pk)

    return call


def started(run, parent, **more):
    """A subagent with its first input."""
    row = run(parent, "start_subagent", input="work", **more)
    return Session.objects.get(pk=ids.decode("ses", told(row.content)[0]["subagent"]))


def name_of(session):
    return ids.encode("ses", session.pk)


def at_work(child, worker):
    """The child is held in the middle of its first turn."""
    Input.objects.filter(session=child).update(state=InputState.CANCELLED)
    child = factories.reread(child)
    factories.open_turn(child)
    factories.leased(child, worker)
    return factories.reread(child)


def finish(child, worker):
    """Its turn ends as a last reply ends it."""
    control.cancel(session=child.pk, actor=SYSTEM)
    assert not Child.objects.get(pk=child.pk).working


def test_the_start_and_the_child_are_one_transaction(run, parent, monkeypatch):
    """T8: a start that fails half way leaves neither a session nor an entry"""

    def fail(*args, **kwargs):
        raise ValueError("no room on the disk")

    monkeypatch.setattr(inputs, "add_locked", fail)
    row = run(parent, "start_subagent", input="work")
    assert row.outcome == "failed"
    assert not Child.objects.exists()
    assert [entry["name"] for entry in entries_of(parent.pk)] == ["start_subagent"]
    assert factories.reread(parent).tree is None


@pytest.mark.parametrize("key", ["", "x" * 101])
def test_a_label_of_a_subagent_has_a_name_that_the_api_would_take(run, parent, key):
    """T8: whatever a model makes up"""
    row = run(parent, "start_subagent", input="work", labels={key: "1"})
    assert (row.outcome, "1 to 100 characters" in row.content[0]["text"]) == ("failed", True)
    assert not Child.objects.exists()


def test_a_message_wakes_a_subagent_that_rests_and_the_next_wait_is_for_its_answer(run, parent, worker):
    """T8: a wait after a message never ends with what was said before it"""
    child = started(run, parent)
    finish(at_work(child, worker), worker)
    assert [one["status"] for one in told(run(parent, "wait_subagents").content)] == ["cancelled"]
    assert told(run(parent, "wait_subagents").content) == []
    sent = run(parent, "message_subagent", subagent=name_of(child), content="one more thing")
    assert told(sent.content) == [{"subagent": name_of(child), "status": "working"}]
    assert factories.reread(child).status == SessionStatus.QUEUED
    said = Input.objects.get(session=child, state=InputState.RECEIVED)
    assert (said.delivery, said.actor["id"]) == ("steering", name_of(parent))
    wait = run(parent, "wait_subagents", subagents=[name_of(child)])
    assert wait.state == ToolCallState.WAITING
    control.archive(session=child.pk, actor=SYSTEM)
    wait.refresh_from_db()
    assert told(wait.content)[0]["reason"] == "cancelled"


def test_a_wait_for_those_that_rest_already_has_its_result_at_once(run, parent, worker):
    """T8"""
    child = started(run, parent)
    finish(at_work(child, worker), worker)
    wait = run(parent, "wait_subagents", subagents=[name_of(child)])
    assert wait.state == ToolCallState.COMPLETED
    assert told(wait.content)[0]["status"] == "cancelled"
    assert not ChildWait.objects.exists()


def test_a_wait_shows_for_whom_and_loses_one_after_the_other(run, parent, worker):
    """T8, S7: `waiting_on` names the subagents that still work"""
    first, second = started(run, parent), started(run, parent)
    wait = run(parent, "wait_subagents")
    Lease.objects.filter(pk=parent.pk).delete()
    with_facts = call_facts.facts([parent.pk])[parent.pk]
    assert [item["id"] for item in with_facts.awaiting] == [name_of(first), name_of(second)]
    assert {item["kind"] for item in with_facts.awaiting} == {"child"}
    Session.objects.filter(pk=parent.pk).update(status="waiting", waiting_on=list(with_facts.awaiting))
    control.archive(session=first.pk, actor=SYSTEM)
    after = factories.reread(parent)
    assert [item["id"] for item in after.waiting_on] == [name_of(second)]
    assert after.wake_at is None
    control.archive(session=second.pk, actor=SYSTEM)
    after = factories.reread(parent)
    assert (after.status, after.wake_at is not None) == ("queued", True)
    wait.refresh_from_db()
    assert [one["status"] for one in told(wait.content)] == ["cancelled", "cancelled"]


def test_stopping_ends_the_turns_below_too_and_what_was_not_read_yet_is_dropped(run, parent, worker):
    """T8: the subagent rests, whatever it was to do next"""
    child = at_work(started(run, parent), worker)
    grandchild = at_work(started(run, child), worker)
    run(parent, "message_subagent", subagent=name_of(child), content="and then this", delivery="queued")
    row = run(parent, "stop_subagent", subagent=name_of(child))
    (one,) = told(row.content)
    assert (one["status"], one["reason"]) == ("cancelled", "cancelled")
    for stopped in (child, grandchild):
        after = factories.reread(stopped)
        assert (after.status, after.turn_id, after.last_turn.status) == ("idle", None, "cancelled")
    assert not Input.objects.filter(session=child, state=InputState.RECEIVED).exists()
    assert entries_of(parent.pk, "child_ended")[-1]["child"] == name_of(child)
    assert entries_of(child.pk, "child_ended")[-1]["child"] == name_of(grandchild)
    assert factories.reread(parent).status == SessionStatus.RUNNING


def test_only_own_subagents_can_be_spoken_to_waited_for_and_stopped(run, parent, worker):
    """T8: another's subagent, another session and a word that is no id are all no subagent of this session"""
    stranger = factories.session(config=parent.config)
    child = at_work(started(run, parent), worker)
    grandchild = started(run, child)
    for named in (name_of(stranger), name_of(grandchild), name_of(parent), "ses_nothing", "who"):
        for tool, arguments in (
            ("message_subagent", {"subagent": named, "content": "hello"}),
            ("stop_subagent", {"subagent": named}),
            ("wait_subagents", {"subagents": [named]}),
        ):
            row = run(parent, tool, **arguments)
            assert row.outcome == "failed", (tool, named)
    assert factories.reread(child).status == SessionStatus.RUNNING


def test_the_list_says_what_each_does(run, parent, worker):
    """T8"""
    resting, busy = started(run, parent, name="first"), started(run, parent, name="second")
    finish(at_work(resting, worker), worker)
    row = run(parent, "list_subagents")
    assert [(one["name"], one["status"]) for one in told(row.content)] == [
        ("first", "cancelled"),
        ("second", "working"),
    ]
    assert children.of(parent.pk, only_open=True) == [busy.pk]


def test_an_archived_subagent_is_not_listed_and_can_not_be_spoken_to(run, parent):
    """T8"""
    child = started(run, parent)
    control.archive(session=child.pk, actor=SYSTEM)
    assert told(run(parent, "list_subagents").content) == []
    row = run(parent, "message_subagent", subagent=name_of(child), content="hello")
    assert "archived" in row.content[0]["text"]
    assert told(run(parent, "wait_subagents", subagents=[name_of(child)]).content)[0]["status"] == "cancelled"


def test_a_message_and_the_end_of_the_turn_at_once_lose_neither(run, parent, worker):
    """T8, L11: whichever comes first, the subagent goes on, and the wait is for what it says then"""
    child = at_work(started(run, parent), worker)
    held = factories.reread(child)
    end = steps.TurnEnd(id=held.turn_id, status="succeeded", reason="done")
    step = steps.StepWrite(
        session=held.pk,
        attempt=held.attempt,
        work_rev=held.work_rev,
        then=steps.Then(turn_end=end, release=Due(None, "idle")),
        parent=parent.pk,
    )
    with holding("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", child.pk):
        # The first to have the parent's row waits for the child's; the second waits for the first.
        saying = Contender(
            lambda: run(parent, "message_subagent", subagent=name_of(child), content="more", wait=True)
        )
        wait_until_blocked()
        ending = Contender(lambda: steps.commit_steps(worker.pk, [step]))
        wait_until_blocked(2)
    call, (result,) = saying.result(), ending.result()
    assert call.state == ToolCallState.WAITING
    assert result.moved
    assert Child.objects.get(pk=child.pk).working
    assert entries_of(parent.pk, "child_ended") == []


def test_what_a_subagent_asks_stands_in_the_inbox_with_its_own_session(settings, start, profile):
    """T8, H6: its parent waits meanwhile, and hears how it went"""
    profile(
        "careful",
        calls("set_label", {"key": "a", "value": "b"}),
        {"text": "Labelled."},
        tools=("set_label",),
        permissions=[{"tool": "set_label", "then": "ask"}],
    )
    parent = start(
        calls("start_subagent", {"input": "label it", "profile": "careful", "wait": True}), {"text": "Good."}
    )
    with working(settings):
        approval = eventually(lambda: Approval.objects.filter(state="open").first(), within=15)
        (child,) = children_of(parent)
        assert approval.session_id == child.pk
        eventually(lambda: Session.objects.filter(pk=child.pk, status="waiting", lease=None).first())
        assert factories.reread(parent).status == SessionStatus.WAITING
        approvals.decide(approval=approval.pk, decision="allow", actor=factories.ACTOR)
        eventually(lambda: Session.objects.filter(pk=parent, status="idle", turn_count=1).first(), within=15)
    assert told(results_of(parent)[0])[0]["answer"] == "Labelled."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"profile": "nobody"}, "profile"), ({"config": "cfg_x"}, "cfg_"), ({"config": "ses_1"}, "cfg_")],
)
def test_a_start_that_names_what_is_not_there_says_so(run, parent, arguments, says):
    """T8: the model can do something about it"""
    row = run(parent, "start_subagent", input="work", **arguments)
    assert row.outcome == "failed"
    assert says in row.content[0]["text"]
    assert not Child.objects.exists()


def test_a_long_answer_comes_back_with_its_two_ends(parent):
    """S8, T8"""
    report = children.Report(
        session=parent.pk, name="", working=False, status="succeeded", reason="done", error=None,
        answer="a" * 5000 + "z" * 5000, output=[{"type": "data", "value": 1}],
    )  # fmt: skip
    data = shown(report, 1000)
    assert len(data["answer"]) <= 1000
    assert (data["answer"][0], data["answer"][-1]) == ("a", "z")
    assert data["output"] == [{"type": "data", "value": 1}]
