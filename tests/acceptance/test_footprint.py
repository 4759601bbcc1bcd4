"""What a worker costs while it waits: connections, transactions, imports."""

import subprocess
import sys

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from sessions_app.models import ModelCall
from tests import factories
from tests.acceptance import agents
from tests.processes.workers import Workers
from tests.staging import eventually

SDKS = ("openai", "anthropic", "google.genai", "pydantic_ai", "groq", "mistralai", "cohere")


def connections_of_workers() -> int:
    """Connections to the test database that are not of this process."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend'"
        )
        (count,) = cursor.fetchone()
    return int(count)


@pytest.mark.processes
def test_many_slow_streams_hold_few_connections(workers: Workers) -> None:
    """L10: 64 sessions whose models stream slowly, in one process, at most 10 connections."""
    slow = {"text": "A long answer that takes its time, word by word. " * 20, "tokens_per_second": 4.0}
    sessions = [agents.start(slow) for _ in range(64)]
    before = connections_of_workers()
    worker = workers.start(worker_threads=settings.TENURE.worker_threads)
    eventually(lambda: ModelCall.objects.filter(state="started").count() == len(sessions), within=20)
    until = factories.database_now(seconds=2)
    while factories.database_now() < until:
        assert connections_of_workers() - before <= 10
    assert ModelCall.objects.filter(state="started").count() == len(sessions), worker.story()
    worker.kill()


@pytest.mark.processes
def test_an_idle_deployment_makes_few_transactions(workers: Workers) -> None:
    """One idle worker loop and one sweeper loop with the default intervals: at most 3 transactions a second.

    The statistics are read from another database, whose transactions do not count. Those of autovacuum in this
    one do; it comes by once in a while, so of a few windows the quietest is what the two loops make.
    """
    defaults = {
        "worker_ttl": 30.0,
        "heartbeat_interval": 5.0,
        "worker_poll_interval": 1.0,
        "sweep_interval": 1.0,
        "lock_free_looks_apart": 1.0,
    }
    worker, sweeper = workers.start(**defaults), workers.start("sweeper", **defaults)
    eventually(
        lambda: "worker.registered" in worker.story() and "sweeper.started" in sweeper.story(), within=10
    )
    name = connection.settings_dict["NAME"]
    wanted = connection.get_connection_params()
    place = {key: wanted[key] for key in ("user", "password", "host", "port") if key in wanted}
    connection.close()
    with psycopg.connect(**place, dbname="postgres", autocommit=True) as other:
        # A backend reports its transactions up to a second late; starting up is not being idle.
        counted(other, name, seconds=2.5)
        rates = []
        while len(rates) < 4 and not any(rate <= 3 for rate in rates):
            transactions, seconds = counted(other, name, seconds=6)
            rates.append(transactions / seconds)
    assert 0 < min(rates) <= 3, rates


def counted(
    other: psycopg.Connection[tuple[float, ...]], database: str, *, seconds: float
) -> tuple[float, float]:
    """Transactions of the database within so many seconds of its server's clock; waits until they have passed."""

    def look() -> tuple[float, float]:
        row = other.execute(
            "SELECT xact_commit + xact_rollback, extract(epoch FROM clock_timestamp())::float8"
            " FROM pg_stat_database WHERE datname = %s",
            [database],
        ).fetchone()
        assert row is not None
        return float(row[0]), row[1]

    before, began = look()
    after, ended = eventually(lambda: (now := look())[1] - began >= seconds and now, within=seconds + 5)
    return after - before, ended - began


def test_no_provider_sdk_is_imported_at_the_start(process_environment: dict[str, str]) -> None:
    """Importing them takes seconds and a hundred megabytes; Django starts without them, and so does a worker."""
    code = (
        "import django, sys; django.setup();"
        "import config.asgi, config.urls, sessions_app.engine.worker, sessions_app.sweeper,"
        " sessions_app.hosting.supervisor;"
        f"print([name for name in {SDKS!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=process_environment,
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "[]"), ran.stderr
