"""Which provider answers to a name, and with which credential.

Provider SDKs take seconds and over 100 MB to import, so nothing here imports one until a call needs it or a
supervisor asks for it with `load_for`, before it forks its workers. The scripted provider needs none.
"""

import asyncio
import os
from collections.abc import Iterable
from importlib import import_module

from sessions_app.providers.port import ModelRequest, OnDelta, Provider, Reply
from sessions_app.providers.scripted import ScriptedProvider

SCRIPTED = "scripted"
_ADAPTER = "sessions_app.providers.library.adapter"
_MODELS = "sessions_app.providers.library.models"
_SCRIPTED = ScriptedProvider()

# The providers' own names for their keys; others follow the pattern NAME_API_KEY.
_VARIABLES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "openai-chat": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "cohere": ("CO_API_KEY",),
    "huggingface": ("HF_TOKEN",),
    "heroku": ("HEROKU_INFERENCE_KEY",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
}

# The modules with the SDKs behind each name; every compatible provider uses OpenAI's.
_SDKS: dict[str, tuple[str, ...]] = {
    "anthropic": ("pydantic_ai.models.anthropic", "pydantic_ai.providers.anthropic"),
    "google": ("pydantic_ai.models.google", "pydantic_ai.providers.google"),
}
_COMPATIBLE = (
    "pydantic_ai.models.openai",
    "pydantic_ai.providers.openai",
    "pydantic_ai.providers.openai_compatible",
    "openai.resources.chat",
    "openai.resources.responses",
)

_loaded: set[str] = set()


class _Library:
    """The adapter over the model library, imported on the first call."""

    async def reply(self, request: ModelRequest, on_delta: OnDelta | None = None) -> Reply:
        if request.provider not in _loaded:
            # In a thread: seconds of importing must not hold up the other sessions of this loop.
            await asyncio.to_thread(load_for, [request.provider])
        adapter: Provider = import_module(_ADAPTER).LIBRARY
        return await adapter.reply(request, on_delta)


_LIBRARY = _Library()


def provider_for(name: str) -> Provider:
    """The provider behind a config's provider name. A name that the library does not know fails at the call."""
    return _SCRIPTED if name == SCRIPTED else _LIBRARY


def load_for(names: Iterable[str]) -> None:
    """Import the SDKs of these providers now, so that forked workers share them."""
    for name in sorted(set(names) - {SCRIPTED}):
        import_module(_ADAPTER)
        for module in _SDKS.get(name, _COMPATIBLE):
            import_module(module)
        _loaded.add(name)


async def close() -> None:
    """Close the running event loop's connections to providers; call it before the loop ends."""
    if _loaded:
        await import_module(_MODELS).close_clients()


def credential(provider: str, secret: str | None, base_url: str | None) -> str | None:
    """The key for a call: the named secret's value, else the provider's own environment variable.

    The environment's key is for the provider's own servers: with a `base_url` it is never used, so that a
    config cannot send it elsewhere.
    """
    if secret is not None:
        return secret
    if base_url is not None or provider == SCRIPTED:
        return None
    return next((value for name in variables(provider) if (value := os.environ.get(name))), None)


def variables(provider: str) -> tuple[str, ...]:
    """The environment variables that may hold a provider's key, the first that is set wins."""
    return _VARIABLES.get(provider) or (f"{provider.upper().replace('-', '_')}_API_KEY",)
