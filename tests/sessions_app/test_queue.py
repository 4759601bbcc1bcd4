"""The queue of inputs: moved, promoted, demoted and taken back while they wait, and never once they are taken."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sessions_app import ids, inputs, leases, steps
from sessions_app.engine import following
from sessions_app.engine import state as states
from sessions_app.errors import Invalid, NotFound, SessionArchived
from sessions_app.inputs import AnchorGone, InputTaken, Place
from sessions_app.models import Entry, Input, Session, Turn, Worker
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, holding, wait_until_blocked
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


def names(session: Session) -> list[str]:
    """The texts of the waiting inputs, in order."""
    rows = Input.objects.filter(session=session, state="received").order_by("rank")
    return [row.content[0]["text"] for row in rows]


def entries_of(session: Session) -> list[tuple[str, Any]]:
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", "data"))


def queue_of(session: Session, texts: str = "abcd", *, delivery: str = "queued") -> dict[str, Input]:
    return {text: factories.received_input(session, text=text, delivery=delivery) for text in texts}


def move(row: Input, side: Any, anchor: Input | None = None) -> Input:
    return inputs.move_input(input=row.pk, to=Place(side, anchor.pk if anchor else None), actor=ACTOR)


def promote(row: Input, **values: Any) -> Input:
    return inputs.promote_input(input=row.pk, actor=ACTOR, **values)


def demote(row: Input) -> Input:
    return inputs.demote_input(input=row.pk, actor=ACTOR)


def cancel(row: Input) -> Input:
    return inputs.cancel_input(input=row.pk, actor=ACTOR)


CHANGES: dict[str, Callable[[Input], Input]] = {
    "promote": promote,
    "demote": demote,
    "move": lambda row: move(row, "last"),
    "cancel": cancel,
}


def ready_for(change: str, session: Session) -> Input:
    """An input that `change` changes; another one waits behind it."""
    row = factories.received_input(
        session, text="it", delivery="steering" if change == "demote" else "queued"
    )
    factories.received_input(session, text="other")
    return row


# --- moving ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mover", "side", "anchor", "expected"),
    [
        ("c", "first", None, "cabd"),
        ("a", "last", None, "bcda"),
        ("d", "before", "b", "adbc"),
        ("a", "before", "d", "bcad"),
        ("a", "after", "b", "bacd"),
        ("d", "after", "a", "adbc"),
        ("a", "after", "d", "bcda"),
        ("d", "before", "a", "dabc"),
    ],
)
def test_a_move_gives_exactly_the_order_that_was_asked_for(
    mover: str, side: str, anchor: str | None, expected: str
) -> None:
    """A58, I3: to either end, in front of and behind another; one entry says so."""
    session = factories.session()
    rows = queue_of(session)
    move(rows[mover], side, rows[anchor] if anchor else None)
    assert "".join(names(session)) == expected
    (entry,) = Entry.objects.filter(session=session)
    assert entry.kind == "input_updated"
    assert entry.data == {
        "input": ids.encode("inp", rows[mover].pk),
        "changes": {"position": expected.index(mover) + 1},
    }
    assert entry.actor == ACTOR  # I8
    row = factories.reread(session)
    assert (row.work_rev, row.status) == (1, "queued")


@pytest.mark.parametrize(
    ("mover", "side", "anchor"), [("a", "first", None), ("b", "after", "a"), ("d", "last", None)]
)
def test_a_move_to_where_it_stands_changes_nothing(mover: str, side: str, anchor: str | None) -> None:
    """I3: no entry and no news for the worker."""
    session = factories.session()
    rows = queue_of(session)
    move(rows[mover], side, rows[anchor] if anchor else None)
    assert names(session) == list("abcd")
    assert entries_of(session) == []
    assert factories.reread(session).work_rev == 0


def test_a_gap_that_is_used_up_makes_room_for_the_whole_queue() -> None:
    """A58: again and again into the same gap; the ranks stay strictly increasing."""
    session = factories.session()
    rows = queue_of(session)
    Input.objects.filter(pk=rows["b"].pk).update(rank=rows["a"].rank + 1)
    move(rows["d"], "after", rows["a"])
    assert names(session) == list("adbc")
    order = list("adbc")
    for turn in range(60):
        mover = "cb"[turn % 2]
        move(rows[mover], "after", rows["a"])
        order.remove(mover)
        order.insert(1, mover)
        assert names(session) == order
    ranks = list(Input.objects.filter(session=session).order_by("rank").values_list("rank", flat=True))
    assert all(before < after for before, after in pairwise(ranks))


@pytest.mark.parametrize("gone", ["delivered", "cancelled", "elsewhere", "nowhere"])
def test_a_missing_anchor_is_a_conflict_and_moves_nothing(gone: str) -> None:
    """A58: it was taken, cancelled, stands in another queue or never was; all the same to the caller."""
    session = factories.session()
    rows = queue_of(session)
    anchor = rows["d"]
    if gone == "delivered":
        turn = factories.open_turn(session)
        Input.objects.filter(pk=anchor.pk).update(state="delivered", turn=turn)
    elif gone == "cancelled":
        cancel(anchor)
    elif gone == "elsewhere":
        anchor = factories.received_input(factories.session())
    else:
        anchor = Input(pk=ids.new_id())
    before = (names(session), entries_of(session), factories.reread(session).work_rev)
    with pytest.raises(AnchorGone) as caught:
        move(rows["a"], "after", anchor)
    assert caught.value.code == "conflict"
    assert caught.value.data["current"].pk == rows["a"].pk
    assert (names(session), entries_of(session), factories.reread(session).work_rev) == before


def test_next_to_itself_is_no_place() -> None:
    row = factories.received_input(factories.session())
    with pytest.raises(Invalid):
        move(row, "before", row)


@pytest.mark.django_db(transaction=True)
def test_concurrent_moves_end_in_an_order_that_one_after_the_other_would_give() -> None:
    """A59: they queue up at the session's lock, and each sees what the one before did."""
    session = factories.session()
    rows = queue_of(session, "abcdef")
    wanted = [("f", "first", None), ("a", "after", "c"), ("b", "before", "f"), ("c", "last", None)]
    with holding(LOCK, session.pk):
        contenders = []
        for number, (mover, side, anchor) in enumerate(wanted, start=1):
            contenders.append(
                Contender(lambda m=mover, s=side, a=anchor: move(rows[m], s, rows[a] if a else None))
            )
            wait_until_blocked(number)
    for contender in contenders:
        contender.result()
    assert names(session) == list("bfadec")
    ranks = list(Input.objects.filter(session=session).order_by("rank").values_list("rank", flat=True))
    assert all(before < after for before, after in pairwise(ranks))


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_moves_equals_the_same_moves_of_a_list(seed: int) -> None:
    """A58, A59: with ranks that start without any gap."""
    chosen = random.Random(seed)
    session = factories.session()
    rows = queue_of(session, "abcdef")
    for rank, row in enumerate(rows.values()):
        Input.objects.filter(pk=row.pk).update(rank=rank)
    order = list(rows)
    for _ in range(40):
        mover, anchor = chosen.sample(order, 2)
        side = chosen.choice(["first", "last", "before", "after"])
        move(rows[mover], side, rows[anchor] if side in {"before", "after"} else None)
        order.remove(mover)
        place = {"first": 0, "last": len(order)}.get(side)
        if place is None:
            place = order.index(anchor) + (side == "after")
        order.insert(place, mover)
        assert names(session) == order


# --- promoting and demoting ------------------------------------------------------------------------------


def test_promoting_and_demoting_keep_the_place_and_are_told_once() -> None:
    """I3, S7: a repeated one finds nothing to do."""
    session = factories.session()
    rows = queue_of(session, "ab")
    for _ in range(2):
        assert promote(rows["b"]).delivery == "steering"
    assert names(session) == ["a", "b"]
    for _ in range(2):
        assert demote(rows["b"]).delivery == "queued"
    told = ids.encode("inp", rows["b"].pk)
    assert entries_of(session) == [
        ("input_updated", {"input": told, "changes": {"delivery": "steering"}}),
        ("input_updated", {"input": told, "changes": {"delivery": "queued"}}),
    ]
    assert factories.reread(session).work_rev == 2


def backing_off() -> Session:
    retry_at = factories.database_now(600)
    session = factories.session(status="backing_off", retry_at=retry_at, wake_at=retry_at)
    factories.open_turn(session)
    return session


def test_promoting_during_backoff_wakes_the_session_now_and_demoting_gives_the_retry_its_time_back() -> None:
    """A54, R6"""
    session = backing_off()
    row = factories.received_input(session)
    promote(row)
    now = factories.reread(session)
    assert now.status == "queued"
    assert now.wake_at <= factories.database_now()
    assert now.retry_at == session.retry_at
    demote(row)
    now = factories.reread(session)
    assert (now.status, now.wake_at, now.retry_at) == ("backing_off", session.retry_at, session.retry_at)


@pytest.mark.parametrize("change", ["cancel", "move"])
def test_rearranging_queued_input_leaves_the_time_of_a_retry_alone(change: str) -> None:
    """A54"""
    session = backing_off()
    CHANGES[change](ready_for(change, session))
    now = factories.reread(session)
    assert (now.status, now.wake_at, now.retry_at) == ("backing_off", session.retry_at, session.retry_at)


# --- what is open ----------------------------------------------------------------------------------------


def prompting() -> Session:
    """A turn that waits for a person twice and for a backend once."""
    session = factories.session(status="waiting", waiting_on=[{"kind": "tool"}])
    factories.open_turn(session)
    factories.tool_call(session, state="waiting", tool_class="human", name="ask_user")
    factories.tool_call(session, state="awaiting_approval", name="dev_append")
    factories.tool_call(session, state="waiting", tool_class="custom", name="ticket")
    return session


def open_names() -> list[str]:
    rows = ToolCall.objects.exclude(state="completed").order_by("position")
    return list(rows.values_list("name", flat=True))


def test_promotion_keeps_what_is_open_unless_told_to_close_it() -> None:
    """A55, H5: with the flag the two that wait for a person are cancelled, the backend's call stays open."""
    session = prompting()
    first, second = queue_of(session, "ab").values()
    promote(first)
    assert open_names() == ["ask_user", "dev_append", "ticket"]
    promote(second, cancel_open=True)
    assert open_names() == ["ticket"]
    told = [entry for entry in entries_of(session) if entry[0] != "session_waiting"]
    assert [kind for kind, _ in told] == ["input_updated", "input_updated", "tool_result", "tool_result"]
    assert told[1][1]["changes"] == {"delivery": "steering", "cancel_open": True}
    said = told[2][1]
    assert said["outcome"] == "cancelled"
    assert "newer message" in said["content"][0]["text"]
    row = factories.reread(session)
    assert row.status == "waiting"  # for the backend
    assert [item["kind"] for item in row.waiting_on] == ["tool"]


def test_a_repeated_promotion_does_not_close_a_newer_prompt() -> None:
    """A56: the flag acts at the moment of the promotion and not later."""
    session = prompting()
    row = factories.received_input(session)
    promote(row, cancel_open=True)
    factories.tool_call(session, state="waiting", tool_class="human", name="ask_again")
    promote(row, cancel_open=True)
    assert open_names() == ["ticket", "ask_again"]


def test_steering_with_the_flag_closes_prompts_and_the_model_speaks_next() -> None:
    """H5, S7: the turn goes on by itself where nothing else was open."""
    session = prompting()
    ToolCall.objects.filter(name="ticket").update(
        state="completed", outcome="succeeded", content=[], completed_at=factories.database_now()
    )
    made = inputs.submit_input(
        session=session.pk,
        content=[{"type": "text", "text": "never mind"}],
        actor=ACTOR,
        delivery="steering",
        cancel_open=True,
    )
    assert open_names() == []
    assert [kind for kind, _ in entries_of(session)] == ["input_received", "tool_result", "tool_result"]
    assert entries_of(session)[0][1]["cancel_open"] is True
    row = factories.reread(session)
    assert (row.status, row.turn_id, row.waiting_on) == ("queued", session.turn_id, [])
    assert made.state == "received"


def test_queued_input_with_the_flag_is_refused_and_closes_nothing() -> None:
    """A57"""
    session = prompting()
    with pytest.raises(Invalid):
        inputs.submit_input(session=session.pk, content=[], actor=ACTOR, cancel_open=True)
    assert len(open_names()) == 3
    assert not Input.objects.exists()
    assert entries_of(session) == []


# --- taken, gone, archived -------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_a_taken_input_cannot_be_changed(change: str) -> None:
    """I3: 409 with the input as it is."""
    session = factories.session()
    row = ready_for(change, session)
    turn = factories.open_turn(session)
    Input.objects.filter(pk=row.pk).update(state="delivered", turn=turn)
    with pytest.raises(InputTaken) as caught:
        CHANGES[change](row)
    assert caught.value.data["current"].state == "delivered"
    assert entries_of(session) == []


@pytest.mark.parametrize("change", CHANGES)
def test_input_that_is_not_there_or_belongs_to_an_archived_session(change: str) -> None:
    """I6"""
    with pytest.raises(NotFound):
        CHANGES[change](Input(pk=ids.new_id()))
    session = factories.session(status="archived", archived_at=factories.database_now())
    with pytest.raises(SessionArchived):
        CHANGES[change](ready_for(change, session))


# --- races with the worker -------------------------------------------------------------------------------


def plans_delivery(session: Session, worker: Worker) -> steps.StepWrite:
    """The step of a worker that has just claimed: it starts a turn with what is next, as planned now."""
    row = factories.reread(session)
    state = states.load({row.pk: row.attempt})[row.pk]
    course = following.follow(state, may_act=True)
    assert course.then.deliver
    return steps.StepWrite(
        session=row.pk, attempt=row.attempt, work_rev=state.work_rev, entries=(), then=course.then
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["change", "delivery"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_races_its_delivery_comes_before_it_or_is_a_conflict(change: str, first: str) -> None:
    """I5, I3, S11: whoever gets the lock first. The input is delivered once or waits; never both, never neither."""
    worker = factories.worker()
    session = factories.session()
    row = ready_for(change, session)
    factories.leased(session, worker)
    step = plans_delivery(session, worker)
    assert step.then.deliver == (row.pk,)
    acts: dict[str, Callable[[], Any]] = {
        "change": lambda: CHANGES[change](row),
        "delivery": lambda: steps.commit_steps(worker.pk, [step]),
    }
    second = "delivery" if first == "change" else "change"
    with holding(LOCK, session.pk):
        contenders = {first: Contender(acts[first])}
        wait_until_blocked()
        contenders[second] = Contender(acts[second])
        wait_until_blocked(2)
    (result,) = contenders["delivery"].result()
    stored = Input.objects.get(pk=row.pk)
    messages = Entry.objects.filter(session=session, kind="user_message")
    if first == "delivery":
        assert not result.moved
        with pytest.raises(InputTaken):
            contenders["change"].result()
        assert (stored.state, messages.count()) == ("delivered", 1)
        return
    contenders["change"].result()
    assert result.moved
    assert not messages.exists()
    assert not Turn.objects.filter(session=session).exists()
    assert stored.state == ("cancelled" if change == "cancel" else "received")
    # The worker reads again and delivers what is next by then, once.
    again = plans_delivery(session, worker)
    (result,) = steps.commit_steps(worker.pk, [again])
    assert not result.moved
    delivered = Input.objects.get(session=session, state="delivered")
    assert delivered.content[0]["text"] == ("it" if change in {"promote", "demote"} else "other")
    assert messages.count() == 1
    assert factories.reread(session).turn_count == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", CHANGES)
def test_a_claim_passes_over_a_session_whose_queue_is_being_changed_and_finds_it_afterwards(
    change: str,
) -> None:
    """I5, L2: it is due before and after; the claim in between neither waits nor takes the old state."""
    session = factories.session()
    row = ready_for(change, session)
    Session.objects.filter(pk=session.pk).update(status="queued", wake_at=factories.database_now(-1))
    worker = factories.worker()
    with holding("SELECT FROM sessions_app_input WHERE id = %s FOR UPDATE", row.pk):
        # The change holds the session and waits for the input's row.
        changing = Contender(lambda: CHANGES[change](row))
        wait_until_blocked()
        assert leases.claim(worker=worker.pk, limit=5) == []
    changing.result()
    assert [claimed.session for claimed in leases.claim(worker=worker.pk, limit=5)] == [session.pk]
    step = plans_delivery(session, worker)
    (result,) = steps.commit_steps(worker.pk, [step])
    assert not result.moved
