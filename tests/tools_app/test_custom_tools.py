"""Custom tools: the first result wins, whoever races for it, and nothing that was done is lost."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions_app import control, ids, scheduling, steps
from sessions_app.errors import Invalid, NotFound
from sessions_app.models import Artifact, Entry, Session, SessionStatus
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, eventually, holding, wait_until_blocked
from tools_app import claims, custom_tools, tool_calls
from tools_app.models import ToolCall, ToolCallState

TEXT = [{"type": "text", "text": "TICKET-1"}]
OTHER = [{"type": "text", "text": "TICKET-2"}]
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"


@pytest.fixture
def idle(db: None) -> Session:
    """A session in the middle of a turn that waits, without a worker."""
    made = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(made)
    return made


def waiting_call(session: Session, **columns: Any) -> ToolCall:
    return factories.tool_call(session, state="waiting", **{"name": "create_ticket"} | columns)


def submit(call: ToolCall, content: Any = TEXT, outcome: str = "succeeded", **how: Any) -> ToolCall:
    project = how.pop("project", call.project_id)
    return custom_tools.submit_result(
        project=project, tool_call=call.pk, outcome=outcome, content=content, actor=ACTOR, **how
    )


def keep_late(call: ToolCall, content: Any = TEXT) -> bool:
    return custom_tools.keep_late_answer(
        project=call.project_id, tool_call=call.pk, outcome="succeeded", content=content, actor=ACTOR
    )


def log_of(session: Session, kind: str) -> list[Entry]:
    return list(Entry.objects.filter(session=session, kind=kind).order_by("seq"))


def sweep(session: Session) -> None:
    """What the sweeper does with a session whose deadline has passed."""
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session.pk)
        scheduling.reschedule(row)
        row.save()


# --- the result ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_result_is_stored_with_its_entry_and_the_session_is_due(idle: Session, outcome: str) -> None:
    """T6, S2, S11: one transaction, named after who brought it."""
    call = waiting_call(idle)
    row = submit(call, outcome=outcome)
    assert (row.state, row.outcome, row.content, row.answered_by) == ("completed", outcome, TEXT, ACTOR)
    (entry,) = log_of(idle, "tool_result")
    assert entry.data == {
        "tool_call": ids.encode("tcl", call.pk),
        "id": call.call_id,
        "name": "create_ticket",
        "outcome": outcome,
        "content": TEXT,
    }
    assert (entry.actor, entry.turn_id) == (ACTOR, idle.turn_id)
    now = factories.reread(idle)
    assert (now.status, now.waiting_on) == (SessionStatus.QUEUED, [])
    assert now.wake_at <= factories.database_now()


def test_a_session_waits_on_for_the_calls_that_are_still_open(idle: Session) -> None:
    """T2: the model goes on when every call has its result."""
    first, second = waiting_call(idle), waiting_call(idle)
    submit(first)
    now = factories.reread(idle)
    assert (now.status, now.wake_at) == (SessionStatus.WAITING, None)
    assert [item["id"] for item in now.waiting_on] == [ids.encode("tcl", second.pk)]
    submit(second)
    assert factories.reread(idle).status == SessionStatus.QUEUED


def test_a_result_is_progress(idle: Session) -> None:
    """R9: the count of crashes starts again."""
    Session.objects.filter(pk=idle.pk).update(crash_count=3)
    submit(waiting_call(idle))
    assert factories.reread(idle).crash_count == 0


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}], [{"type": "data", "value": None}]])
def test_an_empty_result_is_a_result(idle: Session, content: Any) -> None:
    """A85."""
    call = waiting_call(idle)
    assert submit(call, content).content == content
    assert log_of(idle, "tool_result")[0].data["content"] == content


def test_media_becomes_an_artifact_of_the_project(idle: Session) -> None:
    """A85."""
    call = waiting_call(idle)
    row = submit(call, [{"type": "media", "data": "aGVsbG8=", "media_type": "image/png"}])
    (artifact,) = Artifact.objects.filter(project=call.project_id)
    assert (artifact.media_type, artifact.size) == ("image/png", 5)
    assert row.content == [{"type": "media", "artifact": ids.encode("art", artifact.pk)}]
    again = waiting_call(idle)
    assert submit(again, row.content).content == row.content


def test_files_of_others_are_not_there_and_the_call_stays_open(idle: Session) -> None:
    call = waiting_call(idle)
    foreign = [{"type": "media", "artifact": ids.encode("art", ids.new_id())}]
    with pytest.raises(Invalid, match="no such artifact"):
        submit(call, foreign)
    call.refresh_from_db()
    assert call.state == "waiting"


def test_a_result_that_is_too_long_is_cut_and_kept_in_full(idle: Session, tenure: Any) -> None:
    """S8."""
    tenure(tool_output_limit=1000)
    call = waiting_call(idle)
    text = "a" * 3000 + "the end"
    row = submit(call, [{"type": "text", "text": text}])
    (artifact,) = Artifact.objects.filter(project=call.project_id)
    (block,) = row.content
    assert len(block["text"]) <= 1000
    assert block["text"].startswith("aaa")
    assert "the end" in block["text"]
    assert f"artifact {ids.encode('art', artifact.pk)}" in block["text"]
    assert artifact.size == len(text)


def test_the_second_result_is_told_what_is_stored(idle: Session) -> None:
    """T6, C102: also an equal one; nothing is written, and the session is not due a second time."""
    call = waiting_call(idle)
    submit(call)
    before = factories.reread(idle)
    for content in (TEXT, OTHER):
        with pytest.raises(custom_tools.ToolCallCompleted) as refused:
            submit(call, content)
        current = refused.value.data["current"]
        assert (current.pk, current.state, current.outcome, current.content) == (
            call.pk,
            "completed",
            "succeeded",
            TEXT,
        )
        assert not custom_tools.came_too_late(current)
        assert not keep_late(call, content)
    assert len(log_of(idle, "tool_result")) == 1
    assert log_of(idle, "tool_call_updated") == []
    assert (factories.reread(idle).work_rev, factories.reread(idle).next_seq) == (
        before.work_rev,
        before.next_seq,
    )


def test_a_call_that_awaits_approval_can_have_no_result_yet(idle: Session) -> None:
    """A85."""
    call = factories.tool_call(idle, state="awaiting_approval", tool_class="custom")
    with pytest.raises(custom_tools.ToolCallNotReady):
        submit(call)
    call.refresh_from_db()
    assert call.state == "awaiting_approval"


@pytest.mark.parametrize(
    ("state", "tool_class"),
    [
        ("running", "outside"),
        ("ready", "internal"),
        ("waiting", "human"),
        ("waiting", "command"),
        ("awaiting_approval", "outside"),
    ],
)
def test_only_custom_calls_get_their_result_from_a_backend(
    idle: Session, state: str, tool_class: str
) -> None:
    """A85."""
    call = factories.tool_call(idle, state=state, tool_class=tool_class)
    with pytest.raises(custom_tools.ToolCallNotCustom, match=tool_class):
        submit(call)
    call.refresh_from_db()
    assert call.state == state


def test_calls_of_other_projects_are_not_found(idle: Session) -> None:
    """A85."""
    call = waiting_call(idle)
    other = factories.project()
    for act in (
        lambda: submit(call, project=other.pk),
        lambda: tool_calls.read(project=other.pk, tool_call=call.pk),
        lambda: claims.extend(project=other.pk, tool_call=call.pk, token="t", lease_seconds=5),
        lambda: claims.release(project=other.pk, tool_call=call.pk, token="t"),
        lambda: tool_calls.read(project=call.project_id, tool_call=ids.new_id()),
    ):
        with pytest.raises(NotFound):
            act()
    assert log_of(idle, "tool_result") == []


def test_what_a_result_costs_does_not_depend_on_the_log(idle: Session) -> None:
    """The hot path: so many statements, whatever there was before."""
    factories.received_input(idle)
    for _ in range(30):
        factories.tool_call(idle, state="completed", tool_class="custom")
    call = waiting_call(idle)
    with CaptureQueriesContext(connection) as queries:
        submit(call)
    # Savepoints of the test's own transaction apart; the append goes past Django.
    sent = [item["sql"] for item in queries if not item["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    assert len(sent) == 9, sent


def test_the_database_keeps_who_answered_and_whose_call_it_is(idle: Session) -> None:
    """A67."""
    call = waiting_call(idle)
    submit(call)
    for change in ({"answered_by": {"kind": "user"}}, {"project_id": factories.project().pk}):
        with pytest.raises(IntegrityError, match="tool call"), transaction.atomic():
            ToolCall.objects.filter(pk=call.pk).update(**change)


# --- deadlines, cancel -----------------------------------------------------------------------------------


def test_a_deadline_that_passed_says_what_nobody_knows(idle: Session) -> None:
    """S12, C103: the model is told that the action may have happened."""
    call = waiting_call(idle, deadline=factories.database_now(-1))
    sweep(idle)
    call.refresh_from_db()
    assert (call.state, call.outcome) == ("completed", "failed")
    assert "may have happened" in call.content[0]["text"]
    assert tool_calls.has_expired(call)
    assert factories.reread(idle).status == SessionStatus.QUEUED


def test_the_answer_after_the_deadline_is_refused_and_kept(idle: Session) -> None:
    """C103, T5: once, so that a backend that tries again and again does not fill the log."""
    call = waiting_call(idle, deadline=factories.database_now(-1))
    sweep(idle)
    with pytest.raises(custom_tools.ToolCallCompleted, match="expired") as refused:
        submit(call)
    assert custom_tools.came_too_late(refused.value.tool_call)
    assert keep_late(call)
    assert not keep_late(call)
    assert not keep_late(call, OTHER)
    (entry,) = log_of(idle, "tool_call_updated")
    assert (entry.data["content"], entry.data["update"]) == (TEXT, "late answer: succeeded")
    assert (entry.data["tool_call"], entry.actor) == (ids.encode("tcl", call.pk), ACTOR)
    call.refresh_from_db()
    assert (call.outcome, call.answered_by) == ("failed", ACTOR)
    with pytest.raises(custom_tools.ToolCallCompleted, match="expired"):
        submit(call)


def test_the_answer_after_a_cancel_is_refused_and_kept(idle: Session) -> None:
    """I6, T5."""
    call = waiting_call(idle)
    control.cancel(session=idle.pk, actor=ACTOR)
    with pytest.raises(custom_tools.ToolCallCompleted, match="cancelled"):
        submit(call)
    assert keep_late(call)
    assert len(log_of(idle, "tool_call_updated")) == 1
    assert factories.reread(idle).status == SessionStatus.IDLE


def test_a_failure_that_the_backend_posted_is_an_answer(idle: Session) -> None:
    """C103: only where nobody answered is there anything to keep."""
    call = waiting_call(idle)
    submit(call, outcome="failed")
    assert not keep_late(call)


def test_an_answer_before_anybody_looked_at_the_deadline_wins(idle: Session) -> None:
    """S12: an answer that was acknowledged wins."""
    call = waiting_call(idle, deadline=factories.database_now(-1))
    assert submit(call).outcome == "succeeded"
    sweep(idle)
    assert len(log_of(idle, "tool_result")) == 1


# --- progress --------------------------------------------------------------------------------------------


def claimed(call: ToolCall, seconds: float = 60) -> str:
    taken = claims.claim(project=call.project_id, names=None, limit=1, lease_seconds=seconds, actor=ACTOR)
    assert [row.pk for row in taken.calls] == [call.pk]
    return taken.token


def progress(call: ToolCall, token: str, text: str = "half") -> ToolCall:
    content = [{"type": "text", "text": text}]
    return custom_tools.report_progress(
        project=call.project_id, tool_call=call.pk, token=token, content=content, actor=ACTOR
    )


def test_progress_is_an_entry_and_no_work_for_the_session(idle: Session) -> None:
    """T6."""
    call = waiting_call(idle)
    row = progress(call, claimed(call))
    assert (row.state, row.updates) == ("waiting", 1)
    (entry,) = log_of(idle, "tool_call_updated")
    assert (entry.data["update"], entry.data["content"][0]["text"]) == ("progress", "half")
    now = factories.reread(idle)
    assert (now.status, now.wake_at, now.work_rev) == (SessionStatus.WAITING, None, 0)


def test_progress_is_bounded(idle: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend in a loop can't fill the log."""
    monkeypatch.setattr(custom_tools, "MAX_UPDATES", 2)
    call = waiting_call(idle)
    token = claimed(call)
    progress(call, token, "x" * 100_000)
    progress(call, token)
    with pytest.raises(custom_tools.ProgressLimit):
        progress(call, token)
    first, _ = log_of(idle, "tool_call_updated")
    assert len(first.data["content"][0]["text"]) <= custom_tools.MAX_UPDATE


def test_progress_needs_the_claim(idle: Session) -> None:
    """T6: whoever lost it is told."""
    call = waiting_call(idle)
    token = claimed(call)
    for wrong in ("", token + "x"):
        with pytest.raises(claims.ClaimLost):
            progress(call, wrong)
    submit(call)
    with pytest.raises(claims.ClaimLost) as lost:
        progress(call, token)
    assert lost.value.data["current"].state == "completed"
    assert log_of(idle, "tool_call_updated") == []


# --- races -----------------------------------------------------------------------------------------------


@pytest.fixture
def real(transactional_db: None) -> Session:
    """As `idle`, for several connections."""
    made = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(made)
    return made


def test_of_two_results_at_once_exactly_one_wins(real: Session) -> None:
    """T6, C102: both have looked before either is stored."""
    call = waiting_call(real)
    with holding(LOCK, real.pk):
        both = [Contender(lambda text=text: submit(call, text)) for text in (TEXT, OTHER)]
        wait_until_blocked(2)
    won, lost = [], []
    for contender in both:
        try:
            won.append(contender.result())
        except custom_tools.ToolCallCompleted as error:
            lost.append(error.data["current"].content)
    assert len(won) == 1
    assert lost == [won[0].content]
    assert len(log_of(real, "tool_result")) == 1
    assert factories.reread(real).work_rev == 1


@pytest.mark.parametrize("first", ["result", "deadline"])
def test_a_result_and_the_deadline_end_with_one_of_both(real: Session, first: str) -> None:
    """S12, C103: whoever gets the session's lock first."""
    call = waiting_call(real, deadline=factories.database_now(-1))
    acts = {"result": lambda: submit(call), "deadline": lambda: sweep(real)}
    last = "deadline" if first == "result" else "result"
    with holding(LOCK, real.pk):
        winner = Contender(acts[first])
        wait_until_blocked(1)
        loser = Contender(acts[last])
        wait_until_blocked(2)
    winner.result()
    if first == "result":
        loser.result()
    else:
        with pytest.raises(custom_tools.ToolCallCompleted, match="expired"):
            loser.result()
    call.refresh_from_db()
    assert call.outcome == ("succeeded" if first == "result" else "failed")
    assert len(log_of(real, "tool_result")) == 1


@pytest.mark.parametrize("end", ["cancel", "archive"])
@pytest.mark.parametrize("first", ["result", "end"])
def test_a_result_and_an_end_of_the_turn_end_with_one_of_both(real: Session, first: str, end: str) -> None:
    """I6."""
    call = waiting_call(real)
    stop = control.cancel if end == "cancel" else control.archive
    acts = {"result": lambda: submit(call), "end": lambda: stop(session=real.pk, actor=ACTOR)}
    last = "end" if first == "result" else "result"
    with holding(LOCK, real.pk):
        winner = Contender(acts[first])
        wait_until_blocked(1)
        loser = Contender(acts[last])
        wait_until_blocked(2)
    winner.result()
    if first == "result":
        loser.result()
    else:
        with pytest.raises(custom_tools.ToolCallCompleted, match="cancelled"):
            loser.result()
    call.refresh_from_db()
    assert call.outcome == ("succeeded" if first == "result" else "cancelled")
    assert len(log_of(real, "tool_result")) == 1
    assert factories.reread(real).status == ("idle" if end == "cancel" else "archived")


def test_a_result_for_a_session_that_a_worker_holds_makes_it_plan_again(transactional_db: None) -> None:
    """S11: its next step is saved, but not what it had planned to follow."""
    worker = factories.worker()
    held = factories.running(worker)
    call = waiting_call(held)
    submit(call)
    now = factories.reread(held)
    assert (now.status, now.work_rev, now.wake_at) == (SessionStatus.RUNNING, 1, None)
    step = steps.StepWrite(session=held.pk, attempt=held.attempt, work_rev=0)
    (saved,) = steps.commit_steps(worker.pk, [step])
    assert isinstance(saved, steps.Saved)
    assert saved.moved
    assert saved.first_seq == now.next_seq


def test_two_late_answers_at_once_are_kept_once(real: Session) -> None:
    """C103."""
    call = waiting_call(real)
    control.cancel(session=real.pk, actor=ACTOR)
    with holding(LOCK, real.pk):
        both = [Contender(lambda text=text: keep_late(call, text)) for text in (TEXT, OTHER)]
        wait_until_blocked(2)
    assert sorted(contender.result() for contender in both) == [False, True]
    assert len(log_of(real, "tool_call_updated")) == 1


def test_a_claim_does_not_block_a_result(real: Session) -> None:
    """T6: not even while somebody is just claiming the call."""
    call = waiting_call(real)
    claimed(call)
    with holding("SELECT FROM tools_app_toolcall WHERE id = %s FOR UPDATE", call.pk):
        result = Contender(lambda: submit(call))
        wait_until_blocked(1)
    assert result.result().state == ToolCallState.COMPLETED
    eventually(lambda: factories.reread(real).status == SessionStatus.QUEUED)
