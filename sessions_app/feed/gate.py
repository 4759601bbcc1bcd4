"""How fast the other end takes what is sent, so that nothing piles up for a reader that is slow (F4).

Under daphne `await send(...)` returns at once, and what the client does not take grows in the transport's buffer.
The transport says so to a producer that is registered with it: it asks for a pause past 64 KiB and for more when
the buffer is empty. `send` is a partial of daphne's over the protocol object, its only way to the transport; a
test holds that. Behind another server, `send` waits by itself and the gate is always open.
"""

import asyncio
import functools
from typing import Any

from django.conf import settings

from sessions_app.errors import TenureError

SCOPE_KEY = "tenure.gate"
CLOSE_PATIENCE = 30
"""Seconds that a slow client has to take what was sent before it was closed, and the reason with it."""


class SlowConsumer(TenureError):
    """This connection took nothing for too long. Read on from the cursor that came last."""

    code = "slow_consumer"
    status = 503


class Gate:
    """One connection's. It does nothing before `attach`."""

    def __init__(self, send: Any = None) -> None:
        is_daphnes = isinstance(send, functools.partial) and bool(send.args)
        self._protocol: Any = send.args[0] if is_daphnes else None
        self._consumer: Any = None
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def attach(self) -> None:
        """From now on be told when the buffer is full."""
        protocol = self._protocol
        if getattr(protocol, "transport", None) is not None and hasattr(protocol, "closeHandshakeTimeout"):
            # An upgraded connection still has the producer of the HTTP request that it began as.
            protocol.transport.unregisterProducer()
            protocol.closeHandshakeTimeout = CLOSE_PATIENCE
            protocol.failByDrop = (
                False  # a frame that is too large gets a close code (1009) and not a cut wire
            )
            self._consumer = protocol.transport
        elif hasattr(protocol, "registerProducer") and getattr(protocol, "channel", None) is not None:
            self._consumer = protocol
        if self._consumer is not None:
            self._consumer.registerProducer(self, True)

    def detach(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None and getattr(consumer, "channel", consumer) is not None:
            consumer.unregisterProducer()

    async def passable(self) -> None:
        """Wait until more can be sent. Raises `SlowConsumer`."""
        if self._open.is_set():
            return
        try:
            async with asyncio.timeout(settings.TENURE.feed_slow_after):
                await self._open.wait()
        except TimeoutError:
            raise SlowConsumer from None

    def stop_reading(self) -> None:
        """While a frame is answered no more are taken in, or a client could fill our memory with them."""
        if self._consumer is not None and hasattr(self._consumer, "pauseProducing"):
            self._consumer.pauseProducing()

    def read_on(self) -> None:
        if self._consumer is not None and hasattr(self._consumer, "resumeProducing"):
            self._consumer.resumeProducing()

    def close(self, code: int) -> bool:
        """Close a socket with a code that speaks of the server (1011 to 1014); False where `send` has to do it.

        The library below daphne lets an application send 1000 and those from 3000 on only, and these come from
        the server itself.
        """
        if not hasattr(self._protocol, "sendCloseFrame"):
            return False
        self._protocol.sendCloseFrame(code=code)
        return True

    # What a transport calls; the names are Twisted's.

    def pauseProducing(self) -> None:  # noqa: N802
        self._open.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self._open.set()

    def stopProducing(self) -> None:  # noqa: N802
        """The connection is lost; whoever waits will be told by the server."""
        self._open.set()
