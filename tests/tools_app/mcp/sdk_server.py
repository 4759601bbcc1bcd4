"""The official SDK's server in a process of its own, over real sockets.

    python -m tests.tools_app.mcp.sdk_server <folder>

It prints its port and serves until its input ends. One path for each way of serving:

    /new         today's protocol, without a handshake
    /old-sse     as servers of before: a handshake, sessions, answers as event streams
    /old-json    the same with answers as JSON
    /old-single  a handshake, and no sessions

Its tools leave a byte for each run in the folder, so a test can count afterwards.
"""

import asyncio
import base64
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, ResourceLink, TextContent, ToolAnnotations
from pydantic import BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()


class Weather(BaseModel):
    city: str
    degrees: int


class Name(BaseModel):
    name: str


def leave_byte(file: str) -> int:
    with (FOLDER / file).open("ab") as trace:
        trace.write(b".")
        return trace.tell()


async def echo(text: str, context: Context) -> str:
    """Say it again."""
    meta = context.request_context.meta or {}
    return json.dumps({"text": text, "token": meta.get("tenure/idempotency-key")})


async def append(file: str, seconds: float = 0) -> str:
    """Leave a byte; takes its time before it and after it."""
    leave_byte(f"{file}.begun")
    await asyncio.sleep(seconds)
    leave_byte(file)
    return f"appended to {file}"


async def weather(city: str) -> Weather:
    """What the weather is like."""
    return Weather(city=city, degrees=21)


async def plus(a: int, b: int) -> int:
    """Add."""
    return a + b


async def picture() -> Image:
    """One pixel."""
    return Image(data=PIXEL, format="png")


async def link() -> CallToolResult:
    """Where to look."""
    return CallToolResult(
        content=[
            TextContent(text="see"),
            ResourceLink(name="notes", uri="file:///notes.txt", description="all of them"),
        ]
    )


async def long(characters: int) -> str:
    """A lot of text."""
    return "x" * characters


async def fails() -> str:
    """Never works."""
    raise ToolError("the printer is on fire")


async def asks(context: Context) -> str:
    """Wants to know a name first."""
    answer = await context.elicit("Your name?", Name)
    return f"{answer.action}"


TOOLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (echo, {"annotations": ToolAnnotations(read_only_hint=True, destructive_hint=False)}),
    (append, {"annotations": ToolAnnotations(destructive_hint=True)}),
    (weather, {}),
    (plus, {}),
    (picture, {}),
    (link, {}),
    (long, {}),
    (fails, {}),
    (asks, {}),
    (plus, {"name": "sum.of" + ".numbers" * 12}),
]

type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]
type App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


def server() -> MCPServer[Any]:
    made: MCPServer[Any] = MCPServer("peer", log_level="ERROR")
    for function, settings in TOOLS:
        made.tool(**settings)(function)
    return made


def old(app: App) -> App:
    """What servers of before say to the question that they don't know."""

    async def serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"mcp-method") == b"server/discover":
            error = {"code": -32600, "message": "Bad Request: Missing session ID"}
            body = json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": error}).encode()
            kind = (b"content-type", b"application/json")
            await send({"type": "http.response.start", "status": 400, "headers": [kind]})
            await send({"type": "http.response.body", "body": body})
        else:
            await app(scope, receive, send)

    return serve


async def main() -> None:
    ways: dict[str, dict[str, Any]] = {
        "/new": {},
        "/old-sse": {},
        "/old-json": {"json_response": True},
        "/old-single": {"stateless_http": True},
    }
    apps: dict[str, App] = {}
    async with contextlib.AsyncExitStack() as stack:
        for path, how in ways.items():
            made = server()
            app: Any = made.streamable_http_app(
                streamable_http_path=path,
                transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
                **how,
            )
            await stack.enter_async_context(made.session_manager.run())
            apps[path] = app if path == "/new" else old(app)

        async def serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                leave_byte(f"requests{scope['path'].replace('/', '.')}")
                await apps[scope["path"]](scope, receive, send)

        config = uvicorn.Config(serve, port=0, log_level="warning", lifespan="off")
        running = uvicorn.Server(config)
        task = asyncio.create_task(running.serve())
        while not running.started:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        sys.stdout.write(f"{running.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        running.force_exit = running.should_exit = True
        await task


if __name__ == "__main__":
    asyncio.run(main())
