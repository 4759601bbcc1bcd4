"""The MCP SDK: half a second and tens of megabytes, so this is loaded when it is first used.

It says nothing of its own to a server but what one connection is for, and knows no database. The SDK's
`Client.call_tool` is not used: it asks for the tools' list again and repeats the call when a server complains
about headers, and it throws results away that don't fit the tool's output schema, although the tool has run.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client, ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    DiscoverResult,
    Implementation,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from sessions_app.version import VERSION
from tools_app.mcp.lenient import lenient
from tools_app.mcp.wire import MAX_ANSWER, Wire

__all__ = ["CONNECTION_CLOSED", "LEGACY", "PARSE_ERROR", "MCPError", "ValidationError", "connect"]

IDEMPOTENCY_KEY = "tenure/idempotency-key"
"""Where in `_meta` a call has the id of its tool call."""

LEGACY = "legacy"
"""The protocol of servers that want a handshake before everything else."""

MAX_PAGES = 100
MAX_TOOLS = 1000
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_SELF = Implementation(name="tenure", version=VERSION)

type Protocol = str | DiscoverResult | None
"""How a server wants to be spoken to: with a handshake, or as it said itself; None where nobody knows yet."""


@dataclass
class Connection:
    """An open connection, in which its `work` is done."""

    session: ClientSession
    left_out: list[str]  # names of tools in its lists that are not valid MCP

    @property
    def protocol(self) -> Protocol:
        return self.session.discover_result or LEGACY

    async def list_tools(self) -> list[dict[str, Any]]:
        """All pages of a server's list, each tool as the protocol writes it."""
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            page: ListToolsResult = await self.session.list_tools(params=params)
            tools += [tool.model_dump(by_alias=True, mode="json", exclude_unset=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or cursor in seen or len(tools) >= MAX_TOOLS:
                break
            seen.add(cursor)
        return tools[:MAX_TOOLS]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, token: str, by_headers: bool
    ) -> dict[str, Any]:
        """Send one call; its result as the protocol writes it. `token` tells the server which call it is.

        `by_headers`: the tool wants some of its arguments in headers too. The SDK takes their names from the
        list of the same connection.
        """
        if by_headers:
            await self.list_tools()
        params = CallToolRequestParams(name=name, arguments=dict(arguments), _meta={IDEMPOTENCY_KEY: token})
        result = await self.session.send_request(CallToolRequest(params=params), _RESULT)
        return result.model_dump(by_alias=True, mode="json", exclude_unset=True) | {
            "inputRequired": isinstance(result, InputRequiredResult)
        }


async def connect(
    url: str,
    headers: Mapping[str, str],
    wire: Wire,
    *,
    connect_within: float,
    protocol: Protocol,
    connected: Callable[[], None],
    work: Callable[[Connection], Awaitable[None]],
    tools_changed: Callable[[], None],
) -> None:
    """Connect, do `work`, say good-bye. Raises whatever the SDK raises, mostly in a group."""

    async def news(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            tools_changed()

    # Reading has no limit of its own: tools may be silent for as long as they may run.
    patience = httpx2.Timeout(None, connect=connect_within, pool=connect_within, write=connect_within)
    async with httpx2.AsyncClient(
        transport=wire, headers=dict(headers), timeout=patience, trust_env=False, follow_redirects=False
    ) as http:
        modern = protocol if isinstance(protocol, DiscoverResult) else None
        left_out: list[str] = []
        streams = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_ANSWER)
        client = Client(
            lenient(streams, version=lambda: client.session.protocol_version, left_out=left_out.append),
            mode=_version(modern) if modern else LEGACY if protocol == LEGACY else "auto",
            prior_discover=modern,
            cache=None,
            client_info=_SELF,
            message_handler=news,
        )
        async with client:
            connected()
            await work(Connection(client.session, left_out))


def _version(protocol: DiscoverResult) -> str:
    spoken = protocol.supported_versions
    return next(version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in spoken)
