"""Providers over real sockets: our fault server, and the third-party mock of the wire protocols."""

import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from sessions_app.providers.library.adapter import LibraryProvider
from sessions_app.providers.library.models import close_clients
from sessions_app.providers.port import ModelRequest, ToolSpec
from tests.sessions_app.providers.relay import Relay
from tests.sessions_app.providers.wire_server import WireServer
from tests.wire.install import ensure_aimock, find_node

LOOPBACK = ("127.0.0.0/8", "::1/128")
PROTOCOLS = ("openai", "openai-chat", "anthropic")
PATHS = {"openai": "/v1", "openai-chat": "/v1", "anthropic": "", "google": ""}

READ = ToolSpec(
    name="read",
    description="Read a file.",
    input_schema={"type": "object", "properties": {"f": {"type": "string"}}, "required": ["f"]},
)


@pytest.fixture
async def library() -> AsyncIterator[LibraryProvider]:
    """The adapter, with its clients closed behind it."""
    yield LibraryProvider()
    await close_clients()


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as running:
        yield running


@pytest.fixture
def request_to() -> Callable[..., ModelRequest]:
    """Makes a request to the server at `url`, speaking `provider`'s protocol."""

    def make(provider: str, url: str, **changes: Any) -> ModelRequest:
        values: dict[str, Any] = {
            "provider": provider,
            "model": "some-model",
            "base_url": url + PATHS.get(provider, "/v1"),
            "api_key": "key-of-the-test",
            "settings": {},
            "instructions": "Be brief.",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "tools": [READ],
            "output_schema": None,
            "call_id": "mcl_01",
            "allowed_networks": LOOPBACK,
        }
        return ModelRequest(**(values | changes))

    return make


@dataclass
class Mock:
    """The running third-party mock, behind a relay. `url` is what a provider's base URL starts with."""

    control: str
    relay: Relay

    @property
    def url(self) -> str:
        return self.relay.url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies that were sent, oldest first, exactly as sent."""
        return self.relay.bodies

    async def answer(self, match: dict[str, Any], response: dict[str, Any]) -> None:
        """Answer requests that match with this, over every protocol; the first match wins."""
        async with httpx2.AsyncClient(trust_env=False) as client:
            fixture = {"match": match, "response": response}
            added = await client.post(f"{self.control}/__aimock/fixtures", json={"fixtures": [fixture]})
            added.raise_for_status()


@pytest.fixture(scope="session")
def running_mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "none.json").write_text('{"fixtures": []}')
    log = folder / "log"
    command = [
        str(find_node().node),
        str(ensure_aimock()),
        "--port",
        "0",
        "--fixtures",
        str(folder / "none.json"),
    ]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(timeout=10)


def _address(process: subprocess.Popen[bytes], log: Any) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        _, found, rest = log.read_text().partition("listening on ")
        if found and "\n" in rest:
            return rest.split()[0]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
    pytest.fail(f"the mock of the providers did not start:\n{log.read_text()}")


@pytest.fixture
async def mock(running_mock: str) -> AsyncIterator[Mock]:
    """The mock, without answers yet."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        (await client.post(f"{running_mock}/__aimock/reset")).raise_for_status()
    async with Relay(running_mock) as relay:
        yield Mock(running_mock, relay)
