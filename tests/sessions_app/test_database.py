"""What an error of the database means, and that steps survive broken connections whole and once."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connections

from sessions_app import steps
from sessions_app.database import is_transient, outcome_is_unknown, ran_out_of_time
from sessions_app.engine import worker as engine_worker
from sessions_app.engine.committer import Committer
from sessions_app.log import NewEntry
from sessions_app.models import Entry
from tests import factories
from tests.staging import another_connection


def error(state):
    return psycopg.errors.lookup(state)("it went wrong")


def wrapped(inner):
    """As Django's cursor raises it."""
    outer = DatabaseError("it went wrong")
    outer.__cause__ = inner
    return outer


TABLE = [
    # state, may pass, outcome of a COMMIT unknown
    ("22P05", False, False),
    ("22021", False, False),
    ("22003", False, False),
    ("23505", False, False),
    ("23503", False, False),
    ("23514", False, False),
    ("23001", False, False),
    ("42P01", False, False),
    ("40001", True, False),
    ("40P01", True, False),
    ("55P03", True, False),
    ("57014", True, False),
    ("25P03", True, False),
    ("53300", True, False),
    ("53100", True, False),
    ("57P01", True, True),
    ("57P02", True, True),
    ("57P03", True, True),
    ("08006", True, True),
    ("08003", True, True),
    ("08001", True, True),
]


@pytest.mark.parametrize("wrap", [lambda inner: inner, wrapped, lambda inner: wrapped(wrapped(inner))])
@pytest.mark.parametrize(("state", "transient", "unknown"), TABLE)
def test_each_sqlstate_is_final_or_may_pass(state, transient, unknown, wrap):
    """C71, S10: data and constraints are final; connections, deadlocks and time limits may pass"""
    found = wrap(error(state))
    assert is_transient(found) is transient
    assert outcome_is_unknown(found) is unknown
    assert ran_out_of_time(found) is (state in {"57014", "25P03"})


@pytest.mark.parametrize("broken", [psycopg.OperationalError("gone"), psycopg.InterfaceError("closed")])
def test_a_connection_that_breaks_without_a_word_leaves_the_outcome_open(broken):
    """S10"""
    for found in (broken, wrapped(broken)):
        assert is_transient(found)
        assert outcome_is_unknown(found)


@pytest.mark.parametrize("other", [ValueError("no"), KeyError("x"), OperationalError("not from psycopg")])
def test_other_errors_are_final(other):
    assert not is_transient(other)
    assert not outcome_is_unknown(other)
    assert not ran_out_of_time(other)


KILL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '%%sessions_app_%%' AND pid = ANY(%s)
"""
LENGTH = 30  # steps of a session at least, and as many more as it takes until
ENOUGH = 3  # connections were ended under them


@pytest.mark.django_db(transaction=True)
async def test_steps_outlive_every_connection_that_breaks_under_them():
    """S10, C83, S1: the server ends the workers' connections again and again; each step is there once, in order"""
    pool = ThreadPoolExecutor(1, initializer=engine_worker._prepare_thread, initargs=([],))
    loop = asyncio.get_running_loop()

    async def in_database(function, *args):
        return await loop.run_in_executor(pool, partial(engine_worker._with_connection, function, *args))

    def prepare():
        worker = factories.worker()
        return worker, [factories.running(worker) for _ in range(6)]

    worker, sessions = await in_database(prepare)
    pids: set[int] = set()

    def commit(batch):
        pids.add(connections["default"].connection.info.backend_pid)
        return steps.commit_steps(worker.pk, batch)

    killed = 0
    shared = Committer(lambda batch: in_database(commit, batch))
    written = {session.id: [] for session in sessions}

    async def chain(session):
        for number in itertools.count():
            if number >= LENGTH and killed >= ENOUGH:
                return
            entry = NewEntry(kind="note", data={"text": str(number)})
            step = steps.StepWrite(session=session.id, attempt=session.attempt, work_rev=0, entries=(entry,))
            assert isinstance(await shared.commit(step), steps.Saved)
            written[session.id].append(entry.id)

    def kill():
        with another_connection() as other:
            return other.execute(KILL, [list(pids)]).fetchone()[0]

    chains = [asyncio.create_task(chain(session)) for session in sessions]
    while any(not task.done() for task in chains) and killed < 20:
        killed += await asyncio.to_thread(kill)
        await asyncio.wait(chains, timeout=0.03)
    await asyncio.gather(*chains)

    def read():
        return {
            session.id: list(Entry.objects.filter(session=session).order_by("seq").values_list("seq", "id"))
            for session in sessions
        }

    found = await in_database(read)
    await loop.run_in_executor(pool, connections.close_all)
    await loop.run_in_executor(None, pool.shutdown)
    assert killed >= ENOUGH
    assert found == {session: list(enumerate(ids_, start=1)) for session, ids_ in written.items()}
    assert all(len(rows) >= LENGTH for rows in found.values())
