"""Servers to call, and what it takes to call them without an engine."""

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings

from sessions_app import ids
from sessions_app.models import Project
from sessions_app.tool_port import Call, ToolContext, ToolOutcome
from tests.tools_app.mcp.bad_server import BadServer
from tools_app.keeping import in_thread
from tools_app.mcp import calling, exchanges, listings, offering
from tools_app.offers import Offer


@dataclass
class Peer:
    """The SDK's own server."""

    url: str
    folder: Path

    def times(self, file: str) -> int:
        trace = self.folder / file
        return trace.stat().st_size if trace.exists() else 0


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("mcp")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.tools_app.mcp.sdk_server", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=django_settings.BASE_DIR,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield Peer(f"http://127.0.0.1:{port}", folder)
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@pytest.fixture
async def bad() -> AsyncIterator[BadServer]:
    async with BadServer() as running:
        yield running


@pytest.fixture(autouse=True)
def nearby(settings: Any) -> Iterator[None]:
    """The servers are on this machine; nothing of another test is remembered."""
    settings.TENURE = dataclasses.replace(
        settings.TENURE, allowed_networks=("127.0.0.0/8",), mcp_connect_timeout=5.0
    )
    listings.forget()
    yield
    listings.forget()


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """After the test no task of a connection is left, but those that say good-bye, and these come to an end."""
    before = asyncio.all_tasks()
    yield
    async with asyncio.timeout(10):
        await exchanges.goodbyes_said()
        # Streams that were left in their middle are closed by the event loop, a moment later.
        while asyncio.all_tasks() - before - {asyncio.current_task()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


type Offers = Callable[..., Awaitable[tuple[dict[str, Offer], dict[str, str]]]]
type Run = Callable[..., Awaitable[ToolOutcome]]


def config_of(url: str, **parts: Any) -> dict[str, Any]:
    return {"mcp": {"peer": {"url": url} | parts}}


@pytest.fixture
def project() -> UUID:
    return ids.new_id()


@pytest.fixture
def stored_project(project: UUID, transactional_db: None) -> UUID:
    """The project of the calls, in the database."""
    Project.objects.create(pk=project, name="mcp")
    return project


@pytest.fixture
def offers_of(project: UUID) -> Offers:
    """What the server at a URL is offered as."""

    async def in_database(function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(in_thread, function, *arguments)

    async def ask(url: str, **parts: Any) -> tuple[dict[str, Offer], dict[str, str]]:
        return await offering.offers(config_of(url, **parts), project=project, in_database=in_database)

    return ask


@pytest.fixture
def run(project: UUID) -> Run:
    """Call a tool of the server at a URL."""

    async def call(url: str, tool: str, arguments: dict[str, Any] | None = None, **parts: Any) -> ToolOutcome:
        made = Call(
            id=ids.new_id(),
            session=ids.new_id(),
            turn=ids.new_id(),
            call_id="call_1",
            name=f"mcp__peer__{tool}",
            tool_class="outside",
            rerun_safe=False,
            arguments=arguments or {},
            position=0,
            state="running",
        )
        context = ToolContext(project, made.session, 1, ids.encode("tcl", made.id), config_of(url, **parts))
        return await calling.run(made, context)

    return call
