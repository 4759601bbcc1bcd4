"""Between the SDK and the network: every reply's event stream passes here.

The transport asks for an unencoded body, decodes the events, lets the protocol's corrector repair and judge
them, and writes them again for the SDK. What it saw is kept in a `Watch`, which the adapter that made the
call reads when the SDK is done: the SDK's word alone is not trusted (it takes a stream without an end for
whole). A stream that goes quiet is given up.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field

import httpx2

from sessions_app.providers.library.correctors import Corrector, corrector_for, error_of
from sessions_app.providers.library.sse import Decoder

FIRST_EVENT_WITHIN = 300.0  # seconds to the answer's head; reasoning models think before they send anything
QUIET_LIMIT = 60.0  # seconds without an event once the answer has begun
_HEAD = 65_536  # bytes kept of a body that is no event stream


class StreamStalled(httpx2.ReadTimeout):
    """The stream went quiet."""


@dataclass
class Watch:
    """What the transport saw of one call."""

    first_event_within: float = FIRST_EVENT_WITHIN
    quiet_limit: float = QUIET_LIMIT
    sent_at: float | None = None
    body_bytes: int = 0
    first_event_at: float | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    corrector: Corrector = field(default_factory=Corrector)

    @property
    def streaming(self) -> bool:
        """Whether a reply had begun: from here on the provider may bill."""
        return self.status is not None and self.status < 300

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from the sending to the first event."""
        if self.sent_at is None or self.first_event_at is None:
            return None
        return self.first_event_at - self.sent_at


# Set by the adapter around a call. The SDK calls the transport in the same task.
watching: ContextVar[Watch | None] = ContextVar("watching", default=None)


class CorrectingTransport(httpx2.AsyncBaseTransport):
    """Wraps another transport; see the module's docstring.

    Headers named in `drop` are taken off every request: SDKs add values from the environment that are meant
    for the provider's own servers only.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, drop: Iterable[str] = ()) -> None:
        self._inner = inner
        self._drop = tuple(drop)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send, and put the corrector between a successful response and the SDK."""
        watch = watching.get() or Watch()
        for name in self._drop:
            request.headers.pop(name, None)
        # Compressed events would arrive in lumps.
        request.headers["accept-encoding"] = "identity"
        watch.body_bytes = int(request.headers.get("content-length") or 0)
        watch.sent_at = time.monotonic()
        response = await self._inner.handle_async_request(request)
        watch.status = response.status_code
        watch.headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status_code >= 300:
            return response
        watch.corrector = corrector_for(request.url.path)
        kept = [
            (name, value)
            for name, value in response.headers.raw
            if name.lower() not in {b"content-length", b"content-encoding", b"transfer-encoding"}
        ]
        return httpx2.Response(
            status_code=response.status_code,
            headers=kept,
            stream=_CorrectedStream(response, watch),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections below."""
        await self._inner.aclose()


class _CorrectedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, watch: Watch) -> None:
        self._response = response
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        watch, corrector, decoder = self._watch, self._watch.corrector, Decoder()
        chunks = self._response.aiter_bytes()
        head = b""
        deadline = time.monotonic() + min(watch.first_event_within, watch.quiet_limit)
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    chunk = await anext(chunks, None)
            except TimeoutError as error:
                raise StreamStalled("the stream went quiet", request=None) from error
            events = decoder.finish() if chunk is None else decoder.feed(chunk)
            if events:
                watch.first_event_at = watch.first_event_at or time.monotonic()
                deadline = time.monotonic() + watch.quiet_limit
            for event in events:
                corrected = corrector.correct(event)
                if corrected is not None:
                    yield corrected.encode()
            if chunk is None:
                break
            if not corrector.events and len(head) < _HEAD:
                head += chunk
        if not corrector.events:
            _judge_body(corrector, head)

    async def aclose(self) -> None:
        await self._response.aclose()


def _judge_body(corrector: Corrector, body: bytes) -> None:
    """A success without events: an error in JSON, as some gateways answer, or no answer of this protocol."""
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if isinstance(data, dict) and data.get("error"):
        corrector.error = error_of(data["error"])
    elif body.strip():
        corrector.malformed = "the answer is not an event stream"
