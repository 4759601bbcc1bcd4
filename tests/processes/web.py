"""Real web processes on the test database."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.staging import eventually

ROOT = Path(__file__).resolve().parent.parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass
class Web:
    """A running daphne."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def socket(
        self, path: str, *, key: str | None = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator["Client"]:
        """A connected socket below `/ws/v1`."""
        said = dict(headers or {})
        if key is not None:
            said["Authorization"] = f"Bearer {key}"
        options.setdefault("max_size", None)
        with connect(
            f"ws://127.0.0.1:{self.port}/ws/v1{path}",
            additional_headers=said,
            proxy=None,
            compression=None,
            open_timeout=20,
            **options,
        ) as connection:
            yield Client(connection)


class Client:
    """A test's end of a socket: frames as dicts."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def say(self, **frame: Any) -> None:
        self.connection.send(json.dumps(frame))

    def next(self, *, within: float = 15) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.connection.recv(timeout=within))
        return found

    def until(self, kind: str, *, within: float = 15) -> list[dict[str, Any]]:
        """Frames up to and with the next of this type."""
        found = [self.next(within=within)]
        while found[-1]["type"] != kind:
            found.append(self.next(within=within))
        return found

    def rest(self) -> tuple[list[dict[str, Any]], int | None]:
        """All frames up to the end, and the code that the server closed with; None where it said nothing."""
        found: list[dict[str, Any]] = []
        try:
            while True:
                found.append(self.next())
        except ConnectionClosed as closed:
            return found, None if closed.rcvd is None else closed.rcvd.code

    def entries(self, count: int) -> list[dict[str, Any]]:
        """The next entries, whatever stands between them."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            frame = self.next()
            if frame["type"] == "entry":
                found.append(frame)
        return found


@contextmanager
def web(environment: Mapping[str, str], folder: Path, *, port: int | None = None) -> Iterator[Web]:
    """A web process that answers; killed at the end."""
    port = port or free_port()
    command = [sys.executable, "-m", "daphne", "-v", "0", "-b", "127.0.0.1", "-p", str(port)]
    log = folder / f"web-{port}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "config.asgi:application"],
            cwd=ROOT,
            env={**environment, "TENURE_DEBUG": "1"},
            stdout=output,
            stderr=output,
        )
    made = Web(process, port, log)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx2.get(f"{made.address}/healthz", trust_env=False).is_success
        except httpx2.TransportError:
            return False

    try:
        eventually(answers, within=60)
        yield made
    finally:
        process.kill()
        process.wait()
