"""A real web process: what clients notice of a database that restarted, and of sockets that nobody serves."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx2
import pytest
from django.db import connection

from sessions_app import keys
from tests import factories
from tests.staging import eventually

ROOT = Path(__file__).resolve().parent.parent.parent


def database_url() -> str:
    given = connection.get_connection_params()
    place = {name: str(given[name]) for name in ("host", "port", "user", "password") if given.get(name)}
    return f"postgresql:///{quote(connection.settings_dict['NAME'])}?{urlencode(place)}"


@pytest.fixture
def base(transactional_db: None, tmp_path: Path) -> Iterator[str]:
    """Where daphne serves the test database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "DATABASE_URL": database_url(), "TENURE_DEBUG": "1"}
    command = [sys.executable, "-m", "daphne", "-v", "0", "-b", "127.0.0.1", "-p", str(port)]
    log = tmp_path / "web.log"
    with log.open("wb") as output:
        web = subprocess.Popen(
            [*command, "config.asgi:application"], cwd=ROOT, env=env, stdout=output, stderr=output
        )
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert web.poll() is None, log.read_text()
        try:
            return httpx2.get(f"{address}/healthz", trust_env=False).is_success
        except httpx2.TransportError:
            return False

    try:
        eventually(answers, within=60)
        yield address
    finally:
        web.kill()
        web.wait()


@pytest.mark.processes
def test_no_request_pays_for_a_connection_that_a_restart_of_the_database_broke(base: str) -> None:
    """All connections of the web process are cut, as by a restart; then every request is served."""
    _, key = keys.create_key(project=factories.project().pk, name="web")
    with httpx2.Client(
        base_url=base, trust_env=False, headers={"Authorization": f"Bearer {key}"}, timeout=30
    ) as client:

        def status(_: int) -> int:
            return client.get("/api/v1/sessions").status_code

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(status, range(40))) == {200}
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            (cut,) = cursor.fetchone()
        assert cut > 0
        assert [status(0) for _ in range(12)] == [200] * 12


@pytest.mark.processes
def test_a_socket_that_nobody_serves_is_refused_and_is_no_crash(base: str) -> None:
    address = httpx2.URL(base)
    with socket.create_connection((address.host, address.port), timeout=20) as wire:
        wire.sendall(
            b"GET /ws/v1/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert wire.recv(1000).startswith(b"HTTP/1.1 403 ")
