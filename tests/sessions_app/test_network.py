"""The network guard (W5 and the network rule), over real loopback sockets with made-up resolvers."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import socket
import ssl

import httpcore2
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sessions_app.network import (
    ForbiddenAddress,
    GuardedTransport,
    LookupFailed,
    NetworkRefused,
    RedirectRefused,
    check_address,
    guarded_client,
    parse_networks,
    resolve,
)

LOOPBACK = parse_networks(["127.0.0.1"])


class Server:
    """A loopback HTTP server that counts connections and keeps the requests' heads."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.connections = 0
        self.heads: list[bytes] = []
        self.server_names: list[str | None] = []
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.answer)
                await writer.drain()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def serving(answer: bytes = OK, tls: ssl.SSLContext | None = None):
    state = Server(answer)
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: state.server_names.append(name)
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    async with server:
        try:
            yield state
        finally:
            for writer in state.writers:
                writer.close()


def answering(*answers):
    """A resolver that gives these answers one after the other, the last one for ever."""
    remaining = list(answers)

    async def resolver(_host: str, _port: int):
        answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return resolver


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_public_addresses_pass(address):
    """W5."""
    check_address(address)
    check_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.0.3",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "203.0.113.5",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b:1::808:808",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "2001:0:808:808::1",
        "2001:db8::1",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
        "4000::1",
        "fe80::1%eth0",
        "2606:4700:4700::1111%1",
        "0177.0.0.1",
        "2130706433",
        "localhost",
        "",
    ],
)
def test_everything_else_is_forbidden(address):
    """W5."""
    with pytest.raises(ForbiddenAddress):
        check_address(address)


def test_allowed_networks_open_what_they_hold_and_no_more():
    allowed = parse_networks(["10.0.0.0/8", " fd00::/8", "127.0.0.1"])
    for address in ("10.2.3.4", "::ffff:10.2.3.4", "fd00::1", "127.0.0.1", "64:ff9b::a02:304"):
        check_address(address, allowed)
    for address in ("127.0.0.2", "::1", "11.0.0.1%1", "169.254.169.254", "fd00::1%eth0"):
        with pytest.raises(ForbiddenAddress):
            check_address(address, allowed)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "ten", "", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"network|host bits"):
        parse_networks([text])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]"])
async def test_every_spelling_of_loopback_is_refused_before_a_connection(host):
    """W5: what the system's resolver makes of the host is what is judged."""
    async with serving() as server, guarded_client() as client:
        with pytest.raises((ForbiddenAddress, LookupFailed, httpx2.InvalidURL)):
            await client.get(f"http://{host}:{server.port}/")
        assert server.connections == 0


async def test_an_allowed_network_can_be_reached():
    async with serving() as server, guarded_client(allowed=LOOPBACK) as client:
        response = await client.get(f"http://127.0.0.1:{server.port}/")
    assert (response.status_code, response.text) == (200, "ok")


async def test_the_address_that_was_checked_is_the_one_that_is_used():
    """C127: a second answer, given after the check, is never asked for."""
    asked = []

    async def rebinding(host, _port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    async with serving() as server, guarded_client(allowed=LOOPBACK, resolver=rebinding) as client:
        response = await client.get(f"http://rebind.example:{server.port}/")
    assert response.text == "ok"
    assert asked == ["rebind.example"]
    assert f"host: rebind.example:{server.port}".encode() in server.heads[0].lower()


async def test_a_name_that_changes_to_an_internal_address_is_refused_at_its_next_connect():
    """C127."""
    answers = answering(["127.0.0.9"], ["127.0.0.1"])
    allowed = parse_networks(["127.0.0.9"])  # nobody listens there
    async with serving() as server, guarded_client(allowed=allowed, resolver=answers) as client:
        url = f"http://rebind.example:{server.port}/"
        with pytest.raises(httpx2.TransportError) as unreachable:
            await client.get(url)
        assert not isinstance(unreachable.value, NetworkRefused)
        with pytest.raises(ForbiddenAddress) as refused:
            await client.get(url)
        assert server.connections == 0
    assert (refused.value.address, refused.value.host) == ("127.0.0.1", "rebind.example")


async def test_one_forbidden_address_among_the_answers_refuses_the_name():
    """C127."""
    answers = answering(["127.0.0.1", "10.0.0.1"])
    async with serving() as server, guarded_client(allowed=LOOPBACK, resolver=answers) as client:
        with pytest.raises(ForbiddenAddress, match=r"two\.example resolves to 10\.0\.0\.1"):
            await client.get(f"http://two.example:{server.port}/")
        assert server.connections == 0


@pytest.mark.parametrize(
    "failure", [socket.gaierror(-3, "try again"), UnicodeError("label too long"), [], OSError("no")]
)
async def test_a_failed_look_up_refuses(failure):
    """C127: and it can be told from a forbidden address, since it may work later."""
    async with guarded_client(resolver=answering(failure)) as client:
        with pytest.raises(LookupFailed) as refused:
            await client.get("http://lost.example/")
    assert refused.value.host == "lost.example"


async def test_a_look_up_that_hangs_ends_at_the_connect_timeout():
    async def hanging(_host, _port):
        await asyncio.Event().wait()

    async with guarded_client(resolver=hanging, timeout=0.05) as client:
        with pytest.raises(LookupFailed, match="too long"):
            await client.get("http://slow.example/")


async def test_the_next_address_is_tried_where_one_does_not_answer():
    allowed = parse_networks(["127.0.0.0/8"])
    answers = answering(["127.0.0.9", "127.0.0.1"])
    async with serving() as server, guarded_client(allowed=allowed, resolver=answers) as client:
        response = await client.get(f"http://two.example:{server.port}/")
    assert response.text == "ok"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed_even_where_the_client_asks_for_it(status):
    """C125."""
    async with serving() as target:
        location = f"http://127.0.0.1:{target.port}/latest"
        answer = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        transport = GuardedTransport(allowed=LOOPBACK)
        client = httpx2.AsyncClient(transport=transport, follow_redirects=True, trust_env=False)
        async with serving(answer) as server, client:
            with pytest.raises(RedirectRefused) as refused:
                await client.post(f"http://127.0.0.1:{server.port}/hook", content=b"x")
        assert target.connections == 0
    assert (refused.value.code, refused.value.status) == ("redirect", status)
    assert refused.value.location == location


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    """W5: a proxy would resolve the name itself."""
    async with serving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with guarded_client(resolver=answering(["10.0.0.1"])) as client:
            with pytest.raises(ForbiddenAddress):
                await client.get("http://inner.example/")
        assert proxy.connections == 0


async def test_other_schemes_and_unix_sockets_lead_nowhere():
    async with guarded_client(allowed=LOOPBACK) as client:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await client.get("file:///etc/passwd")
    backend = GuardedTransport()._pool._network_backend
    with pytest.raises(ForbiddenAddress):
        await backend.connect_unix_socket("/run/docker.sock")


async def test_connections_are_used_again_and_every_connection_passes_the_guard():
    """The library's pool takes our network backend; an upgrade that stops doing so fails here."""
    transport = GuardedTransport(allowed=LOOPBACK)
    assert isinstance(transport._pool, httpcore2.AsyncConnectionPool)
    async with serving() as server, httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        for _ in range(3):
            await client.get(f"http://127.0.0.1:{server.port}/")
        assert server.connections == 1


def certificate(tmp_path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS contexts of a server that is called `name` and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / f"{name}.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cadata=signed.public_bytes(serialization.Encoding.PEM).decode())
    return server, client


async def test_tls_checks_the_name_of_the_host_though_the_address_is_pinned(tmp_path):
    """C127."""
    server_tls, client_tls = certificate(tmp_path, "api.example")
    local = answering(["127.0.0.1"])
    async with (
        serving(tls=server_tls) as server,
        guarded_client(allowed=LOOPBACK, resolver=local, verify=client_tls) as client,
    ):
        response = await client.get(f"https://api.example:{server.port}/")
        assert response.text == "ok"
        assert server.server_names == ["api.example"]
        with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate"):
            await client.get(f"https://other.example:{server.port}/")
        assert len(server.heads) == 1


async def test_the_systems_resolver_gives_each_address_once():
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
