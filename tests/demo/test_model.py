"""TENURE_DEMO_MODEL: every form it may have, and what is said about the others."""

import pytest

from sessions_app.demo.model import BadDemoModel, check, parse


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("", None),
        ("scripted", None),
        ("openai:gpt-5", {"provider": "openai", "name": "gpt-5"}),
        ("anthropic:claude", {"provider": "anthropic", "name": "claude"}),
        ("ollama:qwen3:8b", {"provider": "ollama", "name": "qwen3:8b"}),
        (
            "http://127.0.0.1:11434/v1#qwen3:8b",
            {"provider": "openai-chat", "name": "qwen3:8b", "base_url": "http://127.0.0.1:11434/v1"},
        ),
        (
            " https://gateway.example/v1#team/model ",
            {"provider": "openai-chat", "name": "team/model", "base_url": "https://gateway.example/v1"},
        ),
        (
            "anthropic+https://gateway.example#claude",
            {"provider": "anthropic", "name": "claude", "base_url": "https://gateway.example"},
        ),
        (
            "http://127.0.0.1:9/v1?a=b+c#m",
            {"provider": "openai-chat", "name": "m", "base_url": "http://127.0.0.1:9/v1?a=b+c"},
        ),
    ],
)
def test_each_form_becomes_the_model_of_a_config(text: str, model: dict[str, str] | None) -> None:
    assert parse(text) == model


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpt-5", "write provider:model"),
        ("openai:", "write provider:model"),
        (":gpt-5", "write provider:model"),
        ("http://127.0.0.1:11434/v1", "put it behind a #"),
        ("http://127.0.0.1:11434/v1#", "put it behind a #"),
        ("ftp://127.0.0.1/v1#m", "http:// or https://"),
        ("http://user:pw@127.0.0.1/v1#m", "name a secret instead"),
        ("scripted:demo", "what you get without it"),
    ],
)
def test_another_form_is_refused_with_what_to_change(text: str, said: str) -> None:
    with pytest.raises(BadDemoModel, match=said):
        parse(text)


def test_a_provider_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = {"provider": "openai", "name": "gpt-5"}
    with pytest.raises(BadDemoModel, match="set OPENAI_API_KEY"):
        check(model, allowed_networks=())
    monkeypatch.setenv("OPENAI_API_KEY", "some key")
    check(model, allowed_networks=())


def test_a_server_must_stand_in_an_open_network() -> None:
    """The network rule of the API, said before anything starts."""
    model = {"provider": "openai-chat", "name": "m", "base_url": "http://127.0.0.1:9/v1"}
    with pytest.raises(BadDemoModel, match=r"set TENURE_ALLOWED_NETWORKS=10\.0\.0\.0/8,127\.0\.0\.1/32"):
        check(model, allowed_networks=("10.0.0.0/8",))
    check(model, allowed_networks=("127.0.0.0/8",))
