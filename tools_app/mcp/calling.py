"""A call of an MCP tool: sent once, with the id of the call in `_meta`, and never again whatever happens."""

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings

from sessions_app.text import clean_text
from sessions_app.tool_port import INTERRUPTED, Call, ToolContext, ToolOutcome
from tools_app import keeping, results
from tools_app.mcp import credentials, names
from tools_app.mcp.contents import content_of
from tools_app.mcp.exchanges import exchange
from tools_app.mcp.failures import McpFailure, NotDone, OutcomeUnknown, RefusesCredentials
from tools_app.mcp.listings import RemoteTool, known, listing_of
from tools_app.mcp.servers import Server, server
from tools_app.models import Outcome

if TYPE_CHECKING:
    from tools_app.mcp.sdk import Connection

logger = structlog.get_logger(__name__)

_MAX_MESSAGE = 800


async def run(call: Call, context: ToolContext) -> ToolOutcome:
    """Run the call; a server's failure is its outcome. Time limits are the caller's.

    Where the call was sent and no answer came, the outcome is `interrupted`. Cancelling leaves at once.
    """
    name = names.server_of(call.name)
    asked = server(context.config, name, project=context.project) if name else None
    if asked is None:
        return _failed(f"The tool {call.name} is no longer available here.")
    try:
        tool = await _tool(asked, call.name)
        result = await _result(asked, tool, call, context.token)
    except OutcomeUnknown as failure:
        logger.warning("mcp.outcome_unknown", tool=call.name, tool_call=str(call.id), why=str(failure))
        return _outcome(Outcome.INTERRUPTED, f"{INTERRUPTED} The MCP server {asked.name} {failure}.")
    except NotDone as failure:
        logger.info("mcp.call_failed", tool=call.name, tool_call=str(call.id), why=str(failure))
        return _failed(f"{call.name} failed: the MCP server {asked.name} {failure}.")
    if result.get("inputRequired"):
        return _failed(
            f"{call.name} failed: the MCP server {asked.name} wants to ask somebody something in the middle of "
            "the call, which is not possible here."
        )
    return await _answer(call, context, result)


async def _tool(asked: Server, name: str) -> RemoteTool:
    """The tool behind the name that the model used, by the server's list."""
    listing = known(asked)
    if listing.tools is None:
        listing = await listing_of(asked, _headers)
    if listing.tools is None:
        raise NotDone(listing.why or "has not been asked yet")
    tool = listing.tools.get(name)
    if tool is None:
        raise NotDone("does not offer it any more")
    return tool


async def _result(asked: Server, tool: RemoteTool, call: Call, token: str) -> dict[str, Any]:
    listing = known(asked)

    async def work(connection: "Connection") -> dict[str, Any]:
        return await connection.call_tool(tool.name, call.arguments, token=token, by_headers=tool.by_headers)

    def tools_changed() -> None:
        listing.changed = True

    headers = await _headers(asked)
    try:
        return await exchange(
            asked.url,
            headers,
            work,
            connect_within=settings.TENURE.mcp_connect_timeout,
            protocol=listing.protocol,
            tools_changed=tools_changed,
        )
    except McpFailure as failure:
        listing.changed = True  # perhaps the server is another one by now
        if isinstance(failure, RefusesCredentials):
            credentials.refused(asked, headers)
        raise


async def _headers(asked: Server) -> dict[str, str]:
    return await credentials.headers(asked, _in_own_thread)


async def _in_own_thread(function: Any, *args: Any) -> Any:
    return await asyncio.to_thread(keeping.in_thread, function, *args)


async def _answer(call: Call, context: ToolContext, result: dict[str, Any]) -> ToolOutcome:
    try:
        blocks = await keeping.content(call, context, content_of(result))
    except results.UnusableResult as problem:
        return _failed(f"{call.name} ran, but {problem}.")
    if not result.get("isError"):
        return ToolOutcome(Outcome.SUCCEEDED.value, blocks)
    if not blocks:
        return _failed(f"{call.name} failed and did not say why.")
    return ToolOutcome(Outcome.FAILED.value, blocks)


def _failed(message: str) -> ToolOutcome:
    return _outcome(Outcome.FAILED, message)


def _outcome(outcome: Outcome, message: str) -> ToolOutcome:
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + "…"
    return ToolOutcome(outcome.value, [{"type": "text", "text": clean_text(message)}])
