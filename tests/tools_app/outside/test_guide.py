"""The guide of the web tools and HTTP tools says what holds."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from sessions_app.agent_config.document import parse
from sessions_app.agent_config.yaml import load_yaml
from tests.guides import blocks
from tools_app.offers import offers
from tools_app.outside.search_providers import PROVIDERS

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "outside-tools.md"
EXAMPLES = blocks("outside-tools", "yaml")


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_config_whose_tools_are_offered(example: str) -> None:
    """As it stands there, with instructions and a model around it."""
    part: dict[str, Any] = load_yaml(example)
    parse(part | {"instructions": "Help.", "model": "scripted:x"})
    assert [offer.spec.name for offer in offers(part)] == list(part.get("tools", {}))


def test_the_guide_names_the_services_and_their_secrets() -> None:
    """And the settings with their defaults."""
    text = GUIDE.read_text()
    assert len(EXAMPLES) == 4
    for name, provider in PROVIDERS.items():
        assert re.search(rf"\| `{name}`.*{provider.title}.*\| `{provider.secret}` \|", text)
    assert f"| `{settings.TENURE.web_search_provider}` (default) |" in text
    assert (settings.TENURE.web_fetch_timeout, settings.TENURE.web_fetch_max_bytes) == (30.0, 5 << 20)
    assert settings.TENURE.http_tool_max_bytes == 5 << 20
