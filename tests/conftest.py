"""What every test shares: the database server of the run, and its URL for processes that tests start.

The server is the one of `DATABASE_URL`, or the embedded one with its data in `.tenure/test`: started by
tests/settings.py and stopped by it when the run ends, also by Ctrl-C. Several runs at once share the embedded
server (the last one stops it) and need a database each: set `TENURE_TEST_DATABASE`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connection

if TYPE_CHECKING:
    from tests.processes.workers import WarmParent, Workers


# Processes started by tests are real ones with the real settings; DATABASE_URL tells them where to look.
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """The test database; before it is dropped, what committed code rang in this process lets go of it."""
    yield
    from sessions_app import wakeups

    wakeups.close()


@pytest.fixture(scope="session")
def database_url(django_db_setup: None) -> str:
    """The URL of the test database itself, for a process to be started with as its `DATABASE_URL`."""
    entry = settings.DATABASES["default"] | {"NAME": connection.settings_dict["NAME"]}
    host, port = quote(entry.get("HOST") or "", safe=""), entry.get("PORT") or ""
    login = quote(entry.get("USER") or "", safe="")
    if entry.get("PASSWORD"):
        login += ":" + quote(entry["PASSWORD"], safe="")
    words = {"host": host, "port": port} | {
        key: quote(str(value), safe="") for key, value in entry["OPTIONS"].items() if isinstance(value, str)
    }
    query = "&".join(f"{key}={value}" for key, value in words.items() if value)
    return f"postgresql://{login}@/{quote(entry['NAME'], safe='')}?{query}"


@pytest.fixture(scope="session")
def process_environment(database_url: str) -> dict[str, str]:
    """The environment for a process that works on the test database."""
    return os.environ | {"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "config.settings"}


@pytest.fixture(scope="session")
def warm_parent(process_environment: dict[str, str]) -> Iterator["WarmParent"]:
    """The process from which this run's workers are forked; it is started by the first test that needs one."""
    from tests.processes.workers import WarmParent

    parent = WarmParent(process_environment)
    yield parent
    parent.close()


@pytest.fixture
def workers(warm_parent: "WarmParent", transactional_db: None, tmp_path: Path) -> Iterator["Workers"]:
    """Starts real worker and sweeper processes on the test database, and ends them before it is emptied."""
    from tests.processes.workers import workers

    with workers(warm_parent, tmp_path) as made:
        yield made
