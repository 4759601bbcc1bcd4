"""R5: how much a model reads, from the price list."""

import subprocess
import sys

import pytest

from sessions_app.providers.windows import context_window


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "openai-responses"])
def test_one_vendor_has_one_window_under_all_its_names(provider):
    assert context_window(provider, "gpt-4o") == 128_000


def test_windows_of_other_vendors_are_known():
    assert context_window("anthropic", "claude-sonnet-4-5") == 200_000


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "no-such-model"), ("no-such-provider", "gpt-4o"), ("scripted", "gpt-4o")],
)
def test_what_is_not_in_the_list_is_unknown(provider, model):
    assert context_window(provider, model) is None


def test_the_list_is_not_loaded_for_the_scripted_provider():
    """Its import costs a tenth of a second or more, which agents without a vendor need not pay."""
    code = (
        "import sys; from sessions_app.providers.windows import context_window;"
        "context_window('scripted', 'demo'); sys.exit('genai_prices' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
