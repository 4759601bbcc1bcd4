"""Web addresses as a model writes them, and where a redirect may lead. Pure.

A permission rule reads an address before it is fetched, so rule and request must see the same thing in it. An
address that could be read in two ways (credentials, backslashes, a host in capitals of another script, an IPv4
address in hexadecimal, a path with `..`) is refused with the form to write instead, and the rule decides anew.

For the same reason a redirect is followed only where no rule on hosts could tell the difference: to the same
host at the same port, or from http to https on it. Every other target is told to the model, which may ask for it.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urldefrag, urljoin, urlsplit

import httpx2

from tools_app.outside.limits import MAX_ADDRESS
from tools_app.permissions.hosts import certain_host

_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class BadAddress(ValueError):
    """Not an address that can be fetched; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where an answer points to, and whether going there is still the same request."""

    target: str
    may_follow: bool


def parse(text: str) -> str:
    """The address to ask for, without a fragment; raises `BadAddress`."""
    if len(text) > MAX_ADDRESS:
        raise BadAddress(f"an address has at most {MAX_ADDRESS} characters")
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in text) or "\\" in text:
        raise BadAddress("an address holds no spaces, control characters or backslashes")
    try:
        parts = urlsplit(urldefrag(text).url)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"this is not an address: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise BadAddress("the address must start with http:// or https://")
    if "@" in parts.netloc:
        raise BadAddress("the address must not hold credentials")
    if port == 0:
        raise BadAddress("port 0 can't be reached")
    _check_host(parts)
    if any(unquote(segment) in {".", ".."} for segment in parts.path.split("/")):
        raise BadAddress("write the path without . and .. in it")
    try:
        url = httpx2.URL(parts.geturl())
    except httpx2.InvalidURL as error:
        raise BadAddress(f"this is not an address: {error}") from None
    # What the client connects to, what this parser saw and what a permission rule saw are one.
    if not url.raw_host.decode() == parts.hostname == certain_host(text):
        raise BadAddress("the host of this address can be read in two ways")
    return str(url)


def _check_host(parts: SplitResult) -> None:
    host = parts.hostname
    if not host:
        raise BadAddress("the address has no host")
    if ":" in host:  # a v6 address, in brackets
        _check_ip(host)
        return
    if not host.isascii():
        raise BadAddress("write the host in its ASCII form (xn--…)")
    if host.endswith("."):
        raise BadAddress("write the host without a dot at its end")
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise BadAddress("the host is no name and no address")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        _check_ip(host)


def _check_ip(host: str) -> None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise BadAddress("write the IP address in its usual form") from None
    if str(address) != host or "%" in host:
        raise BadAddress(f"write the IP address as {str(address).partition('%')[0]}")


def redirect(base: str, location: str) -> Redirect:
    """Where `location` leads from the (parsed) address `base`; raises `BadAddress`."""
    try:
        joined = urljoin(base, location)
    except ValueError as error:
        raise BadAddress(f"this is not an address: {error}") from None
    target = parse(joined)
    here, there = urlsplit(base), urlsplit(target)
    same_host = here.hostname == there.hostname
    same_port = here.scheme == there.scheme and _port(here) == _port(there)
    upgraded = (here.scheme, _port(here)) == ("http", 80) and (there.scheme, _port(there)) == ("https", 443)
    return Redirect(target, may_follow=same_host and (same_port or upgraded))


def _port(parts: SplitResult) -> int:
    return parts.port or _DEFAULT_PORTS[parts.scheme]
