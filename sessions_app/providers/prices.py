"""What a model call cost, by the list prices of a maintained library (R7).

An unknown price is None, never zero. The library's table takes a quarter of a second to import, so it comes
with the adapter, whose import is done beside the event loop and before workers fork; Django's start and
scripted sessions never load it.
"""

from decimal import Decimal
from importlib import import_module
from typing import Any

from sessions_app.providers.port import Usage

_PLACES = Decimal("0.000000001")  # as the columns store it
PRICED_AS = {"openai-chat": "openai", "openai-responses": "openai"}
"""Where our name for a provider is not the price table's."""

_WITHOUT_PRICES = frozenset({"scripted"})


def cost_of(provider: str, model: str, usage: Usage, *, base_url: str | None = None) -> Decimal | None:
    """The price in USD of these tokens; None where the price is not known.

    A server with an address of its own has no list price, whatever its model is called.
    """
    if base_url is not None or provider in _WITHOUT_PRICES:
        return None
    prices: Any = import_module("genai_prices")
    counted = prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        calculated = prices.calc_price(counted, model, provider_id=PRICED_AS.get(provider, provider))
    except (LookupError, ValueError):
        return None
    total: Decimal = calculated.total_price
    return total.quantize(_PLACES)


def load() -> None:
    """Import the library and its table now."""
    import_module("genai_prices.data_snapshot").get_snapshot()
