"""R8 across a tree: what subagents use counts for the session at the top, and calls at the same moment are seen."""

from decimal import Decimal
from functools import partial

import psycopg
import pytest

from sessions_app import children, configs, ids, leases, profiles, session_service, steps
from sessions_app.engine import limits
from sessions_app.engine.limits import Budget, Meter, Near, Reached, Shared, Used
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Lease, ModelCall, Session, TreeBudget, Turn
from sessions_app.session_service import Parent
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.staging import Contender, eventually, holding, wait_until_blocked

TREE = "SELECT FROM sessions_app_treebudget WHERE session_id = %s FOR UPDATE"


def text(words):
    return [{"type": "text", "text": words}]


# --- decisions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "used", "reached"),
    [
        (Budget(), Used(model_calls=1000, tokens=10**9), None),
        (Budget(model_calls=5), Used(model_calls=4), None),
        (Budget(model_calls=5), Used(model_calls=5), Reached("tree.model_calls", "5", "5")),
        (Budget(tool_calls=5), Used(tool_calls=5), None),
        (Budget(tool_calls=5), Used(tool_calls=6), Reached("tree.tool_calls", "6", "5")),
        (Budget(tokens=100), Used(tokens=100), Reached("tree.tokens", "100", "100")),
        (
            Budget(cost_usd=Decimal("0.5")),
            Used(cost_usd=Decimal("0.6")),
            Reached("tree.cost_usd", "0.6", "0.5"),
        ),
    ],
)
def test_a_tree_reaches_its_limits_as_a_session_does(most, used, reached):
    """R8"""
    assert limits.standing_of_tree(most, used).reached == reached


def test_what_a_tree_may_use_is_what_the_session_at_its_top_may_but_for_time():
    """R8: an elapsed time is no sum of several sessions"""
    document = {"limits": {"turn": {"tokens": 5}, "session": {"tokens": 100, "wall_time": "1h"}}}
    assert limits.of_tree(document, {"session": {"model_calls": 3}}) == Budget(tokens=100, model_calls=3)


def test_a_meter_counts_its_own_calls_in_the_tree_as_well():
    """R8: until the next commit brings what the others used"""
    meter = Meter(shared=Shared(Budget(model_calls=6, tool_calls=4), Used(model_calls=3, tool_calls=2)))
    assert meter.standing(0.0).reached is None
    assert meter.allowed_tool_calls() == (2, "tree.tool_calls")
    meter.take_call(tokens=10, cost=None, tool_calls=1, in_turn=True)
    standing = meter.standing(0.0)
    assert standing.reached is None
    assert Near("tree.model_calls", "4", "6") in standing.near
    for _ in range(2):
        meter.take_call(tokens=10, cost=None, tool_calls=0, in_turn=True)
    assert meter.standing(0.0).reached == Reached("tree.model_calls", "6", "6")
    assert meter.standing_of_new_turn(0.0).reached == Reached("tree.model_calls", "6", "6")


# --- the commit ------------------------------------------------------------------------------------------


@pytest.fixture
def worker():
    return factories.worker()


@pytest.fixture
def parent(worker):
    return factories.running(worker)


def child_of(parent, worker, *, held_by=None):
    """A subagent in the middle of a turn, of a parent that `worker` holds."""
    with leases.fence(parent.pk, worker=worker.pk, attempt=parent.attempt) as row:
        child = session_service.start_session(
            project=row.project_id, actor=SYSTEM, config=row.config_id, child_of=Parent(row, ids.new_id())
        )
        row.save()
    factories.open_turn(child)
    factories.leased(child, held_by or worker)
    return factories.reread(child)


def asks(session, *, within, reserve=10):
    """The step that makes a model call due."""
    start = steps.ModelCallStart(
        id=ids.new_id(), turn=session.turn_id, config=session.config_id, reserve=reserve, within=within
    )
    return steps.StepWrite(
        session=session.pk,
        attempt=session.attempt,
        work_rev=session.work_rev,
        then=steps.Then(model_call=start),
    )


def budget(parent):
    row = TreeBudget.objects.get(pk=parent.pk)
    return row.model_calls, row.tokens, row.reserved_model_calls, row.reserved_tokens


@pytest.mark.django_db(transaction=True)
def test_two_that_ask_at_once_see_each_other_and_the_last_call_is_made_by_one(worker, parent):
    """R8: the other's step is saved as overtaken, so it plans again with what is used now"""
    rival = factories.worker()
    first, second = child_of(parent, worker), child_of(parent, worker, held_by=rival)
    most = Budget(model_calls=1)
    with holding(TREE, parent.pk):
        both = [
            Contender(partial(steps.commit_steps, holder.pk, [asks(child, within=most)]))
            for holder, child in ((worker, first), (rival, second))
        ]
        wait_until_blocked(2)
    moved = [contender.result()[0].moved for contender in both]
    assert sorted(moved) == [False, True]
    assert budget(parent) == (0, 0, 1, 10)
    assert ModelCall.objects.filter(reserved=10).count() == 1


@pytest.mark.django_db(transaction=True)
def test_in_one_shared_commit_they_see_each_other_too(worker, parent):
    """R8"""
    pair = [child_of(parent, worker) for _ in range(2)]
    results = steps.commit_steps(worker.pk, [asks(child, within=Budget(tokens=15)) for child in pair])
    assert [result.moved for result in results] == [False, False]  # 10 of 15 are set aside: less than all
    results = steps.commit_steps(worker.pk, [asks(child_of(parent, worker), within=Budget(tokens=15))])
    assert [result.moved for result in results] == [True]


@pytest.mark.django_db(transaction=True)
def test_a_call_that_ends_takes_its_reservation_back_and_counts_what_it_used(worker, parent):
    """R8, R7"""
    child = child_of(parent, worker)
    step = asks(child, within=Budget(), reserve=100)
    steps.commit_steps(worker.pk, [step])
    ended = steps.ModelCallEnd(
        id=step.then.model_call.id, turn=child.turn_id, state="succeeded",
        usage=steps.NO_USAGE.__class__(7, 3, 0, 0), cost=Decimal("0.5"), cost_added=Decimal("0.5"), reserved=100,
    )  # fmt: skip
    (saved,) = steps.commit_steps(
        worker.pk,
        [
            steps.StepWrite(
                session=child.pk, attempt=child.attempt, work_rev=child.work_rev, model_call_end=ended
            )
        ],
    )
    assert budget(parent) == (1, 10, 0, 0)
    assert (saved.tree.model_calls, saved.tree.tokens, saved.tree.cost_usd) == (1, 10, Decimal("0.5"))


@pytest.mark.django_db(transaction=True)
def test_a_step_in_a_tree_costs_two_statements_more_and_one_without_a_model_call_one(
    worker, parent, monkeypatch
):
    """Speed: the budget's lock and its change; sessions without subagents have neither"""
    said = []

    class Counting(psycopg.Cursor):
        def execute(self, query, params=None, **options):
            said.append(str(query).split()[0:3])
            return super().execute(query, params, **options)

    child = child_of(parent, worker)
    alone = factories.running(worker)
    monkeypatch.setattr(psycopg, "Cursor", Counting)
    costs = []
    for session in (alone, child):
        said.clear()
        steps.commit_steps(worker.pk, [asks(session, within=None)])
        costs.append(len(said))
    assert costs == [4, 6], said  # locks of session and lease, start of the call, session
    said.clear()
    note = NewEntry(kind="note", data={"text": "noted"})
    step = steps.StepWrite(session=child.pk, attempt=child.attempt, work_rev=child.work_rev, entries=(note,))
    steps.commit_steps(worker.pk, [step])
    assert len(said) == 5, said  # locks, entries, session, and the budget's lock


# --- whole runs ------------------------------------------------------------------------------------------

LABEL = {"tool_calls": [{"name": "set_label", "arguments": {"key": "a", "value": "b"}}]}
TOOLS = {"start_subagent": {}, "wait_subagents": {}, "set_label": {}}


@pytest.fixture
def project():
    return factories.project().pk


def config_of(project, *replies, **more):
    document = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "tree"},
        "script": {"replies": list(replies)},
        "tools": TOOLS,
    }
    return configs.create_config(project=project, document=document | more).row.pk


def profile(project, name, *replies, **more):
    profiles.create_profile(
        project=project, name=name, config=config_of(project, *replies, **more), actor=SYSTEM
    )


def start(project, *replies, **more):
    return session_service.start_session(
        project=project,
        actor=SYSTEM,
        config=config_of(project, *replies, **more),
        input=NewInput(content=text("go"), actor=SYSTEM),
    ).pk


def ends(session):
    rows = Turn.objects.filter(session_id=session).order_by("number")
    return [(row.status, row.reason) for row in rows]


def reached(session):
    rows = Entry.objects.filter(session_id=session, kind="limit_reached")
    return [(row.data["limit"], row.data["used"], row.data["of"]) for row in rows]


def done(session):
    return eventually(
        lambda: Session.objects.filter(pk=session, status="idle", turn=None, turn_count=1).first(), within=15
    )


@pytest.mark.django_db(transaction=True)
def test_what_a_subagent_uses_counts_for_the_session_above_it(settings, project):
    """R8: the subagent's turn ends by the limit, its parent sees it, and may make no further call itself"""
    profile(project, "busy", *[LABEL] * 9)
    parent = start(
        project,
        {
            "tool_calls": [
                {"name": "start_subagent", "arguments": {"input": "x", "profile": "busy", "wait": True}}
            ]
        },
        {"text": "never said"},
        limits={"session": {"model_calls": 4}},
    )
    with working(settings):
        done(parent)
    (child,) = Session.objects.filter(parent_id=parent)
    assert ends(child.pk) == [("failed", "limit")]
    assert child.model_calls == 3
    assert reached(child.pk) == [("tree.model_calls", "4", "4")]
    assert ends(parent) == [("failed", "limit")]
    (result,) = Entry.objects.filter(session_id=parent, kind="tool_result")
    (one,) = result.data["content"][0]["value"]["subagents"]
    assert (one["status"], one["reason"], one["error"]["code"]) == ("failed", "limit", "limit")
    assert TreeBudget.objects.get(pk=parent).model_calls == 4


@pytest.mark.django_db(transaction=True)
def test_subagents_that_ask_at_the_same_time_do_not_go_over_the_limit(settings, project):
    """R8: five that want to make one call each, and three calls left"""
    profile(project, "one", {"text": "Said.", "delay": 0.4})
    five = [{"name": "start_subagent", "arguments": {"input": n, "profile": "one"}} for n in "abcde"]
    parent = start(
        project,
        {"tool_calls": [*five, {"name": "wait_subagents", "arguments": {}}]},
        {"text": "never said"},
        limits={"session": {"model_calls": 4}},
    )
    with working(settings):
        done(parent)
    mine = Session.objects.filter(parent_id=parent)
    assert (
        sorted(ends(child.pk)[0] for child in mine) == [("failed", "limit")] * 2 + [("succeeded", "done")] * 3
    )
    assert ModelCall.objects.filter(session__tree=parent).count() == 4
    row = TreeBudget.objects.get(pk=parent)
    assert (row.model_calls, row.reserved_model_calls, row.reserved_tokens) == (4, 0, 0)


@pytest.mark.django_db(transaction=True)
def test_a_tree_without_limits_counts_and_stops_nobody(settings, project):
    """R8: tokens and tool calls of all its sessions"""
    profile(project, "helper", LABEL, {"text": "Done."})
    parent = start(
        project,
        {
            "tool_calls": [
                {"name": "start_subagent", "arguments": {"input": "x", "profile": "helper", "wait": True}}
            ]
        },
        {"text": "Finished."},
    )
    with working(settings):
        done(parent)
    everybody = list(Session.objects.filter(tree=parent))
    row = TreeBudget.objects.get(pk=parent)
    assert len(everybody) == 2
    assert row.model_calls == sum(one.model_calls for one in everybody) == 4
    assert row.tool_calls == sum(one.tool_calls for one in everybody) == 2
    assert row.tokens == sum(one.input_tokens + one.output_tokens for one in everybody)
    assert not Lease.objects.exists()
    assert children.at_work([one.pk for one in everybody]) == set()
