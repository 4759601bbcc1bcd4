"""What a provider signed goes back to it unchanged, through the entries of a session."""

import base64
import json
from dataclasses import replace

import pytest

from sessions_app.engine.context import Context, EntryRow, messages_of
from sessions_app.engine.retry import EndTurn, classify
from sessions_app.providers.port import DETAIL_LIMIT, Category, ModelCallFailed, Stop
from sessions_app.providers.request_rules import check_request
from tests.sessions_app.providers import streams

USER = ("user_message", {"content": "go"})
RESULT = {"tool_call": "tcl_1", "id": "call_1", "name": "read", "content": "done", "outcome": "succeeded"}


def history_with(reply, provider: str, **result) -> list[dict]:
    # Entries are JSON in the database.
    saved = json.loads(json.dumps({"content": reply.content, "stop": reply.stop, "provider": provider}))
    kinds = [USER, ("assistant_message", saved), ("tool_result", RESULT | result)]
    return messages_of(
        EntryRow(seq, seq - 1 or None, kind, data) for seq, (kind, data) in enumerate(kinds, start=1)
    )


@pytest.mark.parametrize("summaries", [["Look."], ["Look.", "Then read."], []])
async def test_encrypted_reasoning_of_openai_goes_back_whole(summaries, library, server, request_to):
    """C18: the item with its id, its summaries and its ciphertext, in front of the call that it led to."""
    server.play(
        streams.responses(
            *streams.responses_reasoning("rs_1", summaries, "ciphertext", 0),
            *streams.responses_call("fc_1", "call_1", "read", '{"f": "a"}', 1),
        )
    )
    server.play(streams.responses(*streams.responses_text("msg_1", "ok")))
    reply = await library.reply(request_to("openai", server.url, model="gpt-5"))
    assert reply.stop is Stop.TOOL_CALLS
    await library.reply(
        request_to("openai", server.url, model="gpt-5", messages=history_with(reply, "openai"))
    )
    first, second = (received.body for received in server.received)
    assert first["include"] == ["reasoning.encrypted_content"]
    assert check_request("openai", second) == []
    user, reasoning, call, result = second["input"]
    assert user["role"] == "user"
    assert (reasoning["id"], reasoning["encrypted_content"]) == ("rs_1", "ciphertext")
    assert [part["text"] for part in reasoning["summary"]] == summaries
    assert (call["type"], call["call_id"], call["id"]) == ("function_call", "call_1", "fc_1")
    assert json.loads(call["arguments"]) == {"f": "a"}
    assert (result["type"], result["call_id"], result["output"]) == ("function_call_output", "call_1", "done")


async def test_redacted_thinking_of_anthropic_goes_back_whole(library, server, request_to):
    """C15: a block without any text."""
    redacted = {"type": "redacted_thinking", "data": "opaque"}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": redacted},
        {"type": "content_block_stop", "index": 0},
        *streams.anthropic_call(1, "call_1", "read", '{"f": "a"}'),
    ]
    server.play(streams.anthropic(*events, stop="tool_use"))
    server.play(streams.anthropic(*streams.anthropic_text(0, "ok")))
    reply = await library.reply(request_to("anthropic", server.url))
    await library.reply(request_to("anthropic", server.url, messages=history_with(reply, "anthropic")))
    assert server.received[1].body["messages"][1]["content"][0] == redacted


async def test_thought_signatures_of_google_go_back_with_their_call(library, server, request_to):
    signature = base64.b64encode(b"signed").decode()
    call = {
        "functionCall": {"name": "read", "args": {"f": "a"}, "id": "call_1"},
        "thoughtSignature": signature,
    }
    candidate = {"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}
    server.play(streams.sse({"candidates": [candidate]}))
    server.play(
        streams.sse(
            {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}
                ]
            }
        )
    )
    reply = await library.reply(request_to("google", server.url, model="gemini-3-pro-preview"))
    assert reply.stop is Stop.TOOL_CALLS
    history = history_with(reply, "google", id=reply.content[0]["id"])
    await library.reply(request_to("google", server.url, model="gemini-3-pro-preview", messages=history))
    contents = server.received[1].body["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    sent = contents[1]["parts"][0]
    assert sent["functionCall"]["args"] == {"f": "a"}
    assert sent["thoughtSignature"] == signature
    assert contents[2]["parts"][0]["functionResponse"]["name"] == "read"


@pytest.mark.parametrize(("given", "effort"), [("high", "high"), ("none", "none")])
async def test_reasoning_effort_is_one_setting_for_all(given, effort, library, server, request_to):
    server.play(streams.responses(*streams.responses_text("msg_1", "ok")))
    request = request_to("openai", server.url, model="gpt-5.1", settings={"reasoning": given, "top_p": None})
    await library.reply(request)
    body = server.received[0].body
    assert body["reasoning"]["effort"] == effort
    assert "top_p" not in body


REFUSALS = {
    "openai": {
        "type": "invalid_request_error",
        "code": "invalid_encrypted_content",
        "message": "not verified",
    },
    "anthropic": {
        "type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
    },
}


@pytest.mark.parametrize("provider", REFUSALS)
@pytest.mark.parametrize("second_works", [True, False])
async def test_reasoning_that_its_provider_can_no_longer_read_is_left_out(
    provider, second_works, library, server, request_to
):
    """C21, A38: once, by a second call of its own; the same refusal again ends the turn."""
    thought = {
        "type": "reasoning",
        "text": "Hm",
        "signature": "stale",
        "provider": provider,
        "details": {"id": "rs_1"},
    }
    text = {"type": "text", "text": "One.", "provider": provider, "details": {"id": "msg_1"}}
    kinds = [
        USER,
        ("assistant_message", {"content": [thought, text], "stop": "done", "provider": provider}),
        ("user_message", {"content": "and?"}),
    ]
    context = Context.of(
        EntryRow(seq, seq - 1 or None, kind, data) for seq, (kind, data) in enumerate(kinds, start=1)
    )
    refusal = json.dumps({"type": "error", "error": REFUSALS[provider]})
    server.play(refusal, status=400)
    if second_works:
        whole = streams.anthropic(*streams.anthropic_text(0, "ok"))
        if provider == "openai":
            whole = streams.responses(*streams.responses_text("msg_2", "ok"))
        server.play(whole)
    else:
        server.play(refusal, status=400)
    request = request_to(provider, server.url, model="gpt-5", messages=context.messages)
    with pytest.raises(ModelCallFailed) as caught:
        await library.reply(request)
    assert caught.value.category is Category.REPLAY_REFUSED
    assert not caught.value.may_be_billed
    context.forget_reasoning()
    request = replace(request, messages=context.messages)
    if second_works:
        assert (await library.reply(request)).content[-1]["text"] == "ok"
    else:
        with pytest.raises(ModelCallFailed) as caught:
            await library.reply(request)
        assert isinstance(classify(caught.value, failures_so_far=0, call_id="mcl_01"), EndTurn)
    first, second = (json.dumps(received.body) for received in server.received)
    assert "stale" in first
    assert "stale" not in second
    assert "rs_1" not in second
    assert "One." in second


async def test_what_cannot_be_stored_is_replaced(library, server, request_to):
    """S8: NUL, lone surrogates, a pair cut in two by the stream, NaN."""
    server.play(
        streams.chat(
            {"content": "a\x00b\ud800c\ud83d"},
            {"content": "\ude00"},
            streams.chat_call(0, "call_1", "read", '{"f": NaN, "g\\u0000": "\\udc00"}'),
            finish="tool_calls",
        )
    )
    deltas = []
    reply = await library.reply(request_to("openai-chat", server.url), deltas.append)
    text, call = reply.content
    assert text["text"] == "a\ufffdb\ufffdc\U0001f600"
    assert call["arguments"] == {"f": None, "g\ufffd": "\ufffd"}
    for delta in deltas:
        assert "\x00" not in delta.text
        delta.text.encode()


async def test_the_detail_of_a_failure_is_bounded(library, server, request_to):
    """S8."""
    server.play("<html>\x00" + "x" * 100_000, status=502, content_type="text/html")
    with pytest.raises(ModelCallFailed) as caught:
        await library.reply(request_to("openai-chat", server.url))
    assert len(caught.value.detail) <= DETAIL_LIMIT
    assert "\x00" not in caught.value.detail


async def test_a_history_that_makes_no_request_ends_the_turn(library, server, request_to):
    """R3: it would fail the same way at every retry."""
    broken = [
        {"role": "user", "content": [{"type": "media", "media_type": "text/plain", "data": "not base64!"}]}
    ]
    with pytest.raises(ModelCallFailed) as caught:
        await library.reply(request_to("openai", server.url, messages=broken))
    decided = classify(caught.value, failures_so_far=0, call_id="mcl_01")
    assert isinstance(decided, EndTurn)
    assert (decided.reason, decided.error["code"]) == ("invalid_request", "unsendable")
    assert server.received == []
