"""What MCP servers offer, remembered in the worker process.

A list is asked for when a config with the server is first seen. The model call waits for it, but never long:
a server that is down costs that time once, and later attempts run beside the model calls. A list that was
fetched once stays good when its server goes away: calls of its tools then fail and say why, and the model is
not told of other tools in the middle of its work. Lists are fetched anew when they are old, and when a server
says that its list has changed.

Nothing here is needed for what is durable: another worker asks again.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.json_schema import check_object_schema
from sessions_app.schema_validation import Validator, validator_for_schema
from sessions_app.text import UnstorableJson, clean_json, clean_text
from tools_app.mcp import credentials, names
from tools_app.mcp.exchanges import exchange
from tools_app.mcp.failures import McpFailure, NoAnswer, RefusesCredentials
from tools_app.mcp.servers import Server

if TYPE_CHECKING:
    from tools_app.mcp.sdk import Connection, Protocol

logger = structlog.get_logger(__name__)

type Headers = Callable[[Server], Awaitable[dict[str, str]]]

MAX_TOOL = 60_000  # characters of a tool's description and schema
_LIST_WITHIN = 60.0  # seconds for all pages of a list
_SECOND_LOOK = 1.0  # seconds that a model call waits for a server that was down before
_MOST_LISTINGS = 1000
_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server describes it, with the hints it gives (`read_only`, `destructive`, …)."""

    name: str
    description: str
    input_schema: dict[str, Any]
    validator: Validator
    hints: Mapping[str, bool]
    by_headers: bool = False  # some arguments are to be sent in headers too


@dataclass
class Listing:
    """What is known of one server. `tools` by the names that models use; None where there never was a list."""

    tools: Mapping[str, RemoteTool] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)  # why models are not told of some
    why: str | None = None  # the last attempt failed
    protocol: "Protocol" = None
    fetched_at: float = float("-inf")  # both on the event loop's clock
    tried_at: float = float("-inf")
    changed: bool = False  # says the server
    task: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        """Whether to ask (again), by how old the list or the last failure is."""
        now = asyncio.get_running_loop().time()
        if now - self.tried_at < settings.TENURE.mcp_retry_interval and self.why is not None:
            return False
        return self.changed or now - self.fetched_at >= settings.TENURE.mcp_list_ttl

    def asking(self) -> asyncio.Task[None] | None:
        """The task that asks just now, if any; of an event loop that has ended nothing comes any more."""
        if self.task is None or self.task.done() or self.task.get_loop() is not asyncio.get_running_loop():
            return None
        return self.task


_listings: OrderedDict[str, Listing] = OrderedDict()


def known(server: Server) -> Listing:
    """What is known now, without asking."""
    listing = _listings.setdefault(server.key, Listing())
    _listings.move_to_end(server.key)
    while len(_listings) > _MOST_LISTINGS:
        _listings.popitem(last=False)
    return listing


def forget() -> None:
    """All lists."""
    _listings.clear()


async def listing_of(server: Server, headers: Headers) -> Listing:
    """The server's list; asks, and waits for it, where there is none yet. Never raises."""
    listing = known(server)
    asking = listing.asking()
    if asking is None and listing.is_due():
        asking = listing.task = asyncio.create_task(_refresh(server, listing, headers))
    if asking is not None and listing.tools is None:
        patience: float = settings.TENURE.mcp_connect_timeout
        await asyncio.wait({asking}, timeout=patience if listing.why is None else min(_SECOND_LOOK, patience))
        if not asking.done() and listing.why is None:
            # Whoever comes next does not wait as long; the asking goes on.
            listing.why = f"has not told its tools within {patience:g} s"
    return listing


async def _refresh(server: Server, listing: Listing, headers: Headers) -> None:
    listing.changed = False
    try:
        async with asyncio.timeout(_LIST_WITHIN):
            fetched = await _fetch(server, listing, headers)
            # In a thread: checking the schemas of a long list takes longer than other sessions should wait.
            usable = await asyncio.to_thread(_usable, server, fetched)
    except (McpFailure, TimeoutError) as failure:
        listing.why = str(failure) or f"has not told its tools within {_LIST_WITHIN:g} s"
        if listing.tools is None:
            # Some old servers leave what they don't know unanswered.
            unanswered = isinstance(failure, NoAnswer) and failure.asked == "server/discover"
            listing.protocol = "legacy" if unanswered else None
        logger.warning("mcp.list_failed", server=server.name, project=str(server.project), why=listing.why)
    except Exception as error:
        # Of the database, for a secret; nobody waits for this task's own error.
        listing.why = "can't be asked at the moment"
        logger.warning("mcp.list_failed", server=server.name, project=str(server.project), exc_info=error)
    else:
        listing.tools, listing.left_out = usable
        listing.protocol, listing.why = fetched.protocol, None
        listing.fetched_at = asyncio.get_running_loop().time()
    listing.tried_at = asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class _Fetched:
    tools: list[dict[str, Any]]
    not_valid: list[str]  # names of tools that the protocol itself refuses
    protocol: "Protocol"


async def _fetch(server: Server, listing: Listing, headers: Headers) -> _Fetched:
    async def ask(connection: "Connection") -> _Fetched:
        tools = await connection.list_tools()
        return _Fetched(tools, connection.left_out, connection.protocol)

    # A protocol that was learned before is learned anew: servers are upgraded.
    protocol = listing.protocol if listing.tools is None else None
    sent = await headers(server)
    try:
        return await exchange(
            server.url,
            sent,
            ask,
            connect_within=settings.TENURE.mcp_connect_timeout,
            protocol=protocol,
        )
    except RefusesCredentials:
        credentials.refused(server, sent)
        raise


def _usable(server: Server, fetched: _Fetched) -> tuple[dict[str, RemoteTool], dict[str, str]]:
    """The tools that models can be told of, by exposed name; and why the others are left out."""
    described: dict[str, RemoteTool] = {}
    problems = {
        names.exposed(server.name, name): "its server describes it in a way that is not valid MCP"
        for name in fetched.not_valid
        if name
    }
    for tool in fetched.tools:
        name = str(tool["name"])
        try:
            described.setdefault(name, _described(name, tool))
        except ValueError as problem:
            problems[names.exposed(server.name, name)] = str(problem)
    named, doubled = names.by_exposed_name(server.name, described)
    for name in doubled:
        problems[names.exposed(server.name, name)] = "another tool of its server has the same name here"
    if problems:
        logger.warning("mcp.tools_left_out", server=server.name, project=str(server.project), tools=problems)
    return {exposed: described[name] for exposed, name in named.items()}, problems


def _described(name: str, tool: Mapping[str, Any]) -> RemoteTool:
    """Raises `ValueError` with the reason why no model can be told of it."""
    try:
        schema: dict[str, Any] = clean_json(tool["inputSchema"], on_nan="refuse")
        check_object_schema(schema)
    except PydanticCustomError as problem:
        raise ValueError(
            f"its server describes its arguments with a schema that is {problem.message()}"
        ) from None
    except (UnstorableJson, RecursionError):
        raise ValueError("its server describes its arguments with a schema that can't be stored") from None
    title = tool.get("title") or (tool.get("annotations") or {}).get("title")
    description = clean_text(tool.get("description") or title or name)
    text = json.dumps(schema)
    if len(text) + len(description) > MAX_TOOL:
        raise ValueError(f"its description is longer than {MAX_TOOL} characters")
    return RemoteTool(
        name,
        description,
        schema,
        validator_for_schema(schema),
        hints_of(tool.get("annotations") or {}),
        by_headers='"x-mcp-header"' in text,
    )


def hints_of(annotations: Mapping[str, Any]) -> dict[str, bool]:
    """The hints that the server gives, under the names that rules use."""
    return {
        ours: annotations[theirs]
        for theirs, ours in _HINTS.items()
        if isinstance(annotations.get(theirs), bool)
    }
