"""All protocols against the third-party mock: what is said arrives, what arrives goes back whole.

The mock is lenient, so each body that is sent to it is read through our request rules, too.
"""

import base64
import json

import pytest

from sessions_app.engine.context import EntryRow, artifacts_of, messages_of, with_media
from sessions_app.providers.port import Delta, Stop
from sessions_app.providers.request_rules import check_request
from tests.sessions_app.providers.conftest import PROTOCOLS

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\x00" * 24).decode()


def assert_requests_are_valid(mock, provider: str) -> list[dict]:
    assert mock.bodies
    for body in mock.bodies:
        assert check_request(provider, body) == []
    return mock.bodies


def entries_of(*kinds: tuple[str, dict]) -> list[EntryRow]:
    return [EntryRow(seq, seq - 1 or None, kind, data) for seq, (kind, data) in enumerate(kinds, start=1)]


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_text_streams_in_and_is_saved_whole(provider, mock, library, request_to):
    """R7: with its deltas, usage, stop reason and the time to the first token."""
    text = "The quick brown fox jumps over the lazy dog, twice. " * 3
    await mock.answer(
        {"userMessage": "hi"}, {"content": text, "usage": {"input_tokens": 11, "output_tokens": 22}}
    )
    deltas: list[Delta] = []
    reply = await library.reply(request_to(provider, mock.url), deltas.append)
    assert [block["text"] for block in reply.content] == [text]
    assert "".join(delta.text for delta in deltas) == text
    assert len(deltas) > 3
    assert {(delta.block, delta.kind) for delta in deltas} == {(0, "text")}
    assert reply.stop is Stop.DONE
    assert reply.time_to_first_token > 0
    assert reply.model == "some-model"
    assert_requests_are_valid(mock, provider)


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_reasoning_text_and_several_calls_come_in_order(provider, mock, library, request_to):
    await mock.answer(
        {"userMessage": "hi"},
        {
            "reasoning": "Two files to read.",
            "content": "Reading.",
            "toolCalls": [
                {"id": "call_1", "name": "read", "arguments": {"f": "a"}},
                {"id": "call_2", "name": "read", "arguments": {"f": "b", "n": {"deep": [1, None, "ä"]}}},
            ],
        },
    )
    deltas: list[Delta] = []
    reply = await library.reply(request_to(provider, mock.url), deltas.append)
    assert [block["type"] for block in reply.content] == ["reasoning", "text", "tool_call", "tool_call"]
    assert reply.content[0]["text"] == "Two files to read."
    assert reply.content[0]["provider"] == provider
    assert [(call["id"], call["name"], call["arguments"]) for call in reply.content[2:]] == [
        ("call_1", "read", {"f": "a"}),
        ("call_2", "read", {"f": "b", "n": {"deep": [1, None, "ä"]}}),
    ]
    assert reply.stop is Stop.TOOL_CALLS
    said = {
        (block, kind): "".join(delta.text for delta in deltas if (delta.block, delta.kind) == (block, kind))
        for block, kind in {(delta.block, delta.kind) for delta in deltas}
    }
    assert said[0, "reasoning"] == "Two files to read."
    assert json.loads(said[3, "arguments"]) == reply.content[3]["arguments"]
    body = assert_requests_are_valid(mock, provider)[0]
    assert body["stream"] is True


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_a_conversation_goes_back_as_it_came(provider, mock, library, request_to):
    """Reply to entry to message to request: the second request holds the call, its result and the error."""
    await mock.answer({"toolCallId": "call_2"}, {"content": "One is missing."})
    await mock.answer(
        {"userMessage": "compare"},
        {
            "content": "Reading.",
            "toolCalls": [
                {"id": "call_1", "name": "read", "arguments": {"f": "a"}},
                {"id": "call_2", "name": "read", "arguments": {"f": "b"}},
            ],
        },
    )
    user = ("user_message", {"content": [{"type": "text", "text": "compare"}], "input": "inp_1"})
    first = await library.reply(request_to(provider, mock.url, messages=messages_of(entries_of(user))))
    saved = {"content": first.content, "stop": first.stop.value, "provider": provider, "model": "some-model"}
    result = {"name": "read", "content": [{"type": "text", "text": "first file"}], "outcome": "succeeded"}
    failed = {"name": "read", "content": [{"type": "text", "text": "no such file"}], "outcome": "interrupted"}
    history = entries_of(
        user,
        ("assistant_message", saved),
        # In the order in which they ended; the request has them in call order.
        ("tool_result", {"tool_call": "tcl_2", "id": "call_2", **failed}),
        ("tool_result", {"tool_call": "tcl_1", "id": "call_1", **result}),
    )
    second = await library.reply(request_to(provider, mock.url, messages=messages_of(history)))
    assert [block["text"] for block in second.content] == ["One is missing."]

    body = assert_requests_are_valid(mock, provider)[-1]
    sent = json.dumps(body)
    for said in ("compare", "Reading.", "first file", "no such file", "call_1", "call_2", "Be brief."):
        assert said in sent
    assert sent.index("first file") < sent.index("no such file")
    if provider == "anthropic":
        results = [part for part in body["messages"][-1]["content"] if part["type"] == "tool_result"]
        assert [part.get("is_error", False) for part in results] == [False, True]


@pytest.mark.parametrize("outcome", ["failed", "denied", "cancelled", "interrupted"])
async def test_every_outcome_but_success_reaches_the_model_as_an_error(outcome, mock, library, request_to):
    """The library would pass only `failed` on as one."""
    await mock.answer({}, {"content": "ok"})
    call = {"type": "tool_call", "id": "call_1", "name": "read", "arguments": {"f": "a"}}
    history = entries_of(
        ("user_message", {"content": "go"}),
        ("assistant_message", {"content": [call], "stop": "tool_calls"}),
        ("tool_result", {"id": "call_1", "name": "read", "content": "why not", "outcome": outcome}),
    )
    messages = messages_of(history)
    await library.reply(request_to("anthropic", mock.url, messages=messages))
    await library.reply(request_to("openai-chat", mock.url, messages=messages))
    native, wrapped = (body["messages"][-1] for body in mock.bodies)
    assert native["content"][0]["is_error"] is True
    assert json.loads(wrapped["content"]) == {"error": "why not"}


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_ids_of_another_provider_are_mapped(provider, mock, library, request_to):
    """C12, C13, C58: the library maps none."""
    await mock.answer({}, {"content": "ok"})
    stored = "call.with:strange|characters" + "x" * 60
    call = {"type": "tool_call", "id": stored, "name": "read", "arguments": {"f": "a"}}
    history = entries_of(
        ("user_message", {"content": "go"}),
        ("assistant_message", {"content": [call], "stop": "tool_calls", "provider": "elsewhere"}),
        ("tool_result", {"id": stored, "name": "read", "content": "done", "outcome": "succeeded"}),
    )
    await library.reply(request_to(provider, mock.url, messages=messages_of(history)))
    assert stored not in json.dumps(assert_requests_are_valid(mock, provider))


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_reasoning_of_another_provider_stays_at_home(provider, mock, library, request_to):
    """The library would send it as tagged text."""
    await mock.answer({}, {"content": "ok"})
    other = {"type": "reasoning", "text": "secret thought", "provider": "elsewhere", "signature": "sig"}
    history = entries_of(
        ("user_message", {"content": "go"}),
        ("assistant_message", {"content": [other, {"type": "text", "text": "Well."}], "stop": "done"}),
        ("user_message", {"content": "and?"}),
    )
    await library.reply(request_to(provider, mock.url, messages=messages_of(history)))
    assert "secret thought" not in json.dumps(assert_requests_are_valid(mock, provider))


async def test_signed_thinking_goes_back_to_anthropic_unchanged(mock, library, request_to):
    """C15, C18."""
    await mock.answer({"toolCallId": "call_1"}, {"content": "ok"})
    await mock.answer(
        {"userMessage": "go"},
        {
            "reasoning": "Let me look.",
            "toolCalls": [{"id": "call_1", "name": "read", "arguments": {"f": "a"}}],
        },
    )
    user = ("user_message", {"content": "go"})
    first = await library.reply(request_to("anthropic", mock.url, messages=messages_of(entries_of(user))))
    signature = first.content[0]["signature"]
    assert signature
    result = {"id": "call_1", "name": "read", "content": "done", "outcome": "succeeded"}
    saved = {"content": first.content, "stop": "tool_calls", "provider": "anthropic"}
    history = entries_of(user, ("assistant_message", saved), ("tool_result", result))
    await library.reply(request_to("anthropic", mock.url, messages=messages_of(history)))
    sent = mock.bodies[-1]["messages"][1]["content"]
    assert sent[0] == {"type": "thinking", "thinking": "Let me look.", "signature": signature}


async def test_nothing_depends_on_what_openai_stores(mock, library, request_to):
    """C20: sessions outlive the provider's copy, so the request asks for none and refers to none."""
    await mock.answer({}, {"content": "ok"})
    user = ("user_message", {"content": "go"})
    first = await library.reply(request_to("openai", mock.url, messages=messages_of(entries_of(user))))
    saved = {"content": first.content, "stop": "done", "provider": "openai"}
    history = entries_of(user, ("assistant_message", saved), ("user_message", {"content": "and?"}))
    await library.reply(request_to("openai", mock.url, messages=messages_of(history)))
    body = assert_requests_are_valid(mock, "openai")[-1]
    assert body["store"] is False
    assert "previous_response_id" not in body


@pytest.mark.parametrize("provider", PROTOCOLS)
@pytest.mark.parametrize("where", ["user", "result"])
async def test_images_arrive(provider, where, mock, library, request_to):
    await mock.answer({}, {"content": "A pixel."})
    image = {"type": "media", "artifact": "art_1", "media_type": "image/png"}
    call = {"type": "tool_call", "id": "call_1", "name": "read", "arguments": {"f": "a"}}
    look = [{"type": "text", "text": "look"}]
    result = {"id": "call_1", "name": "read", "content": [*look, image], "outcome": "succeeded"}
    history = [("user_message", {"content": [*look, image] if where == "user" else look})]
    if where == "result":
        history += [
            ("assistant_message", {"content": [call], "stop": "tool_calls"}),
            ("tool_result", result),
        ]
    messages = messages_of(entries_of(*history))
    assert artifacts_of(messages) == ["art_1"]
    loaded = with_media(messages, {"art_1": ("image/png", PIXEL)})
    await library.reply(request_to(provider, mock.url, messages=loaded))
    assert PIXEL in json.dumps(mock.bodies[0])


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_settings_tools_and_schema_are_sent(provider, mock, library, request_to):
    await mock.answer({}, {"content": '{"priority": "high"}'})
    schema = {
        "type": "object",
        "properties": {"priority": {"type": "string"}},
        "required": ["priority"],
        "additionalProperties": False,
    }
    settings = {"max_tokens": 321, "temperature": 0.25}
    await library.reply(request_to(provider, mock.url, settings=settings, output_schema=schema))
    body = mock.bodies[0]
    assert body["temperature"] == 0.25
    assert 321 in (body.get("max_tokens"), body.get("max_completion_tokens"), body.get("max_output_tokens"))
    tool = body["tools"][0]
    assert "Read a file." in json.dumps(tool)
    assert '"f"' in json.dumps(tool)
    assert "priority" in json.dumps({key: value for key, value in body.items() if key != "tools"})


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_one_connection_serves_many_calls(provider, mock, library, request_to):
    """One shared client per provider and address, none per call."""
    from sessions_app.providers.library import models

    await mock.answer({}, {"content": "ok"})
    request = request_to(provider, mock.url)
    await library.reply(request)
    model = models.model_for(request)
    await library.reply(request)
    assert models.model_for(request) is model
    assert len(models._by_loop) == 1
