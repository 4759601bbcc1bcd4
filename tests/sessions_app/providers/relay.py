"""A relay in front of the third-party mock that keeps each request's body as it went over the wire.

The mock's own journal holds bodies in one neutral form, whatever the protocol was, so the request rules cannot be
read from it.
"""

import asyncio
import json
from typing import Any, Self


class Relay:
    """Start it with `async with`; `url` is its base, `bodies` what was sent."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.removeprefix("http://").partition(":")
        self._port = int(port)
        self.bodies: list[Any] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self._server.close_clients()
        await self._server.wait_closed()

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection(self._host, self._port)
        answers = asyncio.create_task(self._copy(server, back))
        try:
            while True:
                head = await client.readuntil(b"\r\n\r\n")
                body = await client.readexactly(_length(head))
                self.bodies.append(json.loads(body))
                forth.write(head + body)
                await forth.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            forth.close()
            await answers
            back.close()

    @staticmethod
    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(65_536):
                target.write(chunk)
                await target.drain()
        except ConnectionError:
            pass


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
