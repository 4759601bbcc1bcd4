"""A server that speaks MCP until it is called, and then misbehaves as a test tells it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.local_server import LocalServer

TOOL: dict[str, Any] = {"name": "deploy", "inputSchema": {"type": "object"}}


@dataclass
class Received:
    method: str
    asked: str | None
    headers: dict[str, str]
    body: Any


class BadServer(LocalServer):
    """Start it with `async with`; `url` is its address.

    `on` says what becomes of a request, by its JSON-RPC method or by GET or DELETE: a status, an answer in the
    form of `answer` below, or one of hang, close, half, resumable.
    """

    def __init__(self) -> None:
        self.on: dict[str, Any] = {}
        self.tools: list[dict[str, Any]] | Callable[[Any], dict[str, Any]] = [TOOL]
        self.received: list[Received] = []
        self.busy = asyncio.Event()

    def asked(self, method: str) -> list[Received]:
        return [received for received in self.received if received.asked == method]

    @property
    def calls(self) -> int:
        return len(self.asked("tools/call"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method = head[0].split(" ")[0]
                lines = (line.partition(":") for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in lines}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                body = json.loads(raw) if raw else {}
                received = Received(method, body.get("method"), headers, body)
                self.received.append(received)
                if not await self._answer(received, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    async def _answer(
        self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        what = self.on.get(received.asked or received.method)
        if what is None:
            what = self._proper(received)
        if received.asked == "tools/call":
            self.busy.set()
        match what:
            case "hang":
                await reader.read()
                return False
            case "close":
                return False
            case "half":
                writer.write(_head(200, {"content-type": "text/event-stream", "connection": "close"}))
                writer.write(b'event: message\ndata: {"jsonrpc": "2.0", "id"')
                await writer.drain()
                return False
            case "resumable":
                writer.write(_head(200, {"content-type": "text/event-stream", "connection": "close"}))
                writer.write(b"id: 7\nretry: 1\ndata:\n\n")
                await writer.drain()
                return False
            case int() as status:
                writer.write(answer(status))
            case bytes():
                writer.write(what)
        await writer.drain()
        return True

    def _proper(self, received: Received) -> bytes:
        request = received.body.get("id")
        match received.asked:
            case "server/discover":
                return says_error(request, -32601, "Method not found", status=400)
            case "initialize":
                result = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "bad", "version": "1"},
                }
                return says(request, result, **{"mcp-session-id": "s1"})
            case "tools/list":
                if callable(self.tools):
                    return says(request, self.tools(received.body.get("params") or {}))
                return says(request, {"tools": self.tools})
            case "tools/call":
                return says(request, {"content": [{"type": "text", "text": "deployed"}]})
            case _:
                return answer(202 if received.method == "POST" else 200)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _head(status, {"content-length": str(len(body))} | named) + body


def says(request: Any, result: Any, **headers: str) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode()
    return answer(200, body, content_type="application/json", **headers)


def says_error(request: Any, code: int, message: str, *, status: int = 200) -> bytes:
    error = {"code": code, "message": message}
    body = json.dumps({"jsonrpc": "2.0", "id": request, "error": error}).encode()
    return answer(status, body, content_type="application/json")
