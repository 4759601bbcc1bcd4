"""Every view of a generated history, sent through the library, keeps the request rules of each protocol.

The whole adapter runs, down to the HTTP client; a transport without a network keeps the body and refuses.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions_app.engine.resume import plan_resume, repair_orphaned_tool_calls
from sessions_app.providers.library import models
from sessions_app.providers.library.adapter import LibraryProvider
from sessions_app.providers.library.models import close_clients
from sessions_app.providers.port import Category, ModelCallFailed, ModelRequest, ToolSpec
from sessions_app.providers.request_rules import check_request
from tests.sessions_app.engine.generated import transcripts
from tests.sessions_app.engine.transcripts import transcript

TARGETS = {
    "openai": "gpt-5",
    "openai-chat": "gpt-4.1",
    "anthropic": "some-claude",
}


class Recorder:
    """An HTTP client's network: it keeps what is sent and answers that the request is invalid."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content.decode()))
        return httpx2.Response(400, json={"error": {"type": "invalid_request_error", "message": "recorded"}})

    def client(self, base_url: str | None, networks: Sequence[str]) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(models, "_http_client", recorder.client)
    return recorder


def sent_bodies(recorder: Recorder, views: Sequence[Sequence[Any]], provider: str) -> list[dict[str, Any]]:
    """What goes over the wire for these views."""

    async def send() -> None:
        for view in views:
            with pytest.raises(ModelCallFailed) as failed:
                await LibraryProvider().reply(
                    ModelRequest(
                        provider=provider,
                        model=TARGETS[provider],
                        base_url=None,
                        api_key="key",
                        settings={},
                        instructions="Be brief.",
                        messages=view,
                        tools=[ToolSpec("find", "Finds.", {"type": "object", "properties": {}})],
                        output_schema=None,
                        call_id="call",
                    )
                )
            assert failed.value.category is Category.INVALID_REQUEST, failed.value.detail
        await close_clients()

    before = len(recorder.bodies)
    asyncio.run(send())
    bodies = recorder.bodies[before:]
    assert len(bodies) == len(views)
    return bodies


def views_of(messages: list[Any]) -> list[list[Any]]:
    """The whole history and what a resume keeps of it, where there is anything to send."""
    plan = plan_resume(messages)
    keep = getattr(plan, "keep", 0)
    views = [repair_orphaned_tool_calls(messages)[0], repair_orphaned_tool_calls(messages[:keep])[0]]
    return [view for view in views if any(m["role"] in ("user", "tool_result") for m in view)]


@pytest.mark.parametrize("provider", TARGETS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_view_of_a_history_becomes_a_request_that_keeps_the_rules(
    recorder: Recorder, provider: str, data: st.DataObject
) -> None:
    """C02, C04, C05, C06, C10, C12, C13, C15, C18, C20, C23, C31, C40: at the wire."""
    messages = data.draw(transcripts(st.sampled_from([provider, provider, "google"])))
    for body in sent_bodies(recorder, views_of(messages), provider):
        assert check_request(provider, body) == []


@pytest.mark.parametrize("provider", TARGETS)
def test_rows_of_the_resume_table_become_requests_that_keep_the_rules(
    recorder: Recorder, provider: str
) -> None:
    """S9: the views of the table that hold calls, aborted frames, late results and adopted ones."""
    rows = [
        "U A[c1,c2] r(c1) T A[c3]",
        "U A[c1,c2,c3] r(c1) T!aborted r(c2)",
        "U A[c1] U",
        "U A[c1] T!stop r(c1) U",
        "U r(c1) A[c1]",
        "U A[c1] r(c1) A[c1]",
        "U A[c1,c1]",
        "U A[c1,c2] U r(c2) note r(c1)",
    ]
    views = [repair_orphaned_tool_calls(transcript(row))[0] for row in rows]
    for row, body in zip(rows, sent_bodies(recorder, views, provider), strict=True):
        assert check_request(provider, body) == [], row
