"""Servers that are down, hang, break off or answer nonsense: what the model is told, and that nothing is sent twice."""

import asyncio
import json
from typing import Any

import pytest

from sessions_app.tool_port import INTERRUPTED
from tests.tools_app.mcp.bad_server import TOOL, BadServer, answer, says, says_error
from tests.tools_app.mcp.conftest import Offers, Run
from tools_app.mcp import listings, wire
from tools_app.mcp.exchanges import goodbyes_said

pytestmark = pytest.mark.usefixtures("no_leaks")

MODERN = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "public",
}
HTML = answer(200, b"<html>Welcome</html>", content_type="text/html; charset=utf-8")


def speak_modern(bad: BadServer) -> None:
    """No handshake and no sessions."""
    bad.on["server/discover"] = says(1, MODERN)
    page = {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    bad.tools = lambda _params: page


def text_of(outcome: Any) -> str:
    (block,) = outcome.content
    text: str = block["text"]
    return text


# --- calls ---------------------------------------------------------------------------------------------------


async def test_a_session_that_expires_in_the_middle_of_a_call_is_an_unknown_outcome(
    bad: BadServer, run: Run
) -> None:
    """A77: no second call, and no new session to make it in."""
    bad.on["tools/call"] = says_error(None, -32001, "Session not found", status=404)
    outcome = await run(bad.url, "deploy")
    assert outcome.outcome == "interrupted"
    assert text_of(outcome) == (
        f"{INTERRUPTED} The MCP server peer ended the session in the middle of the call."
    )
    await goodbyes_said()
    assert bad.calls == 1
    # One session for the list, one for the call.
    assert len(bad.asked("initialize")) == 2


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("close", "broke off in the middle of the call"),
        ("half", "gave no whole answer to the call"),
        (500, "answered the call with status 500"),
        (502, "answered the call with status 502"),
        (202, "answered the call with status 202"),
        (HTML, "answered the call with text/html, which is no MCP"),
        (answer(200, b"{", content_type="application/json"), "gave no whole answer to the call"),
        (answer(200, b"", content_type="text/event-stream"), "gave no whole answer to the call"),
        (answer(200, b"x", content_type="application/json", content_encoding="gzip"), "broke off"),
    ],
)
async def test_a_call_that_was_sent_and_not_answered_is_an_unknown_outcome(
    bad: BadServer, run: Run, what: Any, told: str, modern: bool
) -> None:
    """A75, A77: sent once, whatever came back instead of an answer."""
    if modern:
        speak_modern(bad)
    bad.on["tools/call"] = what
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("interrupted", 1)
    assert text_of(outcome).startswith(INTERRUPTED)
    assert told in text_of(outcome)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("what", "told"),
    [
        (401, "refuses the credentials that it was sent (status 401)"),
        (403, "refuses the credentials that it was sent (status 403)"),
        (429, "refused the call (status 429)"),
        (answer(307, location="/elsewhere"), "redirects to /elsewhere"),
        (says_error(None, -32602, "no such stage", status=400), "no such stage"),
    ],
)
async def test_a_call_that_the_server_refused_has_failed(
    bad: BadServer, run: Run, what: Any, told: str, modern: bool
) -> None:
    if modern:
        speak_modern(bad)
    bad.on["tools/call"] = what
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("failed", 1)
    assert told in text_of(outcome)


async def test_an_error_that_the_server_tells_is_the_outcome(bad: BadServer, run: Run) -> None:
    bad.on["tools/call"] = says_error(2, -32603, "the stage is locked")
    await run(bad.url, "deploy")  # the list has request 2 in its own session, the call too
    outcome = await run(bad.url, "deploy")
    assert outcome.outcome == "failed"
    assert "answered the call with an error: the stage is locked (code -32603)" in text_of(outcome)


async def test_a_complaint_about_headers_does_not_repeat_the_call(bad: BadServer, run: Run) -> None:
    """A72: the SDK's own `call_tool` would fetch the list again and send the call a second time."""
    speak_modern(bad)
    bad.on["tools/call"] = says_error(None, -32020, "Header mismatch", status=400)
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("failed", 1)


async def test_an_answer_that_breaks_off_is_gone_on_with_and_never_asked_for_again(
    bad: BadServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A77: going on with a stream is no second call; a server that breaks off for ever is given up."""
    monkeypatch.setattr(wire, "MAX_RESUMPTIONS", 5)
    bad.on["tools/call"] = "resumable"
    result = {"content": [{"type": "text", "text": "deployed"}]}
    event = f"id: 8\ndata: {json.dumps({'jsonrpc': '2.0', 'id': 2, 'result': result})}\n\n"
    bad.on["GET"] = answer(200, event.encode(), content_type="text/event-stream")
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, text_of(outcome), bad.calls) == ("succeeded", "deployed", 1)
    (resumed,) = [received for received in bad.received if received.method == "GET"]
    assert resumed.headers["last-event-id"] == "7"
    bad.on["GET"] = "resumable"
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("interrupted", 2)


async def test_a_call_is_not_sent_where_the_server_is_gone(
    bad: BadServer, run: Run, offers_of: Offers
) -> None:
    """A failure that is sure: nothing was sent, so nothing can have happened."""
    speak_modern(bad)
    await offers_of(bad.url)
    await goodbyes_said()
    bad._server.close()
    outcome = await run(bad.url, "deploy")
    assert outcome.outcome == "failed"
    assert "can't be reached" in text_of(outcome)
    assert "the call was not sent" in text_of(outcome)


async def test_a_server_that_does_not_greet_gets_no_call(
    bad: BadServer, run: Run, tenure: Any, offers_of: Offers
) -> None:
    await offers_of(bad.url)
    await goodbyes_said()
    tenure(mcp_connect_timeout=0.2)
    for what in ("hang", "close", 500, HTML):
        bad.on["initialize"] = what
        outcome = await run(bad.url, "deploy")
        assert (outcome.outcome, bad.calls) == ("failed", 0)


async def test_a_private_address_gets_no_call(
    bad: BadServer, run: Run, tenure: Any, offers_of: Offers
) -> None:
    await offers_of(bad.url)
    tenure(allowed_networks=())
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("failed", 0)
    assert "127.0.0.1 is not a public address" in text_of(outcome)


async def test_an_answer_without_bounds_is_not_taken(
    bad: BadServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_ANSWER", 10_000)
    content = [{"type": "text", "text": "x" * 20_000}]
    bad.on["tools/call"] = says(2, {"content": content})
    outcome = await run(bad.url, "deploy")
    assert outcome.outcome == "failed"
    assert "did the call, but the answer has more than" in text_of(outcome)


async def test_a_result_that_is_none_has_failed_and_was_not_asked_for_again(bad: BadServer, run: Run) -> None:
    bad.on["tools/call"] = says(2, {"content": "deployed"})
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("failed", 1)
    assert "did the call, but its answer is not valid MCP" in text_of(outcome)


async def test_a_result_that_does_not_fit_the_tools_own_schema_is_kept(bad: BadServer, run: Run) -> None:
    """The tool has run: what it says is worth more than a complaint about its form."""
    bad.tools = [TOOL | {"outputSchema": {"type": "object", "required": ["stage"]}}]
    bad.on["tools/call"] = says(2, {"content": [], "structuredContent": {"other": 1}})
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, outcome.content) == ("succeeded", [{"type": "data", "value": {"other": 1}}])
    assert len(bad.asked("tools/list")) == 1


async def test_a_server_that_wants_input_in_the_middle_is_told_no(bad: BadServer, run: Run) -> None:
    speak_modern(bad)
    bad.on["tools/call"] = says(1, {"resultType": "input_required", "requestState": "s"})
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("failed", 1)
    assert "wants to ask somebody something" in text_of(outcome)


async def test_a_call_that_is_cancelled_while_the_server_hangs_leaves_at_once(
    bad: BadServer, run: Run
) -> None:
    """A75: the server gets word that nobody waits any more; a server that is deaf to it holds nothing up."""
    bad.on["tools/call"] = bad.on["notifications/cancelled"] = bad.on["DELETE"] = "hang"
    call = asyncio.create_task(run(bad.url, "deploy"))
    await bad.busy.wait()
    before = asyncio.get_running_loop().time()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert asyncio.get_running_loop().time() - before < 0.5
    await goodbyes_said()
    assert asyncio.get_running_loop().time() - before < 3 * wire.GOODBYE_WITHIN
    assert (bad.calls, len(bad.asked("notifications/cancelled"))) == (1, 1)


async def test_a_result_does_not_wait_for_good_byes(bad: BadServer, run: Run) -> None:
    """A76: it is in hand as soon as it is there."""
    bad.on["DELETE"] = "hang"
    before = asyncio.get_running_loop().time()
    outcome = await run(bad.url, "deploy")
    assert outcome.outcome == "succeeded"
    assert asyncio.get_running_loop().time() - before < wire.GOODBYE_WITHIN / 2


async def test_the_end_of_a_session_is_told_to_the_server(bad: BadServer, run: Run) -> None:
    await run(bad.url, "deploy")
    await goodbyes_said()
    ended = [received for received in bad.received if received.method == "DELETE"]
    assert [received.headers["mcp-session-id"] for received in ended] == ["s1", "s1"]


async def test_arguments_that_a_tool_wants_in_headers_are_there_too(bad: BadServer, run: Run) -> None:
    """The SDK knows their names by a list of the same connection."""
    speak_modern(bad)
    region = {"type": "string", "x-mcp-header": "Region"}
    tool = TOOL | {"inputSchema": {"type": "object", "properties": {"region": region}}}
    page = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    bad.tools = lambda _params: page
    bad.on["tools/call"] = says(2, {"content": [], "resultType": "complete"})
    assert (await run(bad.url, "deploy", {"region": "eu"})).outcome == "succeeded"
    (call,) = bad.asked("tools/call")
    assert call.headers["mcp-param-region"] == "eu"


async def test_a_call_that_went_wrong_has_the_list_asked_for_again(
    bad: BadServer, run: Run, offers_of: Offers
) -> None:
    """Perhaps another version of the server runs there by now, that wants to be spoken to otherwise."""
    await run(bad.url, "deploy")
    speak_modern(bad)
    bad.on["initialize"] = 400
    assert (await run(bad.url, "deploy")).outcome == "failed"
    await offers_of(bad.url)
    (listing,) = listings._listings.values()
    await listing.task
    bad.on["tools/call"] = says(1, {"content": [], "resultType": "complete"})
    assert (await run(bad.url, "deploy")).outcome == "succeeded"


# --- lists ---------------------------------------------------------------------------------------------------


async def test_a_server_that_hangs_costs_one_model_call_a_bounded_time(
    bad: BadServer, offers_of: Offers, run: Run, tenure: Any
) -> None:
    """The model goes on without its tools and may know why; the next model call does not wait again."""
    tenure(mcp_connect_timeout=0.3)
    bad.on["server/discover"] = "hang"
    clock = asyncio.get_running_loop().time
    before = clock()
    offers, missing = await offers_of(bad.url)
    assert clock() - before < 1.0
    assert offers == {}
    assert missing["mcp__peer__"].startswith("the MCP server peer ")
    before = clock()
    assert (await offers_of(bad.url))[0] == {}
    assert clock() - before < 0.1
    outcome = await run(bad.url, "deploy")
    assert (outcome.outcome, bad.calls) == ("failed", 0)


async def test_an_old_server_that_is_deaf_to_the_first_question_is_greeted_the_old_way(
    bad: BadServer, offers_of: Offers, tenure: Any
) -> None:
    tenure(mcp_connect_timeout=0.2, mcp_retry_interval=0.0)
    bad.on["server/discover"] = "hang"
    await offers_of(bad.url)
    (listing,) = listings._listings.values()
    await listing.task
    offers, missing = await offers_of(bad.url)
    assert (list(offers), missing) == (["mcp__peer__deploy"], {})


async def test_a_server_that_was_too_slow_once_is_asked_both_ways(
    bad: BadServer, offers_of: Offers, tenure: Any
) -> None:
    """Silence says nothing for ever: today's protocol is tried again after the old one was refused."""
    tenure(mcp_connect_timeout=0.2, mcp_retry_interval=0.0)
    bad.on["server/discover"] = "hang"
    bad.on["initialize"] = 400
    for _ in range(3):
        assert (await offers_of(bad.url))[0] == {}
        (listing,) = listings._listings.values()
        await listing.task
    speak_modern(bad)
    found = [list((await offers_of(bad.url))[0]) for _ in range(2)]
    assert found[-1] == ["mcp__peer__deploy"]


@pytest.mark.parametrize(
    ("method", "what", "told"),
    [
        ("initialize", 401, "refuses the credentials that it was sent (status 401)"),
        ("initialize", 404, "does not speak MCP at its address (status 404)"),
        ("initialize", HTML, "does not speak MCP at its address: it answers with text/html"),
        ("initialize", "close", "can't be reached"),
        ("initialize", says_error(2, -32600, "not today"), "could not be spoken to: not today"),
        ("tools/list", 500, "does not speak MCP at its address (status 500)"),
        ("tools/list", "half", "could not be spoken to"),
        ("tools/list", answer(308, location="https://else.example/"), "redirects to https://else.example/"),
        ("tools/list", says(3, {"tools": 7}), "gave an answer to tools/list that is not valid MCP"),
    ],
)
async def test_why_there_is_no_list_is_told(
    bad: BadServer, offers_of: Offers, method: str, what: Any, told: str
) -> None:
    bad.on[method] = what
    offers, missing = await offers_of(bad.url)
    assert offers == {}
    assert told in missing["mcp__peer__"]


async def test_a_list_outlives_its_server(bad: BadServer, offers_of: Offers, run: Run, tenure: Any) -> None:
    """The model is not told of other tools in the middle of its work; calls say what is the matter."""
    tenure(mcp_list_ttl=0.0, mcp_retry_interval=0.0)
    await offers_of(bad.url)
    bad.on["initialize"] = 503
    for _ in range(3):
        offers, missing = await offers_of(bad.url)
        assert (list(offers), missing) == (["mcp__peer__deploy"], {})
        (listing,) = listings._listings.values()
        await listing.task
    assert listing.why is not None
    assert (await run(bad.url, "deploy")).outcome == "failed"


async def test_a_server_that_comes_back_is_asked_again(
    bad: BadServer, offers_of: Offers, tenure: Any
) -> None:
    tenure(mcp_retry_interval=0.0)
    bad.on["initialize"] = 503
    assert (await offers_of(bad.url))[0] == {}
    del bad.on["initialize"]
    offers, missing = await offers_of(bad.url)
    assert (list(offers), missing) == (["mcp__peer__deploy"], {})


async def test_a_server_that_is_down_is_left_alone_for_a_while(
    bad: BadServer, offers_of: Offers, tenure: Any
) -> None:
    tenure(mcp_retry_interval=60.0)
    bad.on["initialize"] = 503
    await offers_of(bad.url)
    asked = len(bad.received)
    await asyncio.gather(*(offers_of(bad.url) for _ in range(5)))
    assert len(bad.received) == asked


async def test_all_pages_of_a_list_are_read_and_an_endless_one_is_cut(
    bad: BadServer, offers_of: Offers
) -> None:
    def page(params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", "0"))
        more = {"nextCursor": str(number + 1)} if number < 3 else {}
        return {"tools": [TOOL | {"name": f"t{number}"}]} | more

    bad.tools = page
    offers, _ = await offers_of(bad.url)
    assert list(offers) == [f"mcp__peer__t{number}" for number in range(4)]
    listings.forget()
    bad.tools = lambda params: {
        "tools": [TOOL | {"name": f"t{params.get('cursor', '0')}"}],
        "nextCursor": str(int(params.get("cursor", "0")) + 1),
    }
    offers, _ = await offers_of(bad.url)
    assert len(offers) == 100


async def test_tools_that_no_model_can_be_told_of_are_left_out_with_the_reason(
    bad: BadServer, offers_of: Offers
) -> None:
    """A bad schema costs its own tool, not the list; and a schema that points elsewhere is never fetched."""
    bad.tools = [
        TOOL,
        TOOL | {"name": "array", "inputSchema": {"type": "array"}},
        TOOL | {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": 7}}}},
        TOOL | {"name": "remote", "inputSchema": {"type": "object", "$ref": "https://else.example/s.json"}},
        TOOL | {"name": "huge", "description": "x" * listings.MAX_TOOL},
        TOOL | {"name": "bare", "inputSchema": {}},
        {"name": "none"},
        TOOL,
        "nothing",
    ]
    offers, missing = await offers_of(bad.url)
    assert list(offers) == ["mcp__peer__deploy", "mcp__peer__bare"]
    assert offers["mcp__peer__bare"].spec.input_schema == {"type": "object"}
    invalid = "its server describes it in a way that is not valid MCP"
    unusable = (
        "its server describes its arguments with a schema that is not a valid JSON Schema for an object"
    )
    assert {name: why.partition(":")[0] for name, why in missing.items()} == {
        "mcp__peer__array": invalid,
        "mcp__peer__none": invalid,
        "mcp__peer__broken": unusable,
        "mcp__peer__remote": unusable,
        "mcp__peer__huge": "its description is longer than 60000 characters",
    }


async def test_a_server_that_says_that_its_list_has_changed_is_asked_again(
    bad: BadServer, offers_of: Offers, run: Run
) -> None:
    """Heard in the stream of an answer; there is no stream beside it."""
    await offers_of(bad.url)
    bad.tools = [TOOL, TOOL | {"name": "undeploy"}]
    messages = [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "id": 2, "result": {"content": []}},
    ]
    events = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    bad.on["tools/call"] = answer(200, events.encode(), content_type="text/event-stream")
    assert (await run(bad.url, "deploy")).outcome == "succeeded"
    await offers_of(bad.url)
    (listing,) = listings._listings.values()
    await listing.task
    offers, _ = await offers_of(bad.url)
    assert list(offers) == ["mcp__peer__deploy", "mcp__peer__undeploy"]
    assert [received for received in bad.received if received.method == "GET"] == []
