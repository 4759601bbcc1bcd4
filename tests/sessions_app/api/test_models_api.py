"""What this deployment offers: providers and models."""

import os
from typing import Any

import pytest

from tests.sessions_app.api.conftest import Api, ok


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)


def listed(api: Api) -> dict[str, Any]:
    return {found["provider"]: found for found in ok(api.get("/models"))["data"]}


def test_providers_say_whether_their_keys_are_here(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of variables, never what they hold."""
    assert {name: found["configured"] for name, found in listed(api).items()} == {
        "openai": False,
        "openai-chat": False,
        "anthropic": False,
        "google": False,
        "scripted": True,
    }
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("GEMINI_API_KEY", "g-secret")
    monkeypatch.setenv("GROQ_API_KEY", "q-secret")
    answer = api.get("/models")
    assert b"-secret" not in answer.content
    assert {found["provider"]: found["configured"] for found in ok(answer)["data"]} == {
        "openai": True,
        "openai-chat": True,
        "anthropic": False,
        "google": True,
        "scripted": True,
        "groq": True,
    }
    assert listed(api)["google"]["variables"] == ["GOOGLE_API_KEY", "GEMINI_API_KEY"]
    assert listed(api)["scripted"] == {
        "provider": "scripted",
        "configured": True,
        "variables": [],
        "models": [],
    }


def test_models_have_windows_and_prices_where_they_are_known(api: Api) -> None:
    """In USD for a million tokens; the same models under both protocols of a provider."""
    found = listed(api)
    models = {model["name"]: model for model in found["openai"]["models"]}
    assert models["gpt-4o-mini"] == {
        "name": "gpt-4o-mini",
        "context_window": 128000,
        "input_price": "0.15",
        "output_price": "0.6",
    }
    assert found["openai-chat"]["models"] == found["openai"]["models"]
    names = [model["name"] for model in found["anthropic"]["models"]]
    assert names == sorted(names)
    assert names
