"""The feeds over real sockets of a real web process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.db import transaction

from sessions_app import ids, keys, log, wakeups
from sessions_app.models import Project, Session
from tests import factories
from tests.processes.web import Web, web

pytestmark = pytest.mark.processes


@pytest.fixture
def served(transactional_db: None, process_environment: dict[str, str], tmp_path: Path) -> Iterator[Web]:
    with web(process_environment | {"TENURE_FEED_PING_INTERVAL": "1"}, tmp_path) as made:
        yield made


@pytest.fixture
def project(transactional_db: None) -> Project:
    return factories.project()


@pytest.fixture
def key(project: Project) -> str:
    return keys.create_key(project=project.pk, name="feed")[1]


@pytest.fixture
def session(project: Project) -> Session:
    return factories.session(config=factories.config(project=project))


def write(session: Session, *texts: str) -> None:
    """Notes in the log, one transaction, and their doorbell."""
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session.pk)
        log.append(row, *(log.NewEntry(kind="note", data={"text": text}) for text in texts))
        row.save()
    wakeups.ring_entries([session.pk])


def name(session: Session) -> str:
    return ids.encode("ses", session.pk)


def texts(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["entry"]["data"]["text"] for frame in frames]


def test_a_socket_gets_what_was_there_then_what_comes(served: Web, key: str, session: Session) -> None:
    """F1: everything behind the cursor in order, one caught_up, then live; a reconnect repeats and misses nothing."""
    write(session, "one", "two", "three")
    with served.socket(f"/sessions/{name(session)}?after=1", key=key) as client:
        first = client.until("caught_up")
        assert texts(first[:-1]) == ["two", "three"]
        assert first[-1] == {"type": "caught_up", "cursor": "3"}
        write(session, "four", "five")
        live = client.entries(2)
        assert texts(live) == ["four", "five"]
        assert [frame["cursor"] for frame in live] == ["4", "5"]
    write(session, "six")
    with served.socket(f"/sessions/{name(session)}?after={live[-1]['cursor']}", key=key) as client:
        assert texts(client.until("caught_up")[:-1]) == ["six"]


def test_a_project_socket_follows_all_of_its_sessions(served: Web, key: str, session: Session) -> None:
    """F2"""
    other = factories.session(config=session.config)
    write(session, "a1")
    write(other, "b1", "b2")
    write(factories.session(), "not ours")
    with served.socket("/project", key=key) as client:
        first = client.until("caught_up")
        assert sorted(texts(first[:-1])) == ["a1", "b1", "b2"]
        write(session, "a2")
        (live,) = client.entries(1)
        assert texts([live]) == ["a2"]
    write(other, "b3")
    with served.socket(f"/project?after={live['cursor']}", key=key) as client:
        assert texts(client.until("caught_up")[:-1]) == ["b3"]


def test_server_sent_events_are_the_same_feed(served: Web, key: str, session: Session) -> None:
    """A137, F1: the first frame is a comment, then entries with their cursor as id, then live."""
    write(session, "one", "two")
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream", "Last-Event-ID": "1"}
    address = f"{served.address}/api/v1/sessions/{name(session)}/stream"
    with httpx2.stream("GET", address, headers=headers, trust_env=False, timeout=15) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()

        def frame() -> list[str]:
            found = []
            while line := next(lines):
                found.append(line)
            return found

        assert frame()[0].startswith(":")
        entry = frame()
        assert entry[:2] == ["id: 2", "event: note"]
        assert json.loads(entry[2].removeprefix("data: "))["data"] == {"text": "two"}
        assert frame()[1] == "event: caught_up"
        write(session, "three")
        live = frame()
        while live[0].startswith(":"):
            live = frame()
        assert live[0] == "id: 3"
