"""Which models there are to choose from: providers, whether their credentials are here, and list prices.

Names, context windows and prices come from the maintained price list, which is imported on first use. A provider
may have more models than the list knows: a config can name any.
"""

import os
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from sessions_app.providers import registry
from sessions_app.providers.port import Usage
from sessions_app.providers.prices import PRICED_AS, cost_of

ALWAYS = ("openai", "openai-chat", "anthropic", "google", registry.SCRIPTED)
"""Listed whether or not there are credentials; others only with them."""

_SAMPLE = 1000  # tokens: few enough for the lowest step of a price that depends on how many there are


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Prices in USD for a million tokens; None where they are not known."""

    name: str
    context_window: int | None
    input_price: Decimal | None
    output_price: Decimal | None


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """`configured`: a key is in the environment of this process, in one of `variables`."""

    name: str
    configured: bool
    variables: tuple[str, ...]
    models: tuple[KnownModel, ...]


def providers() -> list[KnownProvider]:
    """What configs can name without a credential of their own, in a steady order."""
    others = sorted(name for name in _listed() if name not in ALWAYS and _is_configured(name))
    return [
        KnownProvider(
            name,
            configured=_is_configured(name),
            variables=() if name == registry.SCRIPTED else registry.variables(name),
            models=_models(name),
        )
        for name in (*ALWAYS, *others)
    ]


def _is_configured(name: str) -> bool:
    return name == registry.SCRIPTED or any(os.environ.get(variable) for variable in registry.variables(name))


@cache
def _listed() -> dict[str, Any]:
    """The providers of the price list, by name."""
    from genai_prices import data_snapshot

    return {provider.id: provider for provider in data_snapshot.get_snapshot().providers}


@cache
def _models(provider: str) -> tuple[KnownModel, ...]:
    listed = _listed().get(PRICED_AS.get(provider, provider))
    found = listed.models if listed is not None else ()
    return tuple(
        KnownModel(
            model.id,
            model.context_window,
            _price(provider, model.id, Usage(input_tokens=_SAMPLE)),
            _price(provider, model.id, Usage(output_tokens=_SAMPLE)),
        )
        for model in sorted(found, key=lambda model: str(model.id))
        if not model.deprecated
    )


def _price(provider: str, model: str, usage: Usage) -> Decimal | None:
    cost = cost_of(provider, model, usage)
    return None if cost is None else cost * (1_000_000 // _SAMPLE)
