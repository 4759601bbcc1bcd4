"""One conversation, three providers: a session's model is changed in mid-conversation, with tools and reasoning.

OpenAI and Anthropic are the third-party mock behind our relay, and once more our own server, which signs its
reasoning as the mock does not. Every body that goes over the wire is read through the request rules; for Google,
which they do not know, the same is looked at here.
"""

import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID

import httpx2
import pytest

from sessions_app import configs, control, inputs, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, Turn
from sessions_app.providers.request_rules import check_request
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.sessions_app.engine.wire import in_background
from tests.sessions_app.providers import streams
from tests.sessions_app.providers.relay import Relay
from tests.sessions_app.providers.wire_server import WireServer

pytestmark = pytest.mark.django_db(transaction=True)

LOOPBACK = ("127.0.0.0/8", "::1/128")
ORDERS = [
    ("openai", "anthropic", "google", "openai", "google", "anthropic", "openai"),
    ("google", "openai", "anthropic", "google"),
    ("anthropic", "openai-chat", "anthropic", "openai", "google"),
]
MODELS = {
    "openai": "gpt-5",
    "openai-chat": "gpt-4.1",
    "anthropic": "some-claude",
    "google": "gemini-3-pro-preview",
}
PATHS = {"openai": "/v1", "openai-chat": "/v1"}
ODD_ID = "functions.dev_lookup:0"  # a legal id nowhere but with whoever gave it


def thought(provider: str, turn: int) -> str:
    return f"thought-of-{provider}-{turn}"


def signature(provider: str, turn: int) -> str:
    signed = f"{thought(provider, turn)}-signed"
    return base64.b64encode(signed.encode()).decode() if provider == "google" else signed


def calling(provider: str, turn: int) -> str:
    """The stream of a reply with signed reasoning that looks a key up."""
    arguments = json.dumps({"key": f"k{turn}"})
    signed = signature(provider, turn)
    call_id = ODD_ID if turn % 2 else f"call_{turn}"
    match provider:
        case "openai":
            return streams.responses(
                *streams.responses_reasoning(f"rs_{turn}", [thought(provider, turn)], signed, 0),
                *streams.responses_call(f"fc_{turn}", call_id, "dev_lookup", arguments, 1),
            )
        case "openai-chat":
            return streams.chat(
                {"reasoning_content": thought(provider, turn)},
                streams.chat_call(0, call_id, "dev_lookup", arguments),
                finish="tool_calls",
            )
        case "anthropic":
            return streams.anthropic(
                *signed_thinking(thought(provider, turn), signed),
                *streams.anthropic_call(1, f"toolu_{turn}", "dev_lookup", arguments),
                stop="tool_use",
            )
        case _:
            call = {
                "functionCall": {"name": "dev_lookup", "args": json.loads(arguments), "id": call_id},
                "thoughtSignature": signed,
            }
            return google({"text": thought(provider, turn), "thought": True}, call)


def answering(provider: str, text: str) -> str:
    match provider:
        case "openai":
            return streams.responses(*streams.responses_text(f"msg_{text[-1]}", text))
        case "openai-chat":
            return streams.chat({"content": text})
        case "anthropic":
            return streams.anthropic(*streams.anthropic_text(0, text))
        case _:
            return google({"text": text})


def signed_thinking(text: str, signed: str) -> list[dict[str, Any]]:
    block = {"type": "thinking", "thinking": "", "signature": ""}
    return [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": text},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": signed},
        },
        {"type": "content_block_stop", "index": 0},
    ]


def google(*parts: dict[str, Any]) -> str:
    content = {"role": "model", "parts": list(parts)}
    return streams.sse({"candidates": [{"content": content, "finishReason": "STOP"}]})


@pytest.fixture
def server() -> Iterator[WireServer]:
    with in_background(WireServer()) as running:
        yield running


@pytest.fixture
def relay(running_mock: str) -> Iterator[Relay]:
    httpx2.post(f"{running_mock}/__aimock/reset", trust_env=False).raise_for_status()
    with in_background(Relay(running_mock)) as running:
        yield running


def add_answer(running_mock: str, match: dict[str, Any], response: dict[str, Any]) -> None:
    fixtures = {"fixtures": [{"match": match, "response": response}]}
    httpx2.post(f"{running_mock}/__aimock/fixtures", json=fixtures, trust_env=False).raise_for_status()


class Conversation:
    """One session that is led from provider to provider."""

    def __init__(self, urls: dict[str, str]) -> None:
        self._project = factories.project().pk
        self._urls = urls
        self.session: UUID | None = None
        self.turns = 0

    def say(self, provider: str) -> UUID:
        self.turns += 1
        content = [{"type": "text", "text": f"turn {self.turns}"}]
        config = configs.create_config(project=self._project, document=self._document(provider)).row.pk
        if self.session is None:
            first = NewInput(content=content, actor=SYSTEM)
            started = session_service.start_session(
                project=self._project, actor=SYSTEM, config=config, input=first
            )
            self.session = started.pk
        else:
            control.change_config(session=self.session, config=config, actor=SYSTEM)
            inputs.submit_input(session=self.session, content=content, actor=SYSTEM, delivery="queued")
        return self.session

    def _document(self, provider: str) -> dict[str, Any]:
        return {
            "instructions": "Look things up.",
            "model": {
                "provider": provider,
                "name": MODELS[provider],
                "base_url": self._urls[provider] + PATHS.get(provider, ""),
            },
            "tools": {"dev_lookup": {}},
        }


def assert_google_takes(body: dict[str, Any]) -> None:
    """Users and models take turns, each call is answered right behind it, no part is empty or foreign."""
    contents = body["contents"]
    assert contents[0]["role"] == contents[-1]["role"] == "user"
    for content in contents:
        assert content["parts"]
        for part in content["parts"]:
            assert part.get("text", "x").strip()
    for before, after in pairwise(contents):
        calls = [part["functionCall"]["name"] for part in before["parts"] if "functionCall" in part]
        results = [part["functionResponse"]["name"] for part in after["parts"] if "functionResponse" in part]
        assert calls == results
    thoughts = [part for content in contents for part in content["parts"] if part.get("thought")]
    assert all("google" in part["text"] for part in thoughts)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_signed_conversation_goes_from_provider_to_provider(order, settings, server, tmp_path):
    """All that a session promises of requests: results behind their calls, ids mapped, reasoning to its own maker."""
    urls = dict.fromkeys(MODELS, server.url)
    conversation = Conversation(urls)
    with working(settings, allowed_networks=LOOPBACK, dev_tool_root=str(tmp_path)) as rested:
        for turn, provider in enumerate(order, start=1):
            server.play(calling(provider, turn))
            server.play(answering(provider, f"answer {turn}"))
            rested(conversation.say(provider))
    ends = Turn.objects.filter(session=conversation.session).order_by("number")
    assert [turn.reason for turn in ends] == ["done"] * len(order)
    assert len(server.received) == 2 * len(order)
    sent_by = [provider for provider in order for _ in range(2)]
    for number, (provider, received) in enumerate(zip(sent_by, server.received, strict=True)):
        if provider == "google":
            assert_google_takes(received.body)
        else:
            assert check_request(provider, received.body) == []
        text = json.dumps(received.body)
        turn = number // 2 + 1
        for earlier in range(1, turn):
            assert f"turn {earlier}" in text
            assert f"answer {earlier}" in text
            assert f"k{earlier}" in text
            # What was signed goes back to its maker, who can check it; nobody else sees reasoning at all.
            maker = order[earlier - 1]
            assert (signature(maker, earlier) in text) is (maker == provider and maker != "openai-chat")
            assert (thought(maker, earlier) in text) <= (maker == provider)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_conversation_over_the_wire_mock_goes_from_provider_to_provider(
    order, settings, server, relay, running_mock, tmp_path
):
    """Over the third-party mock, whose journal is read as raw bodies."""
    urls = dict.fromkeys(MODELS, relay.url) | {"google": server.url}
    conversation = Conversation(urls)
    with working(settings, allowed_networks=LOOPBACK, dev_tool_root=str(tmp_path)) as rested:
        for turn, provider in enumerate(order, start=1):
            call_id = f"call_mock_{turn}"
            if provider == "google":
                server.play(calling(provider, turn))
                server.play(answering(provider, f"answer {turn}"))
            else:
                call = {"id": call_id, "name": "dev_lookup", "arguments": {"key": f"k{turn}"}}
                add_answer(running_mock, {"toolCallId": call_id}, {"content": f"answer {turn}"})
                add_answer(
                    running_mock,
                    {"userMessage": f"turn {turn}"},
                    {"reasoning": thought(provider, turn), "toolCalls": [call]},
                )
            rested(conversation.say(provider))
    ends = Turn.objects.filter(session=conversation.session).order_by("number")
    assert [turn.reason for turn in ends] == ["done"] * len(order)
    reasoned = Entry.objects.filter(session=conversation.session, kind="assistant_message")
    with_reasoning = [
        entry for entry in reasoned if any(block["type"] == "reasoning" for block in entry.data["content"])
    ]
    assert len(with_reasoning) >= len(order)
    for received in server.received:
        assert_google_takes(received.body)
    sent_by = [provider for provider in order if provider != "google" for _ in range(2)]
    assert len(relay.bodies) == len(sent_by)
    for provider, body in zip(sent_by, relay.bodies, strict=True):
        assert check_request(provider, body) == []
    last = json.dumps(relay.bodies[-1] if order[-1] != "google" else server.received[-1].body)
    for turn in range(1, len(order) + 1):
        assert f"turn {turn}" in last
        assert f"k{turn}" in last
