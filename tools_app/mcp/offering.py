"""The tools of MCP servers beside the others that a model is offered."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings

from sessions_app.providers.port import ToolSpec
from sessions_app.tool_port import InDatabase
from tools_app.mcp import credentials, names
from tools_app.mcp.listings import Listing, RemoteTool, listing_of
from tools_app.mcp.servers import Server, servers
from tools_app.models import ToolClass
from tools_app.offers import Offer


async def offers(
    config: Mapping[str, Any], *, project: UUID, in_database: InDatabase
) -> tuple[dict[str, Offer], dict[str, str]]:
    """What the servers of a config offer, by the names that models use; and why something is missing.

    The reasons are by name, or by the beginning of the names of a server's tools where there is no list of it.
    """

    async def headers(server: Server) -> dict[str, str]:
        return await credentials.headers(server, in_database)

    asked = servers(config, project=project)
    listings = await asyncio.gather(*(listing_of(server, headers) for server in asked))
    found: dict[str, Offer] = {}
    missing: dict[str, str] = {}
    for server, listing in zip(asked, listings, strict=True):
        if listing.tools is None:
            why = listing.why or "has not been asked yet"
            missing[names.prefix_of(server.name)] = f"the MCP server {server.name} {why}"
            continue
        missing |= listing.left_out
        for name, tool in _enabled(server, listing, missing).items():
            found[name] = _offer(server, name, tool)
    return found, missing


def _enabled(server: Server, listing: Listing, missing: dict[str, str]) -> Mapping[str, RemoteTool]:
    """All tools of a list, or those that the config names."""
    tools = listing.tools or {}
    named = server.own.get("tools")
    if named is None:
        return tools
    wanted = {names.exposed(server.name, tool) for tool in named}
    for name in wanted - set(tools) - set(missing):
        missing[name] = f"the MCP server {server.name} does not offer it"
    return {name: tool for name, tool in tools.items() if tool.name in named}


def _offer(server: Server, name: str, tool: RemoteTool) -> Offer:
    """Never `rerun_safe`: what a server says of its tools is a hint and no promise."""
    return Offer(
        ToolSpec(name, tool.description, tool.input_schema),
        tool.validator,
        ToolClass.OUTSIDE,
        time_limit=server.time_limit or settings.TENURE.tool_time_limit,
        annotations=tool.hints,
        permission="ask",
    )
