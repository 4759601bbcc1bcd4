"""Subagents below the tools: who is told, in which transaction, and what happens when two things happen at once."""

from functools import partial

import pytest

from sessions_app import children, control, ids, inputs, leases, rewinding, scheduling, session_service, steps
from sessions_app.due import Due, Facts, rests
from sessions_app.entries import turn_ended
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Child, Entry, Input, InputState, Lease, Session, TreeBudget
from sessions_app.session_service import Parent
from tests import factories
from tests.staging import Contender, another_connection, eventually, holding, wait_until_blocked
from tools_app.models import ChildWait, ToolCall, ToolCallState, ToolClass

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


def text(words):
    return [{"type": "text", "text": words}]


@pytest.fixture
def worker():
    return factories.worker()


@pytest.fixture
def parent(worker):
    return factories.running(worker)


def child_of(parent, *, held_by=None):
    """A subagent with input; held in the middle of its first turn if there is a worker to hold it."""
    with leases.fence(
        parent.pk, worker=Lease.objects.get(pk=parent.pk).worker_id, attempt=parent.attempt
    ) as row:
        child = session_service.start_session(
            project=row.project_id,
            actor=children.actor_of(row),
            config=row.config_id,
            input=NewInput(content=text("work"), actor=children.actor_of(row)),
            child_of=Parent(row, ids.new_id()),
        )
        row.save()
    if held_by is not None:
        Input.objects.filter(session=child).update(state=InputState.CANCELLED)
        child = factories.reread(child)
        factories.open_turn(child)
        factories.leased(child, held_by)
    return factories.reread(child)


def waiting_for(parent, *wanted, mode="all"):
    """A call of the parent that waits for these; the parent is let go of."""
    row = factories.reread(parent)
    call = factories.tool_call(
        row, state=ToolCallState.WAITING, tool_class=ToolClass.INTERNAL, name="wait_subagents"
    )
    ChildWait.objects.create(tool_call=call, children=[str(child.pk) for child in wanted], mode=mode)
    leases.end_lease(parent.pk, reason="released")
    assert factories.reread(parent).status == "waiting"
    return call


def last_step(session):
    """The step that ends the turn of a session and lets go of it."""
    row = factories.reread(session)
    ended = turn_ended(turn=row.turn_id, number=row.turn_count, status="succeeded", reason="done", error=None)
    return steps.StepWrite(
        session=row.pk,
        attempt=row.attempt,
        work_rev=row.work_rev,
        then=steps.Then(
            entries=(ended,),
            turn_end=steps.TurnEnd(id=row.turn_id, status="succeeded", reason="done"),
            release=Due(None, "idle"),
        ),
        parent=row.parent_id,
    )


def wait_until_somebody_is_blocked():
    """From outside: a transaction of one's own sees who waits as it was when it first looked."""
    with another_connection() as other:
        other.autocommit = True
        query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        eventually(lambda: other.execute(query).fetchall())


def kinds(session):
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))


def ends_told(parent):
    rows = Entry.objects.filter(session=parent, kind="child_ended").order_by("seq")
    return [(row.data["status"], row.data["reason"]) for row in rows]


# --- when a session rests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(), True),
        (Facts(open_turn=True), False),
        (Facts(queued=True), False),
        (Facts(steering=True), False),
        (Facts(queued=True, crash_limited=True), True),
        (Facts(open_turn=True, crash_limited=True), False),
        (Facts(archived=True), True),
        (Facts(compaction=True), True),
        (Facts(open_turn=True, open_calls=1), False),
    ],
)
def test_a_session_rests_when_it_has_nothing_more_to_do_by_itself(facts, expected):
    """T8: a compaction that somebody asked for is no work of a subagent's"""
    assert rests(facts) is expected


# --- who is told, and with what --------------------------------------------------------------------------


def test_the_step_that_ends_a_subagents_turn_wakes_its_parent(worker, parent):
    """T8, S2, S11: one transaction ends the turn, tells the parent and gives its wait the result"""
    child = child_of(parent, held_by=worker)
    call = waiting_for(parent, child)
    (saved,) = steps.commit_steps(worker.pk, [last_step(child)])
    assert isinstance(saved, steps.Saved)
    call.refresh_from_db()
    assert (call.state, call.outcome) == (ToolCallState.COMPLETED, "succeeded")
    after = factories.reread(parent)
    assert (after.status, after.work_rev > parent.work_rev) == ("queued", True)
    assert kinds(parent)[-2:] == ["child_ended", "tool_result"]
    xids = (
        Entry.objects.filter(kind__in=["turn_ended", "child_ended", "tool_result"]).values("xid").distinct()
    )
    assert xids.count() == 1
    assert ends_told(parent) == [("succeeded", "done")]


def test_a_step_that_was_overtaken_tells_nobody(worker, parent):
    """S11, T8: input that arrives in between goes on with the subagent's work"""
    child = child_of(parent, held_by=worker)
    step = last_step(child)
    inputs.submit_input(session=child.pk, content=text("more"), actor=SYSTEM)
    (saved,) = steps.commit_steps(worker.pk, [step])
    assert saved.moved
    assert ends_told(parent) == []
    assert Child.objects.get(pk=child.pk).working


def test_more_input_that_waits_keeps_a_subagent_at_work(worker, parent):
    """T8: its end is that of the last turn"""
    child = child_of(parent, held_by=worker)
    inputs.submit_input(session=child.pk, content=text("more"), actor=SYSTEM)
    step = last_step(child)
    steps.commit_steps(worker.pk, [step])
    assert factories.reread(child).turn_id is None
    assert ends_told(parent) == []
    (left,) = Input.objects.filter(session=child, state=InputState.RECEIVED)
    inputs.cancel_input(input=left.pk, actor=SYSTEM)
    assert ends_told(parent) == [("succeeded", "done")]


def test_parent_and_child_steps_that_gathered_are_all_saved(worker, parent):
    """L11: a step that needs its parent's row goes out alone; the parent's own step is in the shared commit"""
    first, second = child_of(parent, held_by=worker), child_of(parent, held_by=worker)
    row = factories.reread(parent)
    own = steps.StepWrite(session=row.pk, attempt=row.attempt, work_rev=row.work_rev, resets_crashes=True)
    results = steps.commit_steps(worker.pk, [last_step(first), own, last_step(second)])
    assert [type(result) for result in results] == [steps.Saved] * 3
    assert ends_told(parent) == [("succeeded", "done")] * 2
    assert list(Entry.objects.filter(session=parent).order_by("seq").values_list("seq", flat=True)) == list(
        range(1, factories.reread(parent).next_seq)
    )


ENDS = {
    "cancel": (lambda child: control.cancel(session=child.pk, actor=SYSTEM), ("cancelled", "cancelled")),
    "archive": (lambda child: control.archive(session=child.pk, actor=SYSTEM), ("cancelled", "archived")),
    "crash limit": (
        lambda child: leases.end_lease(child.pk, reason="crash"),
        ("failed", "crash_limit"),
    ),
    "rewind": (
        lambda child: rewinding.rewind(session=child.pk, to_seq=1, actor=SYSTEM),
        ("cancelled", "cancelled"),
    ),
}


@pytest.mark.parametrize("way", ENDS)
def test_however_a_subagents_work_ends_its_parent_learns_it(worker, parent, way, settings):
    """T8: also failure, cancel and archive; the wait has its result in the same transaction"""
    child = child_of(parent, held_by=worker)
    call = waiting_for(parent, child)
    if way == "crash limit":
        Session.objects.filter(pk=child.pk).update(crash_count=settings.TENURE.crash_limit - 1)
    if way == "rewind":
        factories.tool_call(child, state=ToolCallState.WAITING)
        leases.end_lease(child.pk, reason="released")
    act, expected = ENDS[way]
    act(child)
    assert ends_told(parent) == [expected]
    call.refresh_from_db()
    (block,) = call.content
    (one,) = block["value"]["subagents"]
    assert (one["status"], one["reason"]) == expected
    assert factories.reread(parent).status == "queued"


def test_a_subagent_whose_only_input_is_taken_back_is_at_rest(parent):
    """T8, I3: it never had a turn"""
    child = child_of(parent)
    call = waiting_for(parent, child)
    inputs.cancel_input(input=Input.objects.get(session=child).pk, actor=SYSTEM)
    assert ends_told(parent) == [("cancelled", "cancelled")]
    call.refresh_from_db()
    assert call.state == ToolCallState.COMPLETED


def test_a_parent_that_waits_for_nothing_is_told_and_left_alone(worker, parent):
    """T8: an entry, and no work"""
    child = child_of(parent, held_by=worker)
    leases.end_lease(parent.pk, reason="released")
    control.cancel(session=parent.pk, actor=SYSTEM)  # ends the child as well
    assert ends_told(parent) == [("cancelled", "cancelled")]
    after = factories.reread(parent)
    assert (after.status, after.wake_at) == ("idle", None)
    assert factories.reread(child).status == "idle"


def test_the_end_is_told_once_for_each_piece_of_work(worker, parent):
    """T8: a repeated cancel tells nothing, more work and its end are told again"""
    child = child_of(parent, held_by=worker)
    for _ in range(2):
        control.cancel(session=child.pk, actor=SYSTEM)
    assert len(ends_told(parent)) == 1
    made = inputs.submit_input(session=child.pk, content=text("again"), actor=SYSTEM)
    assert Child.objects.get(pk=child.pk).working
    inputs.cancel_input(input=made.pk, actor=SYSTEM)
    assert ends_told(parent) == [("cancelled", "cancelled")] * 2


def test_any_is_over_with_the_first_all_with_the_last(worker, parent):
    """T8"""
    first, second = child_of(parent, held_by=worker), child_of(parent, held_by=worker)
    row = factories.reread(parent)
    calls = {}
    for mode in ("all", "any"):
        calls[mode] = factories.tool_call(row, state=ToolCallState.WAITING, tool_class=ToolClass.INTERNAL)
        ChildWait.objects.create(tool_call=calls[mode], children=[str(first.pk), str(second.pk)], mode=mode)
    control.cancel(session=first.pk, actor=SYSTEM)
    states = lambda: {mode: ToolCall.objects.get(pk=call.pk).state for mode, call in calls.items()}  # noqa: E731
    assert states() == {"all": ToolCallState.WAITING, "any": ToolCallState.COMPLETED}
    control.cancel(session=second.pk, actor=SYSTEM)
    assert set(states().values()) == {ToolCallState.COMPLETED}


def test_a_compaction_between_turns_is_no_work_of_a_subagent(worker, parent):
    """T8, R5: nobody waits for it"""
    child = child_of(parent, held_by=worker)
    steps.commit_steps(worker.pk, [last_step(child)])
    control.request_compaction(session=child.pk, actor=SYSTEM)
    assert not Child.objects.get(pk=child.pk).working
    assert factories.reread(child).status == "queued"


# --- the tree --------------------------------------------------------------------------------------------


def test_cancelling_a_session_ends_what_works_below_it(worker, parent):
    """T8: down to the last, also where the session itself has no turn"""
    child = child_of(parent, held_by=worker)
    grandchild = child_of(child, held_by=worker)
    call = waiting_for(parent, child)
    control.cancel(session=parent.pk, actor=SYSTEM)
    for row in map(factories.reread, (parent, child, grandchild)):
        assert (row.status, row.last_turn.status) == ("idle", "cancelled")
    call.refresh_from_db()
    assert call.outcome == "cancelled"
    assert not Child.objects.filter(working=True).exists()
    again = child_of_idle(parent, worker)
    control.cancel(session=parent.pk, actor=SYSTEM)
    assert factories.reread(again).last_turn.status == "cancelled"


def child_of_idle(parent, worker):
    """A subagent that goes on while its parent rests."""
    row = factories.reread(parent)
    factories.open_turn(row)
    factories.leased(row, worker)
    child = child_of(row, held_by=worker)
    steps.commit_steps(worker.pk, [last_step(row)])
    assert factories.reread(row).status == "idle"
    return child


def test_what_a_parent_said_and_nobody_read_goes_with_its_cancel_and_what_people_said_stays(worker, parent):
    """T8, I1: a cancelled parent's messages do not start a turn of their own"""
    child = child_of(parent, held_by=worker)
    own = inputs.submit_input(session=child.pk, content=text("next"), actor=children.actor_of(parent))
    persons = inputs.submit_input(session=child.pk, content=text("and I"), actor=factories.ACTOR)
    control.cancel(session=parent.pk, actor=SYSTEM)
    states = dict(Input.objects.filter(pk__in=[own.pk, persons.pk]).values_list("pk", "state"))
    assert states == {own.pk: InputState.CANCELLED, persons.pk: InputState.RECEIVED}
    assert factories.reread(child).status == "queued"


def test_archiving_archives_the_subagents_and_restoring_does_not_restore_them(worker, parent):
    """T8, I6"""
    child = child_of(parent, held_by=worker)
    grandchild = child_of(child)
    control.archive(session=parent.pk, actor=SYSTEM)
    for row in map(factories.reread, (parent, child, grandchild)):
        assert row.status == "archived"
        assert kinds(row)[-1] == "archived"
    control.restore(session=parent.pk, actor=SYSTEM)
    assert [factories.reread(row).status for row in (parent, child, grandchild)] == [
        "idle",
        "archived",
        "archived",
    ]


def test_a_restored_subagent_of_an_archived_parent_works_alone(worker, parent):
    """T8: an archived session can only be read, so nothing is written to it"""
    child = child_of(parent)
    control.archive(session=parent.pk, actor=SYSTEM)
    before = kinds(parent)
    control.restore(session=child.pk, actor=SYSTEM)
    made = inputs.submit_input(session=child.pk, content=text("alone"), actor=SYSTEM)
    inputs.cancel_input(input=made.pk, actor=SYSTEM)
    assert factories.reread(child).status == "idle"
    assert kinds(parent) == before


# --- races -----------------------------------------------------------------------------------------------


def test_a_childs_end_and_its_parents_cancel_at_once_end_in_one_of_the_two(worker, parent):
    """T8, L11: the end waits for the parent, which the cancel has; then there is nothing left to end"""
    child = child_of(parent, held_by=worker)
    call = waiting_for(parent, child)
    step = last_step(child)
    with holding(LOCK, parent.pk):
        ending = Contender(partial(steps.commit_steps, worker.pk, [step]))
        wait_until_blocked()
        cancelling = Contender(partial(control.cancel, session=parent.pk, actor=SYSTEM))
        wait_until_blocked(2)
    (result,) = ending.result()
    cancelling.result()
    call.refresh_from_db()
    after = factories.reread(child)
    if isinstance(result, steps.Saved):
        assert (call.outcome, after.last_turn.status) == ("succeeded", "succeeded")
    else:
        assert (call.outcome, after.last_turn.status) == ("cancelled", "cancelled")
    assert factories.reread(parent).turn_id is None
    assert len(ends_told(parent)) == 1


def test_two_children_that_end_at_once_are_told_one_after_the_other(worker, parent):
    """T8: the wait for both has one result, with both in it"""
    rival = factories.worker()
    first, second = child_of(parent, held_by=worker), child_of(parent, held_by=rival)
    call = waiting_for(parent, first, second)
    with holding(LOCK, parent.pk):
        both = [
            Contender(partial(steps.commit_steps, holder.pk, [last_step(child)]))
            for holder, child in ((worker, first), (rival, second))
        ]
        wait_until_blocked(2)
    assert [type(contender.result()[0]) for contender in both] == [steps.Saved] * 2
    call.refresh_from_db()
    (block,) = call.content
    assert [one["status"] for one in block["value"]["subagents"]] == ["succeeded", "succeeded"]
    assert len(ends_told(parent)) == 2
    assert kinds(parent).count("tool_result") == 1


def test_a_message_and_the_end_at_once_lose_neither(worker, parent):
    """I5, T8: the message comes first here, so the end is not one; the other way round it wakes the subagent"""
    child = child_of(parent, held_by=worker)
    step = last_step(child)
    with holding(LOCK, child.pk):
        saying = Contender(partial(inputs.submit_input, session=child.pk, content=text("wait"), actor=SYSTEM))
        wait_until_blocked()
        ending = Contender(partial(steps.commit_steps, worker.pk, [step]))
        wait_until_blocked(2)
    saying.result()
    (result,) = ending.result()
    working = Child.objects.get(pk=child.pk).working
    assert working
    assert ends_told(parent) == ([] if result.moved else [("succeeded", "done")])
    assert Input.objects.filter(session=child, state=InputState.RECEIVED).exists()


def test_a_person_archives_a_child_that_its_parent_begins_to_wait_for(worker, parent):
    """T8: the parent's fence has its row, so the archive comes after the wait and ends it"""
    child = child_of(parent, held_by=worker)
    with leases.fence(parent.pk, worker=worker.pk, attempt=parent.attempt) as row:
        archiving = Contender(partial(control.archive, session=child.pk, actor=SYSTEM))
        wait_until_somebody_is_blocked()
        call = factories.tool_call(row, state=ToolCallState.READY, tool_class=ToolClass.INTERNAL)
        ToolCall.objects.filter(pk=call.pk).update(state=ToolCallState.WAITING)
        ChildWait.objects.create(tool_call=call, children=[str(child.pk)])
    archiving.result()
    call.refresh_from_db()
    assert call.state == ToolCallState.COMPLETED
    assert call.content[0]["value"]["subagents"][0]["reason"] == "archived"


def test_a_child_that_comes_into_being_while_its_tree_is_locked_is_part_of_it(worker, parent):
    """L11: membership is read again under the locks, and with more of them it starts again"""
    with leases.fence(parent.pk, worker=worker.pk, attempt=parent.attempt) as row:
        cancelling = Contender(partial(control.cancel, session=parent.pk, actor=SYSTEM))
        wait_until_somebody_is_blocked()
        child = session_service.start_session(
            project=row.project_id,
            actor=SYSTEM,
            config=row.config_id,
            input=NewInput(content=text("work"), actor=children.actor_of(row)),
            child_of=Parent(row, ids.new_id()),
        )
        row.save()
    cancelling.result()
    after = factories.reread(child)
    assert after.status == "idle"
    assert Input.objects.get(session=child).state == InputState.CANCELLED
    assert ends_told(parent) == [("cancelled", "cancelled")]


def test_a_session_that_comes_to_rest_without_its_parents_lock_is_a_fault(worker, parent):
    """L11: whoever forgets the lock writes nothing"""
    child = child_of(parent, held_by=worker)
    Session.objects.filter(pk=child.pk).update(turn=None)
    alone = factories.reread(child)
    with pytest.raises(RuntimeError, match="parent is not locked"):
        scheduling.tell_parent(alone)


@pytest.mark.parametrize(
    "service",
    [
        lambda child: control.cancel(session=child.pk, actor=SYSTEM),
        lambda child: control.archive(session=child.pk, actor=SYSTEM),
        lambda child: leases.end_lease(child.pk, reason="crash"),
        lambda child: steps.commit_steps(Lease.objects.get(pk=child.pk).worker_id, [last_step(child)]),
    ],
    ids=["cancel", "archive", "end_lease", "commit_steps"],
)
def test_parent_and_child_are_locked_in_id_order(worker, parent, service):
    """L11: while it waits for the first of the two, the second is free for everybody"""
    child = child_of(parent, held_by=worker)
    first, second = sorted((parent.pk, child.pk))
    with holding(LOCK, first):
        contender = Contender(partial(service, child))
        wait_until_blocked()
        with another_connection() as other:
            other.execute("SET lock_timeout = '1s'")
            other.execute(LOCK, [second])
    contender.result()


@pytest.mark.parametrize("end", [control.cancel, control.archive])
def test_a_tree_that_is_ended_has_all_its_leases_before_the_budget(worker, parent, end):
    """L11: a shared commit that waits for the budget may hold the lease of a session it passed over"""
    first, second = (child_of(parent, held_by=worker) for _ in range(2))
    row = factories.reread(first)
    start = steps.ModelCallStart(id=ids.new_id(), turn=row.turn_id, config=row.config_id, reserve=700)
    step = steps.StepWrite(
        session=row.pk, attempt=row.attempt, work_rev=row.work_rev, then=steps.Then(model_call=start)
    )
    steps.commit_steps(worker.pk, [step])
    with holding("SELECT FROM sessions_app_lease WHERE session_id = %s FOR UPDATE", second.pk):
        ending = Contender(partial(end, session=parent.pk, actor=SYSTEM))
        wait_until_blocked()
        with another_connection() as other:
            other.execute("SET lock_timeout = '1s'")
            other.execute("SELECT FROM sessions_app_treebudget FOR UPDATE")
    ending.result()
    assert TreeBudget.objects.get(pk=parent.pk).reserved_tokens == 0


def test_a_busy_parent_lets_the_sweepers_look_pass(worker, parent):
    """L7: a child whose parent is busy is left for the next look"""
    child = child_of(parent, held_by=worker)
    with holding(LOCK, parent.pk):
        assert not leases.end_lease(child.pk, reason="crash", skip_busy=True)
    assert leases.end_lease(child.pk, reason="crash", skip_busy=True)


# --- the budget of the tree ------------------------------------------------------------------------------


def test_the_first_subagent_brings_a_budget_that_knows_what_was_used_before(parent):
    """R8"""
    grants = {"turn": "another", "limits": {"session.tokens": 2, "turn.tokens": 1}}
    Session.objects.filter(pk=parent.pk).update(
        limit_grants=grants, model_calls=2, tool_calls=3, input_tokens=10, output_tokens=5, cost="0.25"
    )
    child = child_of(parent)
    budget = TreeBudget.objects.get(pk=parent.pk)
    assert (budget.model_calls, budget.tool_calls, budget.tokens, str(budget.cost)) == (
        2,
        3,
        15,
        "0.250000000",
    )
    assert budget.granted == {"tokens": 2}
    assert child.tree == parent.pk == factories.reread(parent).tree
    child_of(parent)
    assert TreeBudget.objects.count() == 1


def test_a_lease_that_ends_in_a_model_call_gives_back_what_that_had_reserved(worker, parent):
    """R8, L7"""
    child = child_of(parent, held_by=worker)
    row = factories.reread(child)
    start = steps.ModelCallStart(id=ids.new_id(), turn=row.turn_id, config=row.config_id, reserve=700)
    step = steps.StepWrite(
        session=row.pk, attempt=row.attempt, work_rev=row.work_rev, then=steps.Then(model_call=start)
    )
    (saved,) = steps.commit_steps(worker.pk, [step])
    assert (saved.tree.model_calls, saved.tree.tokens) == (
        0,
        0,
    )  # what others use; its own is not counted twice
    budget = TreeBudget.objects.get(pk=parent.pk)
    assert (budget.reserved_model_calls, budget.reserved_tokens) == (1, 700)
    leases.end_lease(child.pk, reason="crash")
    budget.refresh_from_db()
    assert (budget.reserved_model_calls, budget.reserved_tokens) == (0, 0)
