"""Names, credentials, and what importing costs."""

import subprocess
import sys
import threading

import pytest

from sessions_app.providers import registry
from sessions_app.providers.port import Category, ModelCallFailed
from sessions_app.providers.registry import credential, load_for, provider_for
from sessions_app.providers.scripted import ScriptedProvider
from tests.sessions_app.providers import streams

SDKS = ("pydantic_ai", "openai", "anthropic", "google.genai")


def loaded_after(code: str) -> list[str]:
    """Which SDKs a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nprint([name for name in {SDKS!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return eval(done.stdout)  # noqa: S307  (our own list, printed above)


def test_the_port_the_registry_and_the_pure_parts_load_no_sdk():
    """DESIGN: importing the SDKs costs seconds; the scripted provider loads none."""
    assert (
        loaded_after(
            "import sessions_app.engine.context, sessions_app.engine.retry\n"
            "from sessions_app.providers.registry import load_for, provider_for\n"
            "load_for(['scripted'])\n"
            "provider_for('scripted')\n"
        )
        == []
    )


def test_loading_for_a_provider_loads_its_sdk_and_no_other():
    assert loaded_after("from sessions_app.providers.registry import load_for; load_for(['anthropic'])") == [
        "pydantic_ai",
        "anthropic",
    ]


def test_names_lead_to_providers():
    assert isinstance(provider_for("scripted"), ScriptedProvider)
    assert provider_for("openai") is provider_for("anthropic")


async def test_the_first_call_imports_beside_the_event_loop(server, request_to, monkeypatch):
    """L4: several seconds of importing would hold up every other session of the process."""
    threads = []

    def load(names):
        threads.append((list(names), threading.get_ident()))
        load_for(names)

    monkeypatch.setattr(registry, "_loaded", set())
    monkeypatch.setattr(registry, "load_for", load)
    for _ in range(2):
        server.play(streams.chat({"content": "Hello"}))
        reply = await provider_for("openai-chat").reply(request_to("openai-chat", server.url))
        assert [block["text"] for block in reply.content] == ["Hello"]
    ((names, thread),) = threads
    assert names == ["openai-chat"]
    assert thread != threading.get_ident()
    await registry.close()


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("openai-chat", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google", "GOOGLE_API_KEY"),
        ("google", "GEMINI_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
    ],
)
def test_without_a_secret_the_providers_own_variable_counts(provider, variable, monkeypatch):
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "from-environment")
    assert credential(provider, None, None) == "from-environment"
    assert credential(provider, "named", None) == "named"


def test_the_environments_key_is_never_for_another_address(monkeypatch):
    """api.md: only where base_url is not set."""
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    assert credential("openai", None, "https://elsewhere.example") is None
    assert credential("openai", "named", "https://elsewhere.example") == "named"


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "google", "openrouter"])
async def test_nothing_of_the_environment_reaches_another_address(
    provider, library, server, request_to, monkeypatch
):
    """api.md: SDKs would read keys, organisation, headers and addresses by themselves."""
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
        "OPENROUTER_API_KEY",
    ):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-team: leaked\nx-other: leaked")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://leaked.example")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.play('{"error": {"message": "no"}}', status=400)
    with pytest.raises(ModelCallFailed):
        await library.reply(request_to(provider, server.url, api_key=None))
    (received,) = server.received
    assert "leaked" not in str(received.headers)
    assert "leaked" not in received.path


async def test_without_any_credential_nothing_is_sent(library, request_to):
    """R3."""
    with pytest.raises(ModelCallFailed) as caught:
        await library.reply(request_to("openai", "", base_url=None, api_key=None))
    assert (caught.value.category, caught.value.code) == (Category.AUTH, "no_credential")


@pytest.mark.parametrize("provider", ["openrouter", "deepseek", "groq", "someones-gateway"])
async def test_any_name_with_an_address_speaks_the_compatible_protocol(provider, library, server, request_to):
    server.play(streams.chat({"content": "Hello"}))
    if provider == "someones-gateway":
        with pytest.raises(ModelCallFailed) as caught:
            await library.reply(request_to(provider, server.url))
        assert caught.value.code == "unknown_provider"
        return
    reply = await library.reply(request_to(provider, server.url))
    assert [block["text"] for block in reply.content] == ["Hello"]
    assert server.received[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("provider", ["openrouter", "deepseek", "together"])
async def test_a_known_name_builds_a_model_that_does_not_retry(provider, library, request_to):
    from sessions_app.providers.library.models import model_for

    model = model_for(request_to(provider, "", base_url=None, model="openai/some-model"))
    assert model.client.max_retries == 0


@pytest.mark.parametrize("name", ["openai_background", "temprature", "max_retries"])
async def test_a_setting_that_is_not_known_is_an_invalid_request(name, library, server, request_to):
    with pytest.raises(ModelCallFailed) as caught:
        await library.reply(request_to("openai", server.url, settings={name: 1}))
    assert (caught.value.category, caught.value.code) == (Category.INVALID_REQUEST, "unknown_setting")
    assert name in caught.value.detail
    assert server.received == []
