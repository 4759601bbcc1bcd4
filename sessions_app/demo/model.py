"""`TENURE_DEMO_MODEL`: which model the demo and `make run` use, in a form that fits into one variable.

    (empty)                                    the scripted agent
    openai:gpt-5, anthropic:…, google:…        a provider's own servers; the key is the provider's own variable
    http://127.0.0.1:11434/v1#llama3.2         any OpenAI-compatible server, and the model behind the `#`
    anthropic+https://gateway.example#claude…  the same with another provider's protocol

A server that wants a key gets the project's secret `demo-model`, if there is one (`manage.py setsecret
demo-model`). Private addresses, one's own machine included, are opened with `TENURE_ALLOWED_NETWORKS`: the
network rule knows no exception for demos.
"""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from sessions_app.agent_config.model_reference import ModelReference
from sessions_app.network import ForbiddenAddress, check_address, parse_networks
from sessions_app.providers import registry

SECRET = "demo-model"  # noqa: S105 - its name
COMPATIBLE = "openai-chat"
FORMS = (
    "write provider:model, such as openai:gpt-5, or the address of an OpenAI-compatible server with the model "
    "behind a #, such as http://127.0.0.1:11434/v1#llama3.2"
)


class BadDemoModel(ValueError):
    """TENURE_DEMO_MODEL can't be used; the message says what to change."""


def parse(text: str) -> dict[str, Any] | None:
    """The `model` part of an agent config; None for the scripted agent. Raises `BadDemoModel`."""
    text = text.strip()
    if not text or text == registry.SCRIPTED:
        return None
    model: Any = text
    protocol, plus, address = text.partition("+")
    if not plus or "://" in protocol:
        protocol, address = COMPATIBLE, text
    if "://" in text:
        base_url, hash_, name = address.partition("#")
        if not hash_ or not name:
            raise BadDemoModel(
                f"TENURE_DEMO_MODEL={text!r} names no model: put it behind a #, as in {text}#NAME"
            )
        model = {"provider": protocol, "name": name, "base_url": base_url}
    try:
        found = ModelReference.model_validate(model)
    except ValidationError as error:
        reasons = "; ".join(str(item["msg"]) for item in error.errors())
        raise BadDemoModel(f"TENURE_DEMO_MODEL={text!r}: {reasons if '://' in text else FORMS}") from None
    if found.provider == registry.SCRIPTED:
        raise BadDemoModel("TENURE_DEMO_MODEL: the scripted agent is what you get without it")
    return found.model_dump(exclude_none=True)


def check(model: Mapping[str, Any], *, allowed_networks: Sequence[str]) -> None:
    """Raises `BadDemoModel` where a call to `model` could not even be sent from this machine."""
    base_url = model.get("base_url")
    if base_url is not None:
        _check_server(base_url, allowed_networks)
    elif registry.credential(model["provider"], None, None) is None:
        names = " or ".join(registry.variables(model["provider"]))
        raise BadDemoModel(f"TENURE_DEMO_MODEL needs a key for {model['provider']}: set {names}")


def _check_server(base_url: str, allowed_networks: Sequence[str]) -> None:
    url = urlsplit(base_url)
    host = url.hostname or ""
    try:
        found = socket.getaddrinfo(host, url.port or url.scheme, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadDemoModel(f"TENURE_DEMO_MODEL: {host} could not be resolved: {error}") from None
    for address in sorted({str(entry[4][0]) for entry in found}):
        try:
            check_address(address, parse_networks(allowed_networks))
        except ForbiddenAddress as error:
            network = ipaddress.ip_network(address.partition("%")[0])
            wanted = ",".join([*allowed_networks, str(network)])
            raise BadDemoModel(
                f"TENURE_DEMO_MODEL: {error}; to reach it, set TENURE_ALLOWED_NETWORKS={wanted}"
            ) from None
