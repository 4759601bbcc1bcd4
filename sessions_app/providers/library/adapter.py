"""One model call through the library: always streamed, never retried, judged by what the transport saw."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from sessions_app.engine.resume import to_request
from sessions_app.providers import prices
from sessions_app.providers.library import errors, messages, reasoning
from sessions_app.providers.library.stops import stop_of
from sessions_app.providers.library.transport import FIRST_EVENT_WITHIN, Watch, watching
from sessions_app.providers.port import (
    Category,
    Delta,
    ModelCallFailed,
    ModelRequest,
    OnDelta,
    Reply,
    Stop,
    Usage,
)
from sessions_app.text import UnstorableJson, clean_json, clean_text

# Settings that mean the same for every provider, under the config's names.
_SETTINGS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "stop_sequences": "stop_sequences",
    "parallel_tool_calls": "parallel_tool_calls",
    "tool_choice": "tool_choice",
    "service_tier": "service_tier",
    "reasoning": "thinking",
}
# Anthropic has no code for it.
_BAD_SIGNATURE = re.compile(r"invalid\W+signature\W+in\W+thinking", re.IGNORECASE)
_OVERHEAD = 500  # bytes of a body around a tool, and around everything
_OWN_SETTINGS = ("openai_", "anthropic_", "google_")
# Settings that would take a call out of our hands: other transports, jobs and state at the provider.
_REFUSED = frozenset(
    {
        "openai_transport",
        "openai_background",
        "openai_previous_response_id",
        "openai_conversation_id",
        "openai_native_tools",
    }
)


class LibraryProvider:
    """The port's provider over Pydantic AI, for every provider the library knows."""

    def __init__(
        self, *, first_event_within: float = FIRST_EVENT_WITHIN, quiet_limit: float | None = None
    ) -> None:
        self._first_event_within = first_event_within
        self._quiet_limit = quiet_limit

    async def reply(self, request: ModelRequest, on_delta: OnDelta | None = None) -> Reply:
        """One streamed call; `ModelCallFailed` for everything that is not a whole reply."""
        try:
            return await self._call(request, on_delta)
        except ModelCallFailed as failure:
            if _refuses_reasoning(failure) and _has_reasoning(request):
                # Its keys rotate, models retire; the history would fail for ever with it.
                failure.category = Category.REPLAY_REFUSED
            raise

    async def _call(self, request: ModelRequest, on_delta: OnDelta | None) -> Reply:
        watch = Watch(
            first_event_within=self._first_event_within, quiet_limit=self._quiet_limit or request.quiet_limit
        )
        token = watching.set(watch)
        stream: StreamedResponse | None = None
        try:
            model, readable = reasoning.readable(request)
            async with model_request_stream(
                model,
                _messages(request, model, readable),
                model_settings=_settings(request),
                model_request_parameters=_parameters(request, model),
            ) as stream:
                async for event in stream:
                    if on_delta is not None and (delta := _delta(event)) is not None:
                        on_delta(delta)
            response = stream.get()
        except errors.FAILURES as error:
            raise errors.failure_of(error, watch, _usage(stream)) from error
        except errors.PARSING as error:
            if watch.sent_at is None:
                # A history that cannot be made into a request cannot be at the next try either.
                raise ModelCallFailed(
                    f"the request could not be built: {error}",
                    category=Category.INVALID_REQUEST,
                    code="unsendable",
                ) from error
            raise errors.failure_of(error, watch, _usage(stream)) from error
        finally:
            watching.reset(token)
        failure = errors.incomplete_failure(watch, messages.usage_of(response))
        if failure is not None:
            raise failure
        return _reply(request, response, watch)


LIBRARY = LibraryProvider()
prices.load()  # with the SDKs, beside the event loop: it takes a quarter of a second


def _refuses_reasoning(failure: ModelCallFailed) -> bool:
    if failure.category is not Category.INVALID_REQUEST:
        return False
    return failure.code == "invalid_encrypted_content" or bool(_BAD_SIGNATURE.search(failure.detail))


def _has_reasoning(request: ModelRequest) -> bool:
    return any(
        block.get("type") == "thinking"
        for message in request.messages
        if message.get("role") == "assistant" and isinstance(message.get("content"), list)
        for block in message["content"]
    )


def _messages(
    request: ModelRequest, model: Model, readable: Sequence[Mapping[str, Any]]
) -> list[ModelMessage]:
    tools = sum(
        len(tool.description) + len(json.dumps(tool.input_schema)) + _OVERHEAD for tool in request.tools
    )
    beside = len(request.instructions.encode()) + tools + _OVERHEAD
    view = to_request(list(readable), request.provider, budget=request.body_budget, beside=beside)
    return messages.to_library(
        view, provider=request.provider, system=model.system, instructions=request.instructions
    )


def _parameters(request: ModelRequest, model: Model) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
            strict=False,  # the schema is sent as it was written
        )
        for tool in request.tools
    ]
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools)
    native = bool(model.profile.get("supports_json_schema_output"))
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if native else "prompted",
        output_object=OutputObjectDefinition(json_schema=request.output_schema, name="output"),
    )


def _settings(request: ModelRequest) -> ModelSettings:
    settings: dict[str, Any] = {}
    unknown = []
    for name, value in request.settings.items():
        if value is None:
            continue
        if name == "reasoning" and value == "none":
            settings["thinking"] = False
        elif name in _SETTINGS:
            settings[_SETTINGS[name]] = value
        elif name.startswith(_OWN_SETTINGS) and name not in _REFUSED:
            settings[name] = value
        else:
            unknown.append(name)
    if unknown:
        raise ModelCallFailed(
            f"unknown model settings: {', '.join(sorted(unknown))}",
            category=Category.INVALID_REQUEST,
            code="unknown_setting",
        )
    if request.provider == "openai":
        # Sessions outlive what a provider stores (30 days), so nothing may depend on it: content and
        # encrypted reasoning travel with each request.
        settings.setdefault("openai_store", False)
    _mark_for_cache(request, settings)
    return cast("ModelSettings", settings)


def _mark_for_cache(request: ModelRequest, settings: dict[str, Any]) -> None:
    """Ask providers that cache on demand to do so; the beginning of a session's requests stays the same."""
    if request.provider == "anthropic":
        # Tools, instructions and the last message: the next request finds the longest part that it shares.
        settings.setdefault("anthropic_cache_tool_definitions", True)
        settings.setdefault("anthropic_cache_instructions", True)
        # Marks on blocks, because servers that speak this protocol may not know the mark for the whole request.
        if "anthropic_cache" not in settings:
            settings.setdefault("anthropic_cache_messages", True)
    elif request.cache_key is not None and (
        request.provider == "openai" or (request.provider == "openai-chat" and request.base_url is None)
    ):
        # Requests with one key go to one machine, which has their beginning. Compatible servers may refuse it.
        settings.setdefault("openai_prompt_cache_key", request.cache_key)


def _usage(stream: StreamedResponse | None) -> Usage | None:
    return None if stream is None else messages.usage_of(stream.get())


def _reply(request: ModelRequest, response: ModelResponse, watch: Watch) -> Reply:
    corrector = watch.corrector
    usage = messages.usage_of(response)
    try:
        content = clean_json(messages.from_library(response, request.provider), on_nan="null")
    except UnstorableJson as error:
        raise _unusable(f"the reply cannot be stored: {error}", Category.MALFORMED, watch, usage) from error
    details = response.provider_details or {}
    raw_stop = corrector.stop or response.finish_reason
    if raw_stop is not None:
        raw_stop = clean_text(raw_stop)
    stop = stop_of(corrector.protocol, raw_stop)
    refusal = details.get("refusal")
    if refusal:
        stop = Stop.FILTERED
        content = content or [{"type": "text", "text": clean_text(str(refusal))}]
    calls = any(block["type"] == "tool_call" for block in content)
    if stop is Stop.DONE and calls:
        stop = Stop.TOOL_CALLS
    if stop is Stop.TOOL_CALLS and not calls:
        raise _unusable("the reply says it calls tools and calls none", Category.MALFORMED, watch, usage)
    if raw_stop == "MALFORMED_FUNCTION_CALL":
        raise _unusable("the model's tool call could not be read", Category.MALFORMED, watch, usage)
    if stop is Stop.DONE and not any(_says_something(block) for block in content):
        raise _unusable("the reply is empty", Category.EMPTY, watch, usage)
    return Reply(
        content=content,
        stop=stop,
        raw_stop=raw_stop,
        usage=usage,
        time_to_first_token=watch.time_to_first_token,
        provider_details=_plain(details),
        model=clean_text(response.model_name or request.model),
        response_id=None
        if response.provider_response_id is None
        else clean_text(response.provider_response_id),
    )


def _says_something(block: Mapping[str, Any]) -> bool:
    return block["type"] == "tool_call" or bool(block["text"].strip())


def _unusable(detail: str, category: Category, watch: Watch, usage: Usage) -> ModelCallFailed:
    return ModelCallFailed(
        detail,
        category=category,
        usage=usage,
        may_be_billed=True,
        time_to_first_token=watch.time_to_first_token,
    )


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """What of the library's details is worth keeping, as JSON."""
    plain = {name: value for name, value in details.items() if isinstance(value, str | int | float | bool)}
    return dict(clean_json(plain, on_nan="null"))


def _delta(event: ModelResponseStreamEvent) -> Delta | None:
    delta = _raw_delta(event)
    return None if delta is None else replace(delta, text=clean_text(delta.text))


def _raw_delta(event: ModelResponseStreamEvent) -> Delta | None:
    if isinstance(event, PartStartEvent):
        part = event.part
        if isinstance(part, TextPart) and part.content:
            return Delta(event.index, "text", part.content)
        if isinstance(part, ThinkingPart) and part.content:
            return Delta(event.index, "reasoning", part.content)
        if isinstance(part, ToolCallPart) and isinstance(part.args, str) and part.args:
            return Delta(event.index, "arguments", part.args)
    elif isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta) and delta.content_delta:
            return Delta(event.index, "text", delta.content_delta)
        if isinstance(delta, ThinkingPartDelta) and delta.content_delta:
            return Delta(event.index, "reasoning", delta.content_delta)
        if isinstance(delta, ToolCallPartDelta) and isinstance(delta.args_delta, str) and delta.args_delta:
            return Delta(event.index, "arguments", delta.args_delta)
    return None
