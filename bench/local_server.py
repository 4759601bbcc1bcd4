"""A small server on a port of its own that takes its connections along when it ends.

`asyncio.Server.close_clients` would do the same, from Python 3.13 on.
"""

import abc
import asyncio
from typing import Self


class LocalServer(abc.ABC):
    """Start it with `async with`; `url` is its base."""

    url: str

    async def __aenter__(self) -> Self:
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self.serve(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    @abc.abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
