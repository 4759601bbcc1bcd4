"""A library model for a request, on shared HTTP clients.

HTTP clients and SDK clients live as long as their event loop and are shared: one HTTP client per provider,
`base_url` and allowed networks, one SDK client per HTTP client and key. A custom `base_url` goes through
the network guard, and nothing that the SDKs would read from the environment (keys, organisation, extra
headers, base URLs) goes to it.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import httpx2
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from sessions_app.network import GuardedTransport, parse_networks
from sessions_app.providers.library.transport import FIRST_EVENT_WITHIN, CorrectingTransport
from sessions_app.providers.port import Category, ModelCallFailed, ModelRequest

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
NO_KEY = "none"  # servers that need no key still get a header; SDKs insist on one
# Reading covers the wait for the response's head; quiet streams are the transport's business.
_TIMEOUT = httpx2.Timeout(FIRST_EVENT_WITHIN, connect=10.0, pool=10.0)
_LIMITS = httpx2.Limits(max_connections=200, max_keepalive_connections=50)
_MOST_MODELS = 256
_ENVIRONMENT_HEADERS = ("openai-organization", "openai-project")


@dataclass
class _Clients:
    """What one event loop shares."""

    http: dict[tuple[str, str | None, tuple[str, ...]], httpx2.AsyncClient] = field(default_factory=dict)
    models: "OrderedDict[tuple[Any, ...], Model]" = field(default_factory=OrderedDict)


_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients]" = WeakKeyDictionary()


def model_for(request: ModelRequest, *, reasons: bool = False) -> Model:
    """The library's model for `request`. Must run inside the event loop that makes the call.

    `reasons`: the model is known to take its reasoning back, whatever the library thinks of its name.
    """
    clients = _by_loop.setdefault(asyncio.get_running_loop(), _Clients())
    networks = tuple(request.allowed_networks)
    key = (request.provider, request.model, request.base_url, request.api_key, networks, reasons)
    model = clients.models.get(key)
    if model is None:
        if request.api_key is None and request.base_url is None:
            raise ModelCallFailed(
                f"there is no credential for {request.provider}",
                category=Category.AUTH,
                code="no_credential",
            )
        http = clients.http.get((request.provider, request.base_url, networks))
        if http is None:
            http = _http_client(request.base_url, networks)
            clients.http[request.provider, request.base_url, networks] = http
        model = clients.models[key] = _build(request, http, reasons=reasons)
        while len(clients.models) > _MOST_MODELS:
            clients.models.popitem(last=False)
    clients.models.move_to_end(key)
    return model


async def close_clients() -> None:
    """Close the running loop's HTTP clients, before the loop ends."""
    clients = _by_loop.pop(asyncio.get_running_loop(), None)
    for client in clients.http.values() if clients else ():
        await client.aclose()


def _http_client(base_url: str | None, networks: Sequence[str]) -> httpx2.AsyncClient:
    if base_url is None:
        # The environment's proxy is honoured towards the providers' own servers, as the SDKs do.
        proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or None
        transport = CorrectingTransport(httpx2.AsyncHTTPTransport(limits=_LIMITS, proxy=proxy))
    else:
        guard = GuardedTransport(allowed=parse_networks(str(network) for network in networks))
        transport = CorrectingTransport(guard, drop=_environment_headers())
    return httpx2.AsyncClient(transport=transport, timeout=_TIMEOUT, trust_env=False, follow_redirects=False)


def _environment_headers() -> list[str]:
    custom = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines()
    return [*_ENVIRONMENT_HEADERS, *(line.partition(":")[0].strip() for line in custom if ":" in line)]


def _build(request: ModelRequest, http: httpx2.AsyncClient, *, reasons: bool) -> Model:
    key = request.api_key or NO_KEY
    if reasons:
        return _openai_responses(request.model, request.base_url, key, http, reasons=True)
    build = _BUILDERS.get(request.provider)
    if build is not None:
        return build(request.model, request.base_url, key, http)
    return _build_other(request, key, http)


def _openai_client(base_url: str, key: str, http: httpx2.AsyncClient) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=base_url, api_key=key, http_client=http, max_retries=0)


def _openai_responses(
    name: str, base_url: str | None, key: str, http: httpx2.AsyncClient, *, reasons: bool = False
) -> Model:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    client = _openai_client(base_url or OPENAI_URL, key, http)
    profile = OpenAIModelProfile(openai_supports_encrypted_reasoning_content=True) if reasons else None
    return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client), profile=profile)


def _openai_chat(name: str, base_url: str | None, key: str, http: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client = _openai_client(base_url or OPENAI_URL, key, http)
    if base_url is None:
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
    return OpenAIChatModel(name, provider=OpenAICompatibleProvider("openai-chat", openai_client=client))


def _anthropic(name: str, base_url: str | None, key: str, http: httpx2.AsyncClient) -> Model:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(base_url=base_url or ANTHROPIC_URL, api_key=key, http_client=http, max_retries=0)
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


def _google(name: str, base_url: str | None, key: str, http: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    # Without retry options this SDK tries once.
    return GoogleModel(name, provider=GoogleProvider(api_key=key, http_client=http, base_url=base_url))


_BUILDERS: dict[str, Callable[[str, str | None, str, httpx2.AsyncClient], Model]] = {
    "openai": _openai_responses,
    "openai-chat": _openai_chat,
    "anthropic": _anthropic,
    "google": _google,
}


def _build_other(request: ModelRequest, key: str, http: httpx2.AsyncClient) -> Model:
    """Any other provider that the library knows by name."""
    name = request.provider
    kind = None
    try:
        kind = infer_provider_class(name)
    except ValueError as error:
        raise _unknown(name, error) from error
    except ImportError as error:
        # Its own SDK is not installed; with an address of its own it needs none.
        if request.base_url is None:
            raise _unknown(name, error) from error
    if request.base_url is not None:
        # Whatever has an address of its own speaks the compatible protocol.
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        client = _openai_client(request.base_url, key, http)
        return OpenAIChatModel(request.model, provider=OpenAICompatibleProvider(name, openai_client=client))

    def factory(_: str) -> Provider[Any]:
        provider: Provider[Any] = cast("Any", kind)(api_key=key, http_client=http)
        if hasattr(provider.client, "max_retries"):
            provider.client.max_retries = 0
        return provider

    try:
        return infer_model(f"{name}:{request.model}", provider_factory=factory)
    except (UserError, TypeError, ImportError) as error:
        raise _unknown(name, error) from error


def _unknown(name: str, error: BaseException) -> ModelCallFailed:
    return ModelCallFailed(
        f"the provider {name} is not available here: {error}",
        category=Category.INVALID_REQUEST,
        code="unknown_provider",
    )
