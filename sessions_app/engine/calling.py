"""Around one model call: the request from a session's state, the asking, and what is kept of the answer."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings

from sessions_app import artifacts, ids, secrets, tool_port
from sessions_app.crashpoints import crash_point
from sessions_app.engine import retry
from sessions_app.engine.context import artifacts_of, with_media
from sessions_app.engine.resume import repair_orphaned_tool_calls
from sessions_app.engine.state import SessionState
from sessions_app.providers.port import Delta, ModelCallFailed, ModelRequest, Reply
from sessions_app.providers.registry import credential, provider_for

type InDatabase = Callable[..., Awaitable[Any]]


async def request_for(state: SessionState, call_id: UUID, in_database: InDatabase) -> ModelRequest:
    """Everything the call needs; reads the database only for a secret and for files that the messages name."""
    model = state.document["model"]
    secret = None
    if model.get("credential"):
        secret = await in_database(secrets.reveal, state.project, model["credential"])
    messages, _ = repair_orphaned_tool_calls(state.context.messages)
    wanted = artifacts_of(messages)
    if wanted:
        messages = with_media(messages, await in_database(_load_media, state.project, wanted))
    base_url = model.get("base_url")
    return ModelRequest(
        provider=model["provider"],
        model=model["name"],
        base_url=base_url,
        api_key=credential(model["provider"], secret, base_url),
        settings=model.get("settings") or {},
        instructions=state.document["instructions"],
        messages=messages,
        tools=tool_port.runtime().specs(state.document),
        output_schema=state.document.get("output_schema"),
        call_id=ids.encode("mcl", call_id),
        script=state.document.get("script"),
        script_position=state.script_position,
        allowed_networks=settings.TENURE.allowed_networks,
        quiet_limit=settings.TENURE.stream_stall_timeout,
    )


async def ask(request: ModelRequest) -> Reply:
    """One whole reply, or `ModelCallFailed`."""
    return await provider_for(request.provider).reply(
        request, _on_delta if settings.TENURE.crash_at else None
    )


def _on_delta(_: Delta) -> None:
    crash_point("model.streaming")


def _load_media(project: UUID, wanted: list[str]) -> dict[str, tuple[str, str]]:
    loaded = {}
    for text in wanted:
        found = artifacts.find(project, ids.decode("art", text))
        if found is not None:
            loaded[text] = (found.media_type, base64.b64encode(artifacts.read(found)).decode())
    return loaded


def message(request: ModelRequest, reply: Reply, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """The data of the `assistant_message` entry."""
    data = {
        "model_call": request.call_id,
        "provider": request.provider,
        "model": request.model,
        "content": blocks,
        "stop": reply.stop.value,
        "raw_stop": reply.raw_stop,
        "usage": {
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "cached_tokens": reply.usage.cached_tokens,
            "reasoning_tokens": reply.usage.reasoning_tokens,
        },
    }
    return data | _script_place(reply.provider_details)


def failure(state: SessionState, call_id: str, failed: ModelCallFailed) -> dict[str, Any]:
    """The data of the `model_call_failed` entry."""
    data: dict[str, Any] = {
        "model_call": call_id,
        "category": failed.category.value,
        "status": failed.status,
        "code": failed.code,
        "detail": failed.detail,
        "retry_after": failed.retry_after,
        "may_be_billed": failed.may_be_billed,
    }
    place = _script_place(failed.provider_details)
    return data | place | ({"plays_script": True} if place else {})


def _script_place(details: Mapping[str, Any]) -> dict[str, Any]:
    return {"script_next": details["script_next"]} if "script_next" in details else {}


def retry_policy() -> retry.Policy:
    tenure = settings.TENURE
    return retry.Policy(limit=tenure.retry_limit, first=tenure.retry_base, longest=tenure.retry_max)
