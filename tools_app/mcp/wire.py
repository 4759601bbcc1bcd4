"""The HTTP below the SDK: every request to an MCP server passes here.

The SDK turns whatever goes wrong into errors of one kind. Whether a call can have happened is decided by what
was seen on the wire instead: whether its first byte left, and what came back. Beside that this keeps promises
that no library keeps for us: the call is sent at most once, private addresses and redirects are refused
(`sessions_app.network`), answers are bounded, and good-byes to a server are short.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
from django.conf import settings

from sessions_app.network import GuardedTransport, parse_networks

CALL = "tools/call"
MAX_ANSWER = 32 * 2**20  # bytes of one answer
MAX_RESUMPTIONS = 20  # GETs that go on with an answer which the server broke off
GOODBYE_WITHIN = 1.0  # seconds for each of a notification and the end of a session
_INITIALIZED = "notifications/initialized"
_SESSION = "mcp-session-id"
_NO_STREAM = 405  # what a server answers that has no stream beside its answers


class SentTwice(httpx2.TransportError):
    """The SDK would have sent the call once more."""


class TooLarge(httpx2.TransportError):
    """The answer is larger than anybody could use."""


@dataclass
class Sight:
    """What was seen of the requests of one connection. Status and type are those of the last answer."""

    asked: str = ""
    status: int | None = None
    content_type: str = ""
    call_asked: bool = False
    call_sent: bool = False  # the first byte of the call may have left
    in_session: bool = False  # the call named a session that the server keeps
    fault: httpx2.TransportError | None = None  # the first one

    @property
    def call_answered(self) -> bool:
        """Whether there is an answer to the call, whole or not."""
        return self.call_asked and self.status is not None


class Wire(httpx2.AsyncBaseTransport):
    """The transport of one connection; `sight` is filled as it goes."""

    def __init__(self, connect_within: float) -> None:
        self._connect_within = connect_within
        allowed = parse_networks(settings.TENURE.allowed_networks)
        self._inner = GuardedTransport(allowed=allowed, verify=_trusted(), max_connections=10)
        self._resumptions = 0
        self.sight = Sight()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # Encoded answers could grow beyond their bound while they are decoded.
        request.headers["accept-encoding"] = "identity"
        try:
            if request.method == "POST":
                return await self._post(request)
            if request.method == "GET":
                return await self._get(request)
            return await self._goodbye(request)
        except httpx2.TransportError as error:
            self.sight.fault = self.sight.fault or error
            raise

    async def _post(self, request: httpx2.Request) -> httpx2.Response:
        message = json.loads(await request.aread())
        method = message.get("method")
        if method == _INITIALIZED:
            return await self._unheard(request, self._connect_within)
        if method is None or "id" not in message:
            return await self._goodbye(request)
        sight = self.sight
        sight.asked, sight.status, sight.content_type = method, None, ""
        if method == CALL:
            if sight.call_asked:
                raise SentTwice("the call was to be sent a second time")
            sight.call_asked, sight.in_session = True, _SESSION in request.headers
            request.extensions = {**request.extensions, "trace": self._trace}
        response = await self._inner.handle_async_request(request)
        sight.status = response.status_code
        sight.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return self._bounded(response)

    async def _get(self, request: httpx2.Request) -> httpx2.Response:
        if "last-event-id" not in request.headers:
            # A stream beside the answers would bring news that nobody is there to hear.
            return httpx2.Response(_NO_STREAM, request=request)
        self._resumptions += 1
        if self._resumptions > MAX_RESUMPTIONS:
            raise httpx2.RemoteProtocolError("the server breaks off its answer again and again")
        return self._bounded(await self._inner.handle_async_request(request))

    async def _goodbye(self, request: httpx2.Request) -> httpx2.Response:
        """A message that nobody waits for: it may neither hold anything up nor break it."""
        try:
            return await self._unheard(request, GOODBYE_WITHIN)
        except httpx2.TransportError:
            return httpx2.Response(202, request=request)

    async def _unheard(self, request: httpx2.Request, within: float) -> httpx2.Response:
        """Send something that has no answer; a body is not read."""
        try:
            async with asyncio.timeout(within):
                response = await self._inner.handle_async_request(request)
                await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout("no answer in time", request=request) from None
        return httpx2.Response(response.status_code, request=request)

    async def _trace(self, event: str, _info: Any) -> None:
        if event.endswith("send_request_headers.started"):
            self.sight.call_sent = True

    def _bounded(self, response: httpx2.Response) -> httpx2.Response:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            raise httpx2.RemoteProtocolError(f"the answer is encoded ({encoding}), which was not asked for")
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers.raw,
            stream=_Bounded(response, self.sight),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, sight: Sight) -> None:
        self._response = response
        self._sight = sight

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._response.aiter_raw():
                size += len(chunk)
                if size > MAX_ANSWER:
                    raise TooLarge(f"the answer has more than {MAX_ANSWER // 2**20} MiB")
                yield chunk
        except httpx2.TransportError as error:
            self._sight.fault = self._sight.fault or error
            raise

    async def aclose(self) -> None:
        await self._response.aclose()


@cache
def _trusted() -> ssl.SSLContext:
    """Reading the certificates takes longer than connecting, so that is done once."""
    return httpx2.create_ssl_context()
