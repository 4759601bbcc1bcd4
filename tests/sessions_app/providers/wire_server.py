"""A server that plays what a test tells it: raw answers, byte chunk by byte chunk, cut wherever it likes.

The third-party mock is polite; this one is not. Each connection takes one request, records it, and plays the
next answer.
"""

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from bench.local_server import LocalServer


@dataclass
class Answer:
    """One HTTP answer. `chunks` are sent one by one; `end` is clean, cut (no final chunk, connection closed),
    reset (aborted), or stall (nothing more comes until the client goes)."""

    chunks: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    end: str = "clean"


@dataclass
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class WireServer(LocalServer):
    """Start it with `async with`; `url` is its base."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.received: list[Received] = []
        self.left = asyncio.Event()

    def play(
        self, raw: str | bytes | list[bytes], *, status: int = 200, end: str = "clean", **headers: str
    ) -> None:
        """Queue an answer; header names are given with underscores."""
        chunks = raw if isinstance(raw, list) else [raw.encode() if isinstance(raw, str) else raw]
        kind = "text/event-stream" if status == 200 else "application/json"
        named = {"content-type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append(Answer(chunks=chunks, status=status, headers=named, end=end))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.received.append(Received(method, path, headers, json.loads(body) if body else None))
            await self._play(self.answers.popleft(), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    async def _play(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {answer.status} Played"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        lines += ["transfer-encoding: chunked", "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        for chunk in answer.chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        match answer.end:
            case "clean":
                writer.write(b"0\r\n\r\n")
                await writer.drain()
            case "reset":
                writer.transport.abort()
            case "stall":
                await reader.read()
                self.left.set()
