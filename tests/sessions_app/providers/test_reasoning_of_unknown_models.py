"""Reasoning of OpenAI models whose names the library does not know: an alias, a newer model, another server."""

import json

import pytest

from sessions_app.engine.context import EntryRow, messages_of
from sessions_app.providers.request_rules import check_request
from tests.sessions_app.providers import streams

NAME = "our-reasoner"


def history(made_by: str | None) -> list[dict]:
    thought = {
        "type": "reasoning",
        "text": "Two keys to look up.",
        "provider": "openai",
        "signature": "ciphertext",
        "details": {"id": "rs_1"},
    }
    call = {
        "type": "tool_call",
        "id": "call_1",
        "name": "read",
        "arguments": {"f": "a"},
        "provider": "openai",
        "details": {"id": "fc_1"},
    }
    said = {"content": [thought, call], "stop": "tool_calls", "provider": "openai", "model": made_by}
    result = {"id": "call_1", "name": "read", "content": "done", "outcome": "succeeded"}
    kinds = [
        ("user_message", {"content": "compare"}),
        ("assistant_message", said),
        ("tool_result", result),
    ]
    return messages_of(EntryRow(seq, seq - 1 or None, *kind) for seq, kind in enumerate(kinds, start=1))


async def body_for(library, server, request_to, **request) -> dict:
    server.play(streams.responses(*streams.responses_text("msg_1", "ok")))
    await library.reply(request_to("openai", server.url, **request))
    body = server.received[-1].body
    assert check_request("openai", body) == []
    assert "<think" not in json.dumps(body)
    return body


@pytest.mark.parametrize("made_by", [NAME, f"{NAME}-2026-01-31"])
async def test_a_model_gets_its_own_reasoning_back_whatever_it_is_called(
    made_by, library, server, request_to
):
    """C18: as the item that it was, in front of the call that it led to; a version of the model is the model."""
    body = await body_for(library, server, request_to, model=NAME, messages=history(made_by))
    _, reasoning, call, _ = body["input"]
    assert (reasoning["type"], reasoning["id"]) == ("reasoning", "rs_1")
    assert reasoning["encrypted_content"] == "ciphertext"
    assert (call["type"], call["id"]) == ("function_call", "fc_1")
    assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("name", [NAME, "gpt-4o"])
@pytest.mark.parametrize("made_by", ["gpt-5", "our-reasonerous", None])
async def test_reasoning_of_another_model_is_left_out_where_the_model_may_not_read_it(
    name, made_by, library, server, request_to
):
    """C18: neither as an item, which such a model refuses, nor as text, nor as what an item id asks for."""
    body = await body_for(library, server, request_to, model=name, messages=history(made_by))
    _, call, result = body["input"]
    assert (call["type"], result["type"]) == ("function_call", "function_call_output")
    assert "id" not in call
    assert "include" not in body


async def test_a_model_that_reasons_reads_what_another_one_of_its_provider_thought(
    library, server, request_to
):
    """C18: the name decides where the library knows it."""
    body = await body_for(library, server, request_to, model="gpt-5", messages=history("o3"))
    assert body["input"][1]["encrypted_content"] == "ciphertext"
