"""The MCP servers of an agent config, and what is sent to them to say whose requests these are.

Nothing of a secret is kept here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from sessions_app import secrets
from sessions_app.agent_config.values import seconds
from sessions_app.errors import NotFound
from sessions_app.key_ring import MalformedKeyRing, UndecryptableSecret
from tools_app.mcp.failures import NotDone

_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True)
class Server:
    """One server of one project. `own` is its part of the config document."""

    project: UUID
    name: str
    own: Mapping[str, Any]

    @property
    def url(self) -> str:
        url: str = self.own["url"]
        return url

    @property
    def oauth(self) -> str | None:
        """The name of the secret with its OAuth token."""
        name: str | None = (self.own.get("auth") or {}).get("oauth")
        return name

    @property
    def time_limit(self) -> float | None:
        return seconds(self.own["time_limit"]) if self.own.get("time_limit") else None

    @cached_property
    def key(self) -> str:
        """What stands for the same list of tools under the same names: project, name, address and credentials."""
        parts = [self.name, self.own["url"], self.own.get("auth"), self.own.get("headers")]
        return f"{self.project.hex} {json.dumps(parts, sort_keys=True)}"

    @property
    def uses_secrets(self) -> bool:
        return bool(self.own.get("auth")) or any(
            not isinstance(value, str) for value in (self.own.get("headers") or {}).values()
        )


def server(config: Mapping[str, Any], name: str, *, project: UUID) -> Server | None:
    """The server `name` of a config."""
    own = (config.get("mcp") or {}).get(name)
    return None if own is None else Server(project, name, own)


def servers(config: Mapping[str, Any], *, project: UUID) -> list[Server]:
    return [Server(project, name, own) for name, own in (config.get("mcp") or {}).items()]


def headers(server: Server) -> dict[str, str]:
    """The headers that a config gives every request, but for an OAuth token. Reads the database for secrets.

    Raises `NotDone` where a secret is missing, can't be read or is no header.
    """
    found = {
        name: value if isinstance(value, str) else reveal(server, value["secret"])
        for name, value in (server.own.get("headers") or {}).items()
    }
    bearer = (server.own.get("auth") or {}).get("bearer")
    if bearer is not None:
        found = without_authorization(found) | {"Authorization": f"Bearer {reveal(server, bearer)}"}
    return found


def without_authorization(headers: Mapping[str, str]) -> dict[str, str]:
    """`auth` is the one that counts where both are given."""
    return {name: value for name, value in headers.items() if name.lower() != "authorization"}


def reveal(server: Server, secret: str) -> str:
    """The secret as the value of a header."""
    return checked_header(read_secret(server, secret).strip(), secret)


def checked_header(value: str, secret: str) -> str:
    if not _HEADER_VALUE.fullmatch(value):
        raise NotDone(f"needs the secret {secret}, which holds characters that can't be sent")
    return value


def read_secret(server: Server, secret: str) -> str:
    try:
        return secrets.reveal(server.project, secret)
    except NotFound:
        raise NotDone(f"needs the secret {secret}, which does not exist") from None
    except (UndecryptableSecret, MalformedKeyRing, secrets.NoKeyRing):
        raise NotDone(
            f"needs the secret {secret}, which can't be decrypted with the keys of this deployment"
        ) from None
