"""One request to somewhere else and its answer, within bounds of size and under the network rule.

Whoever asks gets an `Answer`, a `Redirected`, or a `RequestFailed` that says whether the request may have reached
the server: as long as no byte of it was sent, nothing can have happened there.
"""

import contextlib
import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from django.conf import settings

from sessions_app import network
from sessions_app.version import VERSION
from tools_app.outside import bodies

CONNECT_TIMEOUT = 15.0
USER_AGENT = f"Tenure/{VERSION}"

MAY_HAVE_ARRIVED = "The request may have reached the server; what came of it is unknown."


@dataclass(frozen=True, slots=True)
class Answer:
    """`is_cut`: there was more of the body than was asked for."""

    status: int
    reason: str
    headers: httpx2.Headers
    body: bytes
    is_cut: bool

    @property
    def content_type(self) -> str:
        return str(self.headers.get("content-type", ""))


class Redirected(Exception):
    """The server answered with a redirect; nothing was asked of its target."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"redirect {status} to {location}")
        self.status = status
        self.location = location


class RequestFailed(Exception):
    """No answer. `sent` says whether any of the request left this machine."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent


type BodyLimit = Callable[[int, httpx2.Headers], int]
"""How many bytes of the body to read, by status and headers; 0 leaves it."""


async def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body_limit: BodyLimit,
    content: bytes | None = None,
) -> Answer:
    """Send one request; raises `Redirected` or `RequestFailed`. Time limits beyond the connection are the caller's."""
    sent = False

    async def watch(event: str, _details: Mapping[str, Any]) -> None:
        nonlocal sent
        sent = sent or event.endswith("send_request_headers.started")

    async with _client() as client:
        try:
            request = client.build_request(
                method, url, headers=_all_headers(headers), content=content, extensions={"trace": watch}
            )
            response = await client.send(request, stream=True)
            try:
                body, is_cut = await _body(response, body_limit)
            finally:
                await response.aclose()
        except network.RedirectRefused as error:
            raise Redirected(error.status, error.location) from None
        except (httpx2.TransportError, httpx2.InvalidURL, bodies.Unreadable) as error:
            # Not chained: what a library says may hold headers, and a log would print it.
            raise RequestFailed(_said(error), sent=sent) from None
    return Answer(response.status_code, response.reason_phrase, response.headers, body, is_cut)


async def _body(response: httpx2.Response, body_limit: BodyLimit) -> tuple[bytes, bool]:
    limit = body_limit(response.status_code, response.headers)
    if limit <= 0:
        return b"", False
    unpacked = bodies.Unpacked(response.headers.get("content-encoding", ""), limit)
    async with contextlib.aclosing(response.aiter_raw()) as pieces:
        async for piece in pieces:
            unpacked.add(piece)
            if unpacked.is_cut:
                break
    return unpacked.body(), unpacked.is_cut


def _all_headers(headers: Mapping[str, str]) -> httpx2.Headers:
    """Only what can be unpacked with a bound may be sent back."""
    wanted = httpx2.Headers({"user-agent": USER_AGENT, "accept": "*/*"})
    wanted.update(headers)
    wanted["accept-encoding"] = "gzip, deflate"
    return wanted


def _client() -> httpx2.AsyncClient:
    return network.guarded_client(
        allowed=network.parse_networks(settings.TENURE.allowed_networks),
        timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
        verify=_tls(),
        resolver=network.resolve,
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for the process: reading the certificates takes longer than most requests."""
    return httpx2.create_ssl_context(trust_env=False)


def _said(error: Exception) -> str:
    match error:
        case network.NetworkRefused() | bodies.Unreadable():
            return str(error)
        case httpx2.ConnectTimeout():
            return f"no connection within {CONNECT_TIMEOUT:g} s"
        case httpx2.ConnectError():
            return f"no connection: {_first_line(error)}"
        case httpx2.RemoteProtocolError():
            return "the server does not speak HTTP as it should, or broke off"
        case httpx2.LocalProtocolError() | httpx2.InvalidURL():
            return "the request can't be sent in this form"
        case _:
            return f"the connection broke ({type(error).__name__})"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__
