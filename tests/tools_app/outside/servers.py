"""Real servers on the loopback, friendly and hostile, that tests of outside tools talk to."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

type Answer = bytes | Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """Answers each path with what `answers` holds for it, and keeps what was asked."""

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            request = await _read(reader)
            self.requests.append(request)
            answer = self.answers.get(request.path, reply(b"nothing here", status="404 Not Found"))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(request, writer)
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


@contextlib.asynccontextmanager
async def serving(**answers: Answer) -> AsyncIterator[Server]:
    state = Server()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await state.serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.port = server.sockets[0].getsockname()[1]
    state.answers = dict(answers)
    try:
        yield state
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def reply(body: bytes | str = b"", *, status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; `content_type="text/html"` is a header."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "content_length" not in headers:
        lines.append(f"content-length: {len(data)}")
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "connection: close"])
    return head.encode("latin-1") + b"\r\n\r\n" + data


def page(title: str, *paragraphs: str) -> str:
    """A plain article."""
    text = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f"<!doctype html><html><head><title>{title}</title></head><body><article>{text}</article></body></html>"


def as_json(value: Any, *, status: str = "200 OK", **headers: str) -> bytes:
    return reply(json.dumps(value), status=status, content_type="application/json", **headers)


async def drip(_request: Request, writer: asyncio.StreamWriter) -> None:
    """A byte from time to time, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless(_request: Request, writer: asyncio.StreamWriter) -> None:
    """As much as the other side takes."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n")
    while True:
        writer.write(b"on and on " * 1000)
        await writer.drain()


async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def hang_up(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def break_off(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nthe begin")
    await writer.drain()
    writer.close()
