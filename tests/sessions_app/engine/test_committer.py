"""Shared commits: what gathers goes out together, nothing is lost, and no step waits for another's lock."""

import asyncio
import dataclasses
from collections.abc import Sequence

import psycopg
import pytest

from sessions_app import ids, steps
from sessions_app.engine import committer
from sessions_app.engine.committer import MAX_BATCH, Committer


def step() -> steps.StepWrite:
    return steps.StepWrite(session=ids.new_id(), attempt=1, work_rev=0)


SAVED = steps.Saved(moved=False, first_seq=1, work_rev=0)


class Database:
    """Commits by hand: each batch is shown in `batches` and answered when the test says so."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[tuple[list[steps.StepWrite], asyncio.Future]] = asyncio.Queue()
        self.sizes: list[int] = []
        self.under_way = 0
        self.most_at_once = 0

    async def commit(self, batch: Sequence[steps.StepWrite]) -> list[steps.StepResult | steps.Busy]:
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        self.sizes.append(len(batch))
        answer = asyncio.get_running_loop().create_future()
        await self.batches.put((list(batch), answer))
        try:
            return await answer
        finally:
            self.under_way -= 1

    async def expect(self) -> tuple[list[steps.StepWrite], asyncio.Future]:
        async with asyncio.timeout(2):
            return await self.batches.get()


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(committer, "_FIRST_PAUSE", 0.001)


async def start(shared: Committer, wanted: Sequence[steps.StepWrite]) -> list[asyncio.Task]:
    tasks = [asyncio.create_task(shared.commit(one)) for one in wanted]
    await asyncio.sleep(0)
    return tasks


async def test_a_lone_step_is_committed_at_once(database: Database):
    """No timer: under little load a step waits for nobody"""
    shared = Committer(database.commit)
    first = step()
    (task,) = await start(shared, [first])
    batch, answer = await database.expect()
    assert batch == [first]
    answer.set_result([SAVED])
    assert await task == SAVED


async def test_steps_that_gather_share_the_next_commit_in_their_order(database: Database):
    """One commit is under way at a time; each gets its own result"""
    shared = Committer(database.commit)
    first, *others = [step() for _ in range(6)]
    (leading,) = await start(shared, [first])
    _, answer = await database.expect()
    tasks = await start(shared, others)
    answer.set_result([SAVED])
    batch, answer = await database.expect()
    assert batch == others
    results = [dataclasses.replace(SAVED, first_seq=number) for number in range(5)]
    answer.set_result(results)
    assert [await task for task in tasks] == results
    assert await leading == SAVED
    assert database.most_at_once == 1


async def test_a_crowd_is_committed_in_batches_of_bounded_size(database: Database):
    shared = Committer(database.commit)
    tasks = await start(shared, [step() for _ in range(2 * MAX_BATCH + 3)])
    for _ in range(3):
        batch, answer = await database.expect()
        answer.set_result([SAVED] * len(batch))
    assert await asyncio.gather(*tasks) == [SAVED] * len(tasks)
    assert database.sizes == [MAX_BATCH, MAX_BATCH, 3]


@pytest.mark.usefixtures("quick")
async def test_the_same_batch_is_tried_again_while_the_database_is_away(database: Database):
    """C71, S10: with the same ids, so what was saved all the same is found"""
    shared = Committer(database.commit)
    wanted = [step(), step()]
    tasks = await start(shared, wanted)
    for _ in range(3):
        batch, answer = await database.expect()
        assert batch == wanted
        answer.set_exception(psycopg.OperationalError("the server is gone"))
    batch, answer = await database.expect()
    assert batch == wanted
    answer.set_result([SAVED, steps.Lost(None)])
    assert [await task for task in tasks] == [SAVED, steps.Lost(None)]


async def test_a_final_error_reaches_everybody_in_the_batch_and_nobody_behind_it(database: Database):
    """C71: never tried again; the next batch is its own"""
    shared = Committer(database.commit)
    tasks = await start(shared, [step(), step()])
    _, answer = await database.expect()
    (later,) = await start(shared, [step()])
    answer.set_exception(ValueError("no such thing"))
    for task in tasks:
        with pytest.raises(ValueError, match="no such thing"):
            await task
    _, answer = await database.expect()
    answer.set_result([SAVED])
    assert await later == SAVED


@pytest.mark.usefixtures("quick")
async def test_a_step_whose_session_stays_locked_delays_no_other(database: Database):
    """L11: set aside and tried again alone, while batches go on beside it; it is never reported lost"""
    shared = Committer(database.commit)
    locked, free = step(), step()
    waiting, saved = await start(shared, [locked, free])
    _, answer = await database.expect()
    answer.set_result([steps.Busy(psycopg.errors.LockNotAvailable("locked")), SAVED])
    assert await saved == SAVED

    batch, again = await database.expect()
    assert batch == [locked]
    # That try hangs in the database. Others come and go meanwhile.
    for _ in range(3):
        other = step()
        (task,) = await start(shared, [other])
        batch, answer = await database.expect()
        assert batch == [other]
        answer.set_result([SAVED])
        assert await task == SAVED
    assert not waiting.done()

    again.set_result([steps.Busy(psycopg.errors.LockNotAvailable("still locked"))])
    batch, again = await database.expect()
    assert batch == [locked]
    again.set_result([SAVED])
    assert await waiting == SAVED


async def test_the_step_of_a_run_that_was_cancelled_is_committed_all_the_same(database: Database):
    """A finished act in hand is saved; the run's lease is ended behind it"""
    shared = Committer(database.commit)
    (first,) = await start(shared, [step()])
    _, answer = await database.expect()
    abandoned, other = step(), step()
    cancelled, kept = await start(shared, [abandoned, other])
    cancelled.cancel()
    answer.set_result([SAVED])
    batch, answer = await database.expect()
    assert batch == [abandoned, other]
    answer.set_result([SAVED, SAVED])
    assert (await first, await kept) == (SAVED, SAVED)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
