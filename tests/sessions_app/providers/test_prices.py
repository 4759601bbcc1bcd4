"""What calls cost."""

import subprocess
import sys
from decimal import Decimal

import pytest

from sessions_app.providers.port import Usage
from sessions_app.providers.prices import cost_of

SOME = Usage(input_tokens=1000, output_tokens=100)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5"),
        ("openai-chat", "gpt-4o-mini"),
        ("anthropic", "claude-sonnet-4-5"),
        ("google", "gemini-2.5-pro"),
    ],
)
def test_tokens_have_a_price_for_each_provider(provider, model):
    """R7: and what came from the cache costs less than what had to be read."""
    price = cost_of(provider, model, SOME)
    assert price is not None
    assert price > 0
    cached = cost_of(provider, model, Usage(input_tokens=1000, output_tokens=100, cached_tokens=900))
    assert cached is not None
    assert 0 < cached < price
    assert cost_of(provider, model, Usage()) == Decimal(0)


def test_what_is_put_into_the_cache_costs_more():
    """R7: Anthropic charges for it."""
    plain = cost_of("anthropic", "claude-sonnet-4-5", SOME)
    written = cost_of(
        "anthropic",
        "claude-sonnet-4-5",
        Usage(input_tokens=1000, output_tokens=100, cache_write_tokens=1000),
    )
    assert plain is not None
    assert written is not None
    assert written > plain


@pytest.mark.parametrize(
    ("provider", "model", "base_url"),
    [
        ("openai", "a-model-that-nobody-has-priced", None),
        ("never-heard-of", "gpt-5", None),
        ("openai-chat", "gpt-4o-mini", "http://127.0.0.1:8000/v1"),
        ("scripted", "gpt-5", None),
    ],
)
def test_an_unknown_price_is_unknown_and_not_zero(provider, model, base_url):
    """R7: a server of one's own has no list price, whatever its models are called."""
    assert cost_of(provider, model, SOME, base_url=base_url) is None
    assert cost_of(provider, model, Usage(), base_url=base_url) is None


def test_scripted_sessions_never_load_the_table():
    """Its import takes a quarter of a second."""
    code = """
import sys
from sessions_app.providers import prices
from sessions_app.providers.port import Usage
prices.cost_of("scripted", "echo", Usage(input_tokens=1))
print([name for name in sys.modules if name.startswith("genai_prices")])
prices.load()
print("genai_prices.data" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
