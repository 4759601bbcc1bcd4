"""A server that is not the SDK's: the third-party mock, which speaks a protocol of some years ago."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions_app.providers.conftest import _address
from tests.tools_app.mcp.conftest import Offers, Run
from tests.wire.install import ensure_aimock, find_node

pytestmark = pytest.mark.usefixtures("no_leaks")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"name": "weather", "description": "Look it up.", "inputSchema": SCHEMA, "result": "sunny"},
    {"name": "time.now", "description": "The time.", "inputSchema": {"type": "object"}, "result": "noon"},
]


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("aimock-mcp")
    (folder / "config.json").write_text(json.dumps({"mcp": {"tools": TOOLS}}))
    script = ensure_aimock().with_name("aimock-cli.js")
    command = [str(find_node().node), str(script), "--config", str(folder / "config.json"), "--port", "0"]
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield _address(process, log) + "/mcp"
        finally:
            process.terminate()
            process.wait(timeout=10)


async def test_its_tools_are_offered_and_called(mock: str, offers_of: Offers, run: Run) -> None:
    offers, missing = await offers_of(mock)
    assert missing == {}
    weather, now = offers
    assert weather == "mcp__peer__weather"
    assert now.startswith("mcp__peer__time_now_")
    assert offers[weather].spec.input_schema == SCHEMA
    assert offers[weather].annotations == {}
    for name, said in ((weather, "sunny"), (now, "noon")):
        outcome = await run(mock, name.removeprefix("mcp__peer__"))
        assert (outcome.outcome, outcome.content) == ("succeeded", [{"type": "text", "text": said}])
