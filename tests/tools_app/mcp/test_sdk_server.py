"""Listing and calling against the official SDK's own server, in each way in which it serves."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from sessions_app import artifacts, ids
from tests.tools_app.mcp.conftest import Offers, Peer, Run
from tests.tools_app.mcp.sdk_server import PIXEL
from tools_app.keeping import in_thread
from tools_app.mcp import listings, names
from tools_app.mcp.exchanges import goodbyes_said

WAYS = ["new", "old-sse", "old-json", "old-single"]
RENAMED = names.exposed("peer", "sum.of" + ".numbers" * 12)

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(params=WAYS)
def url(request: Any, peer: Peer) -> str:
    return f"{peer.url}/{request.param}"


async def test_the_tools_of_a_server_are_offered_with_their_hints(url: str, offers_of: Offers) -> None:
    """T7: they ask unless a rule says otherwise, and never run again by themselves."""
    offers, missing = await offers_of(url, time_limit="90s")
    assert missing == {}
    assert {
        "mcp__peer__echo",
        "mcp__peer__append",
        "mcp__peer__fails",
        RENAMED,
    } <= set(offers)
    echo = offers["mcp__peer__echo"]
    assert echo.spec.description == "Say it again."
    assert echo.spec.input_schema["required"] == ["text"]
    assert echo.annotations == {"read_only": True, "destructive": False}
    assert offers["mcp__peer__append"].annotations == {"destructive": True}
    for offer in offers.values():
        assert (offer.tool_class, offer.permission, offer.rerun_safe) == ("outside", "ask", False)
        assert offer.time_limit == 90.0


async def test_a_call_brings_its_result_and_tells_the_server_its_token(url: str, run: Run) -> None:
    """T5: the id of the call is in `_meta`."""
    outcome = await run(url, "echo", {"text": "hi"})
    assert outcome.outcome == "succeeded"
    (block,) = outcome.content
    told = json.loads(block["text"])
    assert told["text"] == "hi"
    assert ids.decode("tcl", told["token"])


async def test_what_a_tool_sends_becomes_content(url: str, run: Run) -> None:
    """Structured values once, links as text, a failure with what the server says of it."""
    assert (await run(url, "weather", {"city": "Bern"})).content == [
        {"type": "data", "value": {"city": "Bern", "degrees": 21}}
    ]
    assert (await run(url, "plus", {"a": 1, "b": 2})).content == [{"type": "text", "text": "3"}]
    assert (await run(url, "link")).content == [
        {"type": "text", "text": "see"},
        {"type": "text", "text": "notes - file:///notes.txt - all of them"},
    ]
    failed = await run(url, "fails")
    assert failed.outcome == "failed"
    assert "the printer is on fire" in failed.content[0]["text"]


async def test_a_tool_is_called_by_its_own_name(url: str, run: Run) -> None:
    outcome = await run(url, RENAMED.removeprefix("mcp__peer__"), {"a": 2, "b": 2})
    assert outcome.content == [{"type": "text", "text": "4"}]


async def test_a_server_that_asks_back_is_refused(url: str, run: Run) -> None:
    """Nobody answers a server in the middle of a call."""
    outcome = await run(url, "asks")
    assert outcome.outcome == "failed"


async def test_fifty_calls_at_once(url: str, run: Run, peer: Peer) -> None:
    outcomes = await asyncio.gather(*(run(url, "plus", {"a": i, "b": 0}) for i in range(50)))
    assert [outcome.content[0]["text"] for outcome in outcomes] == [str(i) for i in range(50)]


async def test_calls_that_are_cancelled_leave_at_once_and_leave_nothing_behind(
    url: str, run: Run, peer: Peer
) -> None:
    """A75: whoever has to stop does not wait for a server's good-byes."""
    file = f"cancelled.{url.rpartition('/')[2]}"
    calls = [
        asyncio.create_task(run(url, "append", {"file": f"{file}.{i}", "seconds": 60 if i % 2 else 0}))
        for i in range(20)
    ]
    async with asyncio.timeout(20):
        while not all(peer.times(f"{file}.{i}.begun") for i in range(20)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.gather(*calls[::2])
    before = asyncio.get_running_loop().time()
    for call in calls[1::2]:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert asyncio.get_running_loop().time() - before < 1.0
    for i, result in enumerate(results):
        if i % 2:
            assert isinstance(result, asyncio.CancelledError)
            assert peer.times(f"{file}.{i}.begun") == 1
        else:
            assert result.outcome == "succeeded"
    await goodbyes_said()
    assert [peer.times(f"{file}.{i}") for i in range(1, 20, 2)] == [0] * 10


async def test_the_protocol_that_was_learned_with_the_list_is_spoken_in_calls(
    peer: Peer, offers_of: Offers, run: Run
) -> None:
    """One request where the server needs no handshake."""
    url = f"{peer.url}/new"
    await offers_of(url)
    before = peer.times("requests.new")
    await run(url, "plus", {"a": 1, "b": 1})
    await goodbyes_said()
    assert peer.times("requests.new") - before == 1


async def test_a_list_is_fetched_once_until_it_is_old(peer: Peer, offers_of: Offers, settings: Any) -> None:
    url = f"{peer.url}/old-single"
    await offers_of(url)
    await goodbyes_said()
    asked = peer.times("requests.old-single")
    offers, _ = await offers_of(url)
    assert peer.times("requests.old-single") == asked
    (listing,) = listings._listings.values()
    listing.fetched_at -= settings.TENURE.mcp_list_ttl
    again, _ = await offers_of(url)
    assert list(again) == list(offers)  # nobody waited for the new one
    await listing.task
    assert peer.times("requests.old-single") > asked


async def test_only_named_tools_are_offered_and_a_missing_one_is_told(peer: Peer, offers_of: Offers) -> None:
    offers, missing = await offers_of(f"{peer.url}/new", tools=["plus", "minus"])
    assert list(offers) == ["mcp__peer__plus"]
    assert missing == {"mcp__peer__minus": "the MCP server peer does not offer it"}


@pytest.mark.django_db(transaction=True)
async def test_images_and_long_texts_become_artifacts(
    peer: Peer, run: Run, stored_project: UUID, settings: Any
) -> None:
    """S8: media lie in the storage; a long text is cut to its two ends, and the whole is kept."""

    def bytes_of(artifact: str) -> bytes:
        found = artifacts.find(stored_project, ids.decode("art", artifact))
        assert found is not None
        return artifacts.read(found)

    outcome = await run(f"{peer.url}/old-sse", "picture")
    (block,) = outcome.content
    assert block["type"] == "media"
    assert await asyncio.to_thread(in_thread, bytes_of, block["artifact"]) == PIXEL
    length = settings.TENURE.tool_output_limit * 12
    outcome = await run(f"{peer.url}/old-sse", "long", {"characters": length})
    (block,) = outcome.content
    assert len(block["text"]) <= settings.TENURE.tool_output_limit
    artifact = block["text"].rpartition("artifact ")[2].rstrip(")")
    assert len(await asyncio.to_thread(in_thread, bytes_of, artifact)) == length
