"""What kills every worker that takes it is stopped, and what waits behind it is not lost (R9)."""

import signal
from uuid import UUID

import pytest

from sessions_app import leases
from sessions_app.models import EndReason, InputState, SessionStatus
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.staging import eventually

pytestmark = pytest.mark.processes


def die(workers: Workers, session: UUID, *, at: str, times: int) -> None:
    for number in range(times):
        assert agents.row(session).crash_count == number
        worker = workers.start(crash_at=at)
        assert worker.wait() == -signal.SIGKILL, worker.story()
        leases.end_worker(owner=worker.owner, reason=EndReason.CRASH)


def test_the_fifth_crash_ends_the_turn_and_keeps_the_queue(workers: Workers) -> None:
    """R9, I1, A44: `crash_limit`; the input behind it waits, and goes first when somebody speaks again."""
    session = agents.start({"text": "Answer to two."}, {"text": "Answer to three."}, texts=("one", "two"))
    die(workers, session, at="model.before", times=5)
    row = agents.row(session)
    assert row.last_turn is not None
    assert (row.last_turn.status, row.last_turn.reason) == ("failed", "crash_limit")
    assert (row.status, row.waiting_on, row.wake_at) == (
        SessionStatus.WAITING,
        [{"kind": "crash_limit"}],
        None,
    )
    second = row.inputs.get(state=InputState.RECEIVED)
    assert agents.resumed(session) == [(attempt, "crash") for attempt in (2, 3, 4, 5)]

    worker = workers.start()
    other = agents.start({"text": "The worker is well."})
    agents.wait_until_at_rest(other, worker)
    assert agents.row(session).attempt == 5, "nobody may touch it"
    third = agents.say(session, "three")
    eventually(lambda: agents.row(session).turn_count == 3, within=10)
    rested = agents.wait_until_at_rest(session, worker)
    delivered = [entry.data["input"] for entry in agents.log_of(session, "user_message")]
    assert delivered[1:] == [agents.name_of("inp", second.pk), agents.name_of("inp", third)]
    assert agents.said(session) == ["Answer to two.", "Answer to three."]
    assert (rested.status, rested.crash_count) == (SessionStatus.IDLE, 0)
    assert check(session, workers.folder / "effects") == []


def test_a_session_that_kills_whoever_reads_it_is_stopped_too(workers: Workers) -> None:
    """R9: without a turn as well; before, it was claimed again for ever."""
    session = agents.start({"text": "Never."})
    die(workers, session, at="load.done", times=5)
    row = agents.row(session)
    assert (row.status, row.waiting_on, row.turn_count) == (
        SessionStatus.WAITING,
        [{"kind": "crash_limit"}],
        0,
    )


@pytest.mark.parametrize("at", ["tool.after", "step.committed:3"])
def test_progress_between_crashes_resets_the_count(workers: Workers, at: str) -> None:
    """R9: a reply without interrupted calls and a tool result are progress; an interrupted one is none."""
    replies = [{"tool_calls": [agents.call("dev_append", file=f"{n}")]} for n in range(4)]
    session = agents.start(*replies, {"text": "Done."})
    for _ in range(2):
        worker = workers.start(crash_at=at)
        assert worker.wait() == -signal.SIGKILL, worker.story()
        leases.end_worker(owner=worker.owner, reason=EndReason.CRASH)
    # At `tool.after` the replies came, but their calls were interrupted; at the third step a result was saved.
    assert agents.row(session).crash_count == (2 if at == "tool.after" else 1)
    worker = workers.start()
    assert agents.wait_until_at_rest(session, worker).crash_count == 0
