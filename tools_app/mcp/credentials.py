"""What is sent to a server to say whose requests these are: headers with secrets, and OAuth tokens.

Secrets are read when a connection is made and kept nowhere, so a replaced one counts from the next call on. An
OAuth token that is about to expire, or that its server has refused, is renewed before it is used
(`tools_app.mcp.oauth`).
"""

import asyncio

from sessions_app.tool_port import InDatabase
from tools_app import keeping
from tools_app.mcp import oauth, servers
from tools_app.mcp.servers import Server

_MOST_REFUSED = 1000
_refused: dict[str, None] = {}
"""Marks of access tokens that a server has refused, the oldest first."""


async def headers(server: Server, in_database: InDatabase) -> dict[str, str]:
    """The headers of every request to the server; raises `NotDone` where they can't be had."""
    if not server.uses_secrets:
        return servers.headers(server)
    found: dict[str, str] = await in_database(servers.headers, server)
    if server.oauth is None:
        return found
    token: str | None = await in_database(oauth.current, server, _refused)
    if token is None:
        # In a thread with a connection of its own: renewing waits for the token's issuer.
        token = await asyncio.to_thread(keeping.in_thread, oauth.renew, server, _refused)
    return servers.without_authorization(found) | {"Authorization": f"Bearer {token}"}


def refused(server: Server, sent: dict[str, str]) -> None:
    """The server did not take these; an OAuth token is renewed before the next call, if it can be."""
    if server.oauth is None:
        return
    _refused[oauth.mark(sent["Authorization"].removeprefix("Bearer "))] = None
    while len(_refused) > _MOST_REFUSED:
        _refused.pop(next(iter(_refused)))
