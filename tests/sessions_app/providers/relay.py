"""A relay in front of the third-party mock that keeps each request's body as it went over the wire.

The mock's own journal holds bodies in one neutral form, whatever the protocol was, so the request rules cannot be
read from it.
"""

import asyncio
import json
from typing import Any

from bench.local_server import LocalServer


class Relay(LocalServer):
    """Start it with `async with`; `url` is its base, `bodies` what was sent."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.removeprefix("http://").partition(":")
        self._port = int(port)
        self.bodies: list[Any] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection(self._host, self._port)
        answers = asyncio.create_task(self._copy(server, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                self.bodies.append(json.loads(body))
                forth.write(head + body)
                await forth.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            forth.close()
            await answers

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
