"""Around one model call: the request from a session's state, the asking, and what is kept of the answer."""

import base64
import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from sessions_app import artifacts, ids, secrets
from sessions_app.database import is_transient
from sessions_app.engine import previews, reductions, retry
from sessions_app.engine.context import artifacts_of, with_media
from sessions_app.engine.resume import repair_orphaned_tool_calls
from sessions_app.engine.state import SessionState
from sessions_app.errors import NotFound
from sessions_app.key_ring import MalformedKeyRing, UndecryptableSecret
from sessions_app.providers import prices
from sessions_app.providers.port import Category, ModelCallFailed, ModelRequest, Reply, Usage
from sessions_app.providers.registry import credential, provider_for
from sessions_app.tool_port import InDatabase, Toolkit

_SMALLEST_BUDGET = 65_536  # bytes of a body; a server that takes less is no model's


async def request_for(
    state: SessionState, call_id: UUID, toolkit: Toolkit, in_database: InDatabase
) -> ModelRequest:
    """Everything the call needs; reads the database only for a secret and for files that the messages name.

    What is missing is a failure of the call (A39): a secret that is not there or can't be read ends the turn, a
    file storage that is away is tried again.
    """
    request = await bare_request(state, call_id, in_database)
    messages, _ = repair_orphaned_tool_calls(state.context.messages)
    wanted = artifacts_of(messages)
    if wanted:
        messages = with_media(messages, await in_database(_load_media, state.project, wanted))
    return dataclasses.replace(
        request,
        messages=messages,
        tools=toolkit.specs(),
        output_schema=state.document.get("output_schema"),
        watched_as=str(state.id),
    )


async def bare_request(state: SessionState, call_id: UUID, in_database: InDatabase) -> ModelRequest:
    """To whom and with what, but nothing said yet: no messages, no tools."""
    model = state.document["model"]
    secret = None
    if model.get("credential"):
        secret = await in_database(_reveal, state.project, model["credential"])
    base_url = model.get("base_url")
    return ModelRequest(
        provider=model["provider"],
        model=model["name"],
        base_url=base_url,
        api_key=credential(model["provider"], secret, base_url),
        settings=model.get("settings") or {},
        instructions=state.document["instructions"],
        messages=(),
        tools=(),
        output_schema=None,
        call_id=ids.encode("mcl", call_id),
        script=state.document.get("script"),
        script_position=state.script_position,
        allowed_networks=settings.TENURE.allowed_networks,
        quiet_limit=settings.TENURE.stream_stall_timeout,
        body_budget=state.body_budget,
        cache_key=ids.encode("ses", state.id),
    )


async def ask(request: ModelRequest) -> Reply:
    """One whole reply, or `ModelCallFailed`."""
    with previews.of_this_process.of(request) as on_delta:
        return await provider_for(request.provider).reply(request, on_delta)


def _reveal(project: UUID, name: str) -> str:
    try:
        return secrets.reveal(project, name)
    except NotFound:
        code, problem = "secret_missing", "does not exist"
    except (UndecryptableSecret, MalformedKeyRing, secrets.NoKeyRing):
        code, problem = "secret_unreadable", "can't be decrypted with the keys of this deployment"
    raise ModelCallFailed(
        f"the secret {name!r} that the config names {problem}", category=Category.AUTH, code=code
    )


def _load_media(project: UUID, wanted: list[str]) -> dict[str, tuple[str, str]]:
    loaded = {}
    for text in wanted:
        try:
            found = artifacts.find(project, ids.decode("art", text))
            if found is not None:
                loaded[text] = (found.media_type, base64.b64encode(artifacts.read(found)).decode())
        except NotFound:
            continue  # its bytes went between the two looks
        except Exception as error:  # the errors of storages have no common class
            if is_transient(error):
                raise  # the database, not the storage
            raise ModelCallFailed(
                f"the file {text} could not be read from the storage: {error}",
                category=Category.PREPARATION,
                code="storage_failed",
            ) from error
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


def failure(
    state: SessionState, call_id: str, failed: ModelCallFailed, verdict: retry.Verdict
) -> dict[str, Any]:
    """The data of the `model_call_failed` entry."""
    data: dict[str, Any] = {
        "model_call": call_id,
        "category": failed.category.value,
        "status": failed.status,
        "code": failed.code,
        "detail": retry.in_words(failed),
        "retry_after": failed.retry_after,
        "may_be_billed": failed.may_be_billed,
    }
    if verdict == retry.AskAgain(Category.TOO_LARGE):
        refused = failed.provider_details.get("body_bytes") or _body_limit(state)
        data["body_budget"] = max(_SMALLEST_BUDGET, refused // 2)
    place = _script_place(failed.provider_details)
    return data | place | ({"plays_script": True} if place else {})


def verdict(state: SessionState, call_id: str, failed: ModelCallFailed) -> retry.Verdict:
    """What follows from the failure."""
    already = set(state.reduced)
    if failed.category is Category.TOO_LARGE and not reductions.can_shrink(state.context.messages):
        already.add(Category.TOO_LARGE)
    return retry.classify(
        failed,
        failures_so_far=state.failures,
        call_id=call_id,
        policy=_retry_policy(),
        already=already,
    )


def _body_limit(state: SessionState) -> int:
    return state.body_budget or reductions.limits_of(state.document["model"]["provider"]).body


class Costs(NamedTuple):
    """`cost` and `cost_added` of a `ModelCallEnd`."""

    cost: Decimal | None
    added: Decimal | None


def costs_of_reply(state: SessionState, reply: Reply) -> Costs:
    """Of a call that brought a reply; without usage nobody knows."""
    cost = None if reply.usage == Usage() else _price(state, reply.usage, reply.model)
    return Costs(cost, cost)


def costs_of_failure(state: SessionState, failed: ModelCallFailed) -> Costs:
    """Of a failed call: zero where nothing can have been billed."""
    usage = failed.usage or Usage()
    price = _price(state, usage, None)
    unknown = failed.may_be_billed and usage == Usage()
    return Costs(None if unknown else price, price)


def _price(state: SessionState, usage: Usage, name: str | None) -> Decimal | None:
    model = state.document["model"]
    return prices.cost_of(model["provider"], name or model["name"], usage, base_url=model.get("base_url"))


def _script_place(details: Mapping[str, Any]) -> dict[str, Any]:
    return {"script_next": details["script_next"]} if "script_next" in details else {}


def _retry_policy() -> retry.Policy:
    tenure = settings.TENURE
    return retry.Policy(limit=tenure.retry_limit, first=tenure.retry_base, longest=tenure.retry_max)
