"""Inputs: stored first, delivered once, and never left lying, in every interleaving that the rules name."""

from itertools import pairwise
from typing import Any

import pytest
from django.db import transaction

from sessions_app import content, due, entries, ids, inputs, leases, log, steps
from sessions_app.errors import Invalid, NotFound, SessionArchived
from sessions_app.log import NewEntry
from sessions_app.models import Artifact, Entry, Input, Lease, Session, Turn, Worker
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, eventually, holding, wait_until_blocked

HELLO = [{"type": "text", "text": "hello"}]
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


def submit(session: Session, text: str = "hello", **values: Any) -> Input:
    return inputs.submit_input(
        session=session.pk, content=[{"type": "text", "text": text}], actor=ACTOR, **values
    )


def kinds(session: Session) -> list[str]:
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))


def finish(session: Session, worker: Worker, *, work_rev: int | None = None) -> steps.StepWrite:
    """The step that ends the open turn and releases the session, as a worker plans it."""
    row = factories.reread(session)
    assert row.turn_id is not None
    end = {"status": "succeeded", "reason": "done", "error": None}
    ended = entries.turn_ended(turn=row.turn_id, number=row.turn_count, **end)
    return steps.StepWrite(
        session=row.pk,
        attempt=row.attempt,
        work_rev=row.work_rev if work_rev is None else work_rev,
        entries=(NewEntry(kind="note", data={"text": "the last thing said"}, turn=row.turn_id),),
        then=steps.Then(
            entries=(ended,),
            turn_end=steps.TurnEnd(id=row.turn_id, **end),
            release=due.Due(None, "idle"),
        ),
    )


# --- storing ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("delivery", ["queued", "steering"])
def test_an_input_makes_an_idle_session_due_at_once(delivery: str) -> None:
    """I1, I2, S11: the input, its entry and the due time are one transaction."""
    session = factories.session()
    made = submit(session, delivery=delivery)
    row = factories.reread(session)
    assert (row.status, row.work_rev, made.state) == ("queued", 1, "received")
    assert row.wake_at <= factories.database_now()
    entry = Entry.objects.get(session=session)
    assert entry.kind == "input_received"
    assert entry.data == {"input": ids.encode("inp", made.pk), "delivery": delivery, "content": HELLO}
    assert entry.actor == made.actor == ACTOR  # I8


@pytest.mark.django_db
def test_a_leased_session_keeps_its_lease_and_its_worker_sees_the_moved_rev() -> None:
    """S11: while leased, the due time stays null; the rev is what the worker notices."""
    session = factories.running(factories.worker())
    submit(session)
    row = factories.reread(session)
    assert (row.status, row.wake_at, row.work_rev) == ("running", None, 1)
    assert Lease.objects.filter(pk=session.pk).exists()


@pytest.mark.django_db
def test_more_input_does_not_move_a_due_session_to_the_back() -> None:
    """L2: within a priority the due time is the place in the line."""
    session = factories.due()
    submit(session)
    assert factories.reread(session).wake_at == session.wake_at


@pytest.mark.django_db
def test_queued_input_leaves_a_retry_alone_and_steering_wakes_it() -> None:
    """R6: steering applies to the retry now, queued input waits for its turn."""
    retry_at = factories.database_now(60)
    session = factories.session(status="backing_off", retry_at=retry_at, wake_at=retry_at)
    factories.open_turn(session)
    submit(session)
    row = factories.reread(session)
    assert (row.status, row.wake_at) == ("backing_off", retry_at)
    submit(session, delivery="steering")
    row = factories.reread(session)
    assert row.status == "queued"
    assert row.wake_at <= factories.database_now()


@pytest.mark.django_db
def test_a_new_input_gives_a_session_at_its_crash_limit_another_chance(settings: Any) -> None:
    """R9: inherited input waits at the limit; a new one resets the count and the inherited one goes first."""
    limit = settings.TENURE.crash_limit
    session = factories.session(crash_count=limit, status="waiting", waiting_on=[{"kind": "crash_limit"}])
    inherited = factories.received_input(session)
    submit(session)
    row = factories.reread(session)
    assert (row.crash_count, row.status, row.waiting_on) == (0, "queued", [])
    queue = Input.objects.filter(session=session).order_by("rank")
    assert queue[0].pk == inherited.pk


@pytest.mark.django_db
def test_an_archived_session_takes_no_input() -> None:
    """A142: a new input to an archived session is a conflict, and nothing of it is stored."""
    session = factories.session(status="archived", archived_at=factories.database_now())
    with pytest.raises(SessionArchived):
        submit(session)
    assert not Input.objects.exists()
    assert kinds(session) == []


@pytest.mark.django_db
def test_an_input_to_no_session_is_not_found() -> None:
    with pytest.raises(NotFound):
        inputs.submit_input(session=ids.new_id(), content=HELLO, actor=ACTOR)


# --- content ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path", "code"),
    [
        (7, "/content", "wrong_type"),
        ([], "/content", "out_of_range"),
        ("  \n", "/content", "too_short"),
        (["x"], "/content/0", "wrong_type"),
        ([{"type": "reasoning", "text": "x"}], "/content/0/type", "not_allowed"),
        ([{"type": []}], "/content/0/type", "not_allowed"),
        ([{"type": "text"}], "/content/0/text", "required"),
        ([{"type": "text", "text": 1}], "/content/0/text", "wrong_type"),
        ([{"type": "text", "text": "x", "tone": "kind"}], "/content/0/tone", "unknown_field"),
        ([{"type": "data"}], "/content/0/value", "required"),
        ([{"type": "media"}], "/content/0", "not_allowed"),
        ([{"type": "media", "artifact": "inp_1"}], "/content/0/artifact", "malformed"),
        ([{"type": "media", "data": "%%", "media_type": "image/png"}], "/content/0/data", "malformed"),
        ([{"type": "media", "data": "AA=="}], "/content/0/media_type", "required"),
        ([{"type": "data", "value": float("nan")}], "/0/value", "nan"),
    ],
)
def test_content_that_is_none_is_refused_with_its_place(value: Any, path: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        content.parse(value)
    assert [(error["path"], error["code"]) for error in caught.value.errors] == [(path, code)]


def test_every_wrong_block_is_named() -> None:
    with pytest.raises(Invalid) as caught:
        content.parse([{"type": "text"}, {"type": "text", "text": "fine"}, {"type": "data"}])
    assert [error["path"] for error in caught.value.errors] == ["/content/0/text", "/content/2/value"]


def test_a_bare_string_is_one_text_block_and_what_cannot_be_stored_is_replaced() -> None:
    """S8: U+0000 and lone surrogates become U+FFFD before anything is stored."""
    assert content.parse("a\0\ud800") == [{"type": "text", "text": "a\ufffd\ufffd"}]


@pytest.mark.django_db
def test_bytes_in_a_request_become_an_artifact_and_the_log_holds_its_id(settings: Any, tmp_path: Any) -> None:
    settings.STORAGES = settings.STORAGES | {
        "default": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        }
    }
    session = factories.session()
    blocks = content.parse([{"type": "media", "data": "iVBORw==", "media_type": "image/png"}])
    made = inputs.submit_input(session=session.pk, content=blocks, actor=ACTOR)
    artifact = Artifact.objects.get(project=session.project_id)
    assert (artifact.media_type, artifact.size) == ("image/png", 4)
    reference = [{"type": "media", "artifact": ids.encode("art", artifact.pk)}]
    assert made.content == Entry.objects.get(session=session).data["content"] == reference
    again = inputs.submit_input(session=session.pk, content=reference, actor=ACTOR)
    assert again.content == reference


@pytest.mark.django_db
def test_an_artifact_of_another_project_does_not_exist() -> None:
    session = factories.session()
    foreign = Artifact.objects.create(
        project=factories.project(), name="x", media_type="image/png", size=0, sha256="", storage_name="x"
    )
    blocks = content.parse([{"type": "media", "artifact": ids.encode("art", foreign.pk)}])
    with pytest.raises(Invalid) as caught:
        inputs.submit_input(session=session.pk, content=blocks, actor=ACTOR)
    assert caught.value.errors[0]["code"] == "not_found"
    assert not Input.objects.exists()


# --- cancelling ------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_waiting_input_is_cancelled_once_and_the_session_rests() -> None:
    """I3: cancelling is an entry, repeating it writes nothing."""
    session = factories.session()
    made = submit(session)
    for _ in range(2):
        assert inputs.cancel_input(input=made.pk, actor=ACTOR).state == "cancelled"
    row = factories.reread(session)
    assert (row.status, row.wake_at) == ("idle", None)
    assert kinds(session) == ["input_received", "input_cancelled"]


@pytest.mark.django_db
def test_cancelling_a_queued_input_leaves_the_retry_time_unchanged() -> None:
    """A54: the queue and the retry have nothing to do with each other."""
    retry_at = factories.database_now(60)
    session = factories.session(status="backing_off", retry_at=retry_at, wake_at=retry_at)
    factories.open_turn(session)
    inputs.cancel_input(input=submit(session).pk, actor=ACTOR)
    row = factories.reread(session)
    assert (row.status, row.wake_at) == ("backing_off", retry_at)


@pytest.mark.django_db
def test_a_taken_input_stays_taken_and_the_conflict_shows_it() -> None:
    """I3: once taken, 409 with the input as it is."""
    session = factories.session()
    made = submit(session)
    turn = factories.open_turn(factories.reread(session))
    Input.objects.filter(pk=made.pk).update(state="delivered", turn=turn)
    with pytest.raises(inputs.InputTaken) as caught:
        inputs.cancel_input(input=made.pk, actor=ACTOR)
    assert caught.value.status == 409
    assert caught.value.data["current"].state == "delivered"


@pytest.mark.django_db(transaction=True)
def test_an_input_cancelled_before_its_delivery_commits_is_not_delivered() -> None:
    """I1, I3: the step planned to deliver it; the cancel moved the rev, so that part of the step is left out."""
    session = factories.session()
    made = submit(session)
    worker = factories.worker()
    row = factories.reread(session)
    factories.leased(row, worker)
    turn = ids.new_id()
    message = entries.user_message(input_id=made.pk, delivery="queued", content=HELLO, actor=ACTOR, turn=turn)
    step = steps.StepWrite(
        session=row.pk,
        attempt=row.attempt,
        work_rev=row.work_rev,
        entries=(NewEntry(kind="note", data={"text": "resumed"}),),
        then=steps.Then(
            entries=(message,), turn_start=steps.TurnStart(id=turn, number=1), deliver=(made.pk,)
        ),
    )
    with holding(LOCK, session.pk):
        cancelling = Contender(lambda: inputs.cancel_input(input=made.pk, actor=ACTOR))
        wait_until_blocked()
        committing = Contender(lambda: steps.commit_steps(worker.pk, [step]))
        wait_until_blocked(2)
    assert cancelling.result().state == "cancelled"
    assert committing.result()[0].moved
    assert kinds(session) == ["input_received", "input_cancelled", "note"]
    assert Input.objects.get().state == "cancelled"


# --- races -----------------------------------------------------------------------------------------------


@pytest.fixture
def ending() -> tuple[Session, Worker]:
    """A session whose turn is about to end, and its worker."""
    worker = factories.worker()
    return factories.running(worker), worker


@pytest.mark.django_db(transaction=True)
def test_an_input_that_comes_before_the_end_of_the_turn_is_seen_by_it(ending: tuple[Session, Worker]) -> None:
    """I5, S11: the input got the lock first, so the turn does not end and its worker plans again."""
    session, worker = ending
    step = finish(session, worker)
    with holding(LOCK, session.pk):
        submitting = Contender(lambda: submit(session))
        wait_until_blocked()
        committing = Contender(lambda: steps.commit_steps(worker.pk, [step]))
        wait_until_blocked(2)
    submitting.result()
    (result,) = committing.result()
    assert result.moved
    row = factories.reread(session)
    assert (row.status, row.work_rev) == ("running", 1)
    assert row.turn_id is not None
    assert Lease.objects.filter(pk=session.pk).exists()
    assert kinds(session) == ["input_received", "note"]  # what happened is saved, what followed is not
    (result,) = steps.commit_steps(worker.pk, [finish(session, worker)])
    assert not result.moved


@pytest.mark.django_db(transaction=True)
def test_an_input_that_comes_behind_the_end_of_the_turn_makes_the_session_due(
    ending: tuple[Session, Worker],
) -> None:
    """I5, S11: the end got the lock first; the input finds a resting session and wakes it."""
    session, worker = ending
    step = finish(session, worker)
    with holding(LOCK, session.pk):
        committing = Contender(lambda: steps.commit_steps(worker.pk, [step]))
        wait_until_blocked()
        submitting = Contender(lambda: submit(session))
        wait_until_blocked(2)
    (result,) = committing.result()
    assert not result.moved
    submitting.result()
    row = factories.reread(session)
    assert (row.status, row.turn_id) == ("queued", None)
    assert kinds(session) == ["note", "turn_ended", "input_received"]
    assert [claim.session for claim in leases.claim(worker=worker.pk, limit=1)] == [session.pk]


@pytest.mark.django_db(transaction=True)
def test_an_input_committed_between_plan_and_step_keeps_the_turn_open(ending: tuple[Session, Worker]) -> None:
    """I5: no lock is held by anybody any more, the rev alone tells."""
    session, worker = ending
    step = finish(session, worker)
    submit(session)
    (result,) = steps.commit_steps(worker.pk, [step])
    assert result.moved
    assert factories.reread(session).turn_id is not None


@pytest.mark.django_db(transaction=True)
def test_an_input_that_races_many_ends_in_one_commit_is_lost_by_none(ending: tuple[Session, Worker]) -> None:
    """I5: a shared commit skips the busy session, tries it alone and sees the input then."""
    session, worker = ending
    other = factories.running(worker)
    both = [finish(session, worker), finish(other, worker)]
    with holding(LOCK, session.pk):
        submitting = Contender(lambda: submit(session))
        wait_until_blocked()
        committing = Contender(lambda: steps.commit_steps(worker.pk, both))
        eventually(lambda: factories.reread(other).status == "idle")
        wait_until_blocked(2)
    submitting.result()
    first, second = committing.result()
    assert (first.moved, second.moved) == (True, False)
    assert Turn.objects.get(session=session).status == "running"
    assert kinds(session) == ["input_received", "note"]


@pytest.mark.django_db(transaction=True)
def test_places_in_the_queue_follow_the_locks() -> None:
    """A144: rank and seq are given behind the lock wait, so their order is the order of the locks."""
    session = factories.session()
    with holding(LOCK, session.pk):
        contenders = []
        for number in range(3):
            contenders.append(Contender(lambda text=f"input {number}": submit(session, text)))
            wait_until_blocked(number + 1)
    made = [contender.result() for contender in contenders]
    by_rank = [row.pk for row in Input.objects.filter(session=session).order_by("rank")]
    by_seq = [
        ids.decode("inp", data["input"])
        for data in Entry.objects.filter(session=session).order_by("seq").values_list("data", flat=True)
    ]
    assert by_rank == by_seq
    assert sorted(by_rank) == sorted(row.pk for row in made)
    ranks = sorted(row.rank for row in made)
    assert all(before < after for before, after in pairwise(ranks))


@pytest.mark.django_db(transaction=True)
def test_two_writers_of_one_log_leave_neither_gap_nor_double() -> None:
    """C73, S1: 200 entries by two writers are 1..200, none lost."""
    session = factories.session()

    def write(letter: str) -> None:
        for number in range(100):
            with transaction.atomic():
                row = leases.lock_session(session.pk)
                assert row is not None
                log.append(row, NewEntry(kind="note", data={"text": f"{letter}{number}"}))
                row.save()

    for writer in [Contender(lambda letter=letter: write(letter)) for letter in "ab"]:
        writer.result(timeout=30)
    rows = list(
        Entry.objects.filter(session=session).order_by("seq").values_list("seq", "parent_seq", "data__text")
    )
    assert [(seq, parent) for seq, parent, _ in rows] == [(seq, seq - 1) for seq in range(1, 201)]
    for letter in "ab":
        mine = [text for _, _, text in rows if text.startswith(letter)]
        assert mine == [f"{letter}{number}" for number in range(100)]
    assert factories.reread(session).next_seq == 201
