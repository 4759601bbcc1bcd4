"""The network guard: who connects out for an agent or a customer reaches public addresses only.

One rule for provider base URLs, fetched pages, HTTP tools, MCP servers and webhooks. Names prove nothing
(they may resolve to anything, and to something else a moment later), so the rule is applied to the resolved
address at connect time, and the address that was checked is the one that is connected to. The TLS server
name and the Host header stay the host's. One forbidden address among a name's answers refuses the name, since
which of them would be used is up to chance or to an attacker. Redirects are never followed: whoever gets one
sees a refusal.

`check_address` is the rule, `GuardedTransport` puts it under an httpx2 client, which is what the providers'
SDKs are given; `guarded_client` is such a client with nothing else that leads elsewhere (proxies and .netrc
of the environment, redirects). `allowed` opens private networks, as tests and private deployments need
(`TENURE_ALLOWED_NETWORKS`).
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

import httpcore2
import httpx2

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network
type Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

# Not the internet, and yet global by the tables of some Python or of all: protocol assignments, former 6to4
# relays, and a service that one cloud's hosts offer to their guests.
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv4Network("168.63.129.16/32"))
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_DOCUMENTATION = IPv6Network("3fff::/20")  # not in the tables of Python 3.12

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_TRIED = 8


class NetworkRefused(httpx2.TransportError):
    """The network rule does not allow this request.

    A transport error, so that whatever handles a failed connection handles a refused one too.
    """

    code = "network_refused"


class ForbiddenAddress(NetworkRefused):
    """The address is not public and no allowed network holds it."""

    code = "forbidden_address"

    def __init__(self, address: object, host: str | None = None) -> None:
        named = f"{host} resolves to {address}, which" if host and host != str(address) else f"{address}"
        super().__init__(f"{named} is not a public address")
        self.address = str(address)
        self.host = host


class LookupFailed(NetworkRefused):
    """The name could not be resolved; it may be possible later."""

    code = "lookup_failed"

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"{host} could not be resolved: {reason}")
        self.host = host


class RedirectRefused(NetworkRefused):
    """The server answered with a redirect, and redirects are not followed."""

    code = "redirect"

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"the server redirects to {location} (status {status}); redirects are not followed")
        self.status = status
        self.location = location


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """CIDRs such as `10.0.0.0/8` or single addresses; `ValueError` names the one that is none."""
    return tuple(ipaddress.ip_network(text.strip()) for text in texts)


def check_address(address: str | Address, allowed: Iterable[Network] = ()) -> None:
    """Return for a public or allowed address; raise `ForbiddenAddress` for every other text or address."""
    if not _is_allowed(address, tuple(allowed)):
        raise ForbiddenAddress(address)


def _is_allowed(address: str | Address, allowed: Sequence[Network]) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        if ip.scope_id is not None:  # an address with a zone means something on one link only
            return False
        embedded = _embedded(ip)
        if embedded is not None:
            # What decides is where the packet ends up. The outer form may be allowed as such, too.
            return _in(ip, allowed) or _is_allowed(embedded, allowed)
    return _in(ip, allowed) or _is_public(ip)


def _in(ip: Address, networks: Iterable[Network]) -> bool:
    return any(ip in network for network in networks)


def _is_public(ip: Address) -> bool:
    if not ip.is_global or ip.is_multicast or ip.is_reserved or _in(ip, _SPECIAL):
        return False
    return isinstance(ip, IPv4Address) or (ip in _GLOBAL_UNICAST and ip not in _DOCUMENTATION)


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a translator or tunnel would take out of this one."""
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


async def resolve(host: str, port: int) -> Sequence[str]:
    """All addresses of the host, by the system's resolver, each once and in its order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves, checks every answer, and connects to what was checked."""

    def __init__(self, allowed: Iterable[Network], resolver: Resolver) -> None:
        self._allowed = tuple(allowed)
        self._resolver = resolver
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore2's signature)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        addresses = await self._checked_addresses(host, port, timeout)
        options = None if socket_options is None else list(socket_options)
        last_failure: Exception | None = None
        for position, address in enumerate(addresses):
            # A silent address gets its share of the time only, so that the next one can still answer.
            share = None if deadline is None else max(0.0, deadline - clock()) / (len(addresses) - position)
            try:
                return await self._inner.connect_tcp(address, port, share, local_address, options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failure:
                last_failure = failure
        raise last_failure or LookupFailed(host, "no addresses")

    async def _checked_addresses(self, host: str, port: int, limit: float | None) -> Sequence[str]:
        try:
            async with asyncio.timeout(limit):
                addresses = await self._resolver(host, port)
        except TimeoutError:
            raise LookupFailed(host, "the look-up took too long") from None
        except (OSError, UnicodeError) as error:
            raise LookupFailed(host, str(error)) from error
        for address in addresses:
            if not _is_allowed(address, self._allowed):
                raise ForbiddenAddress(address, host)
        return addresses[:_MAX_TRIED]

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore2's signature)
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise ForbiddenAddress(path)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """An httpx2 transport that keeps the rule; give it to a client as `transport=`.

    Raises `ForbiddenAddress`, `LookupFailed` and `RedirectRefused` besides httpx2's own errors.
    """

    def __init__(
        self,
        *,
        allowed: Iterable[Network] = (),
        verify: ssl.SSLContext | bool = True,
        resolver: Resolver = resolve,
        max_connections: int = 200,
        max_keepalive_connections: int = 40,
        keepalive_expiry: float = 30.0,
    ) -> None:
        context = httpx2.create_ssl_context(verify=verify)
        super().__init__(verify=context, trust_env=False)
        # The pool that the parent has made knows no network backend but its own, and is still empty.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=max_connections,
            max_keepalive_connections=max_keepalive_connections,
            keepalive_expiry=keepalive_expiry,
            network_backend=_GuardedBackend(allowed, resolver),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.status_code in _REDIRECTS:
            await response.aclose()
            raise RedirectRefused(response.status_code, response.headers.get("location", "nowhere"))
        return response


def guarded_client(
    *,
    allowed: Iterable[Network] = (),
    timeout: httpx2.Timeout | float = 30.0,
    verify: ssl.SSLContext | bool = True,
    resolver: Resolver = resolve,
    **client_arguments: Any,
) -> httpx2.AsyncClient:
    """An httpx2 client on a `GuardedTransport`, without proxies or .netrc of the environment."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(allowed=allowed, verify=verify, resolver=resolver),
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        **client_arguments,
    )
