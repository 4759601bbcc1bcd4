"""OAuth tokens in secrets: a JSON object with the token, and with what it takes to renew it.

    {"access_token": "…", "expires_at": 1790000000, "refresh_token": "…", "token_endpoint": "https://…",
     "client_id": "…", "client_secret": "…", "scope": "…", "resource": "…"}

Only `access_token` has to be there; without `expires_at` it is used until a server refuses it, without
`refresh_token`, `token_endpoint` and `client_id` it is not renewed. Getting the first token needs a person with
a browser and is done elsewhere.

Issuers change the refresh token with each use, and some revoke everything when an old one comes back. So a
token is renewed under the lock of its secret's row, by one worker at a time, and whoever waited for the lock
takes what the other one got. The HTTP request is made inside that transaction on purpose, on a connection of
its own and for a few seconds at most.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Container
from typing import Any

import httpx2
from django.conf import settings

from sessions_app import secrets
from sessions_app.errors import NotFound
from sessions_app.network import guarded_client, parse_networks
from tools_app.mcp.failures import NotDone
from tools_app.mcp.servers import Server, checked_header, read_secret

_EARLY = 60.0  # seconds before its end that a token is renewed; clocks differ
_ANSWER_WITHIN = 10.0
_MAX_ANSWER = 100_000  # bytes
_NEEDED = ("refresh_token", "token_endpoint", "client_id")


def mark(token: str) -> str:
    """What stands for a token where the token itself shall not be kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def current(server: Server, refused: Container[str]) -> str | None:
    """The token as it is stored; None where it has to be renewed first. Reads the database."""
    stored = _parsed(server, read_secret(server, server.oauth or ""))
    return stored["access_token"] if _is_good(stored, refused) or not _can_renew(stored) else None


def renew(server: Server, refused: Container[str]) -> str:
    """A new token, stored; or the one that somebody else got meanwhile. Raises `NotDone`."""

    def change(value: str) -> str:
        stored = _parsed(server, value)
        if _is_good(stored, refused):
            return value
        return json.dumps(_renewed(server, stored))

    try:
        value = secrets.change_secret(server.project, server.oauth or "", change)
    except NotFound:
        raise NotDone(f"needs the secret {server.oauth}, which does not exist") from None
    token: str = _parsed(server, value)["access_token"]
    return token


def _parsed(server: Server, value: str) -> dict[str, Any]:
    try:
        stored = json.loads(value)
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not isinstance(stored.get("access_token"), str):
        raise NotDone(f"needs the secret {server.oauth}, which is no JSON object with an access_token")
    checked_header(stored["access_token"], server.oauth or "")
    return stored


def _is_good(stored: dict[str, Any], refused: Container[str]) -> bool:
    expires = stored.get("expires_at")
    in_time = not isinstance(expires, int | float) or expires - _EARLY > time.time()
    return in_time and mark(stored["access_token"]) not in refused


def _can_renew(stored: dict[str, Any]) -> bool:
    return all(isinstance(stored.get(name), str) for name in _NEEDED)


def _renewed(server: Server, stored: dict[str, Any]) -> dict[str, Any]:
    answer = asyncio.run(_ask(server, stored))
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise NotDone(
            f"needs the token in the secret {server.oauth}, which could not be renewed: the issuer sent none"
        )
    new = stored | {"access_token": token}
    new.pop("expires_at", None)
    lifetime = answer.get("expires_in")
    if isinstance(lifetime, int | float) and not isinstance(lifetime, bool):
        new["expires_at"] = int(time.time() + lifetime)
    if isinstance(answer.get("refresh_token"), str):
        new["refresh_token"] = answer["refresh_token"]
    return new


async def _ask(server: Server, stored: dict[str, Any]) -> dict[str, Any]:
    """The issuer's answer to a refresh token grant (RFC 6749, section 6)."""
    form = {"grant_type": "refresh_token", "refresh_token": stored["refresh_token"]}
    form |= {name: stored[name] for name in ("scope", "resource") if isinstance(stored.get(name), str)}
    form["client_id"] = stored["client_id"]
    if isinstance(stored.get("client_secret"), str):
        form["client_secret"] = stored["client_secret"]
    why = f"needs the token in the secret {server.oauth}, which could not be renewed"
    allowed = parse_networks(settings.TENURE.allowed_networks)
    try:
        async with asyncio.timeout(_ANSWER_WITHIN), guarded_client(allowed=allowed) as client:
            response = await client.post(
                stored["token_endpoint"], data=form, headers={"accept": "application/json"}
            )
    except TimeoutError:
        raise NotDone(f"{why}: the issuer does not answer") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NotDone(f"{why}: {error}") from None
    answer = _object(response)
    if response.status_code != 200:
        said = str(answer.get("error") or "")[:100]
        raise NotDone(f"{why}: the issuer answers with status {response.status_code} {said}".rstrip())
    return answer


def _object(response: httpx2.Response) -> dict[str, Any]:
    if len(response.content) > _MAX_ANSWER:
        return {}
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
