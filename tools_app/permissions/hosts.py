"""The host of a URL, as every program reads it or as some program might. Pure.

A browser, an HTTP client and Python's own parser disagree about URLs that are written to fool one of them: with a
backslash, a name in front of an @, blanks, an address written as one number, letters that look like others.
`certain_host` is the host of a URL that leaves no room for that, which is what an allow takes; `possible_hosts` are
all that any of them could see, for a deny or an ask.
"""

import contextlib
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from tools_app.permissions.matching import Match

MAX_READ = 8192
"""Characters. A longer URL is not read: it is never allowed by its host, and could have any."""

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_PLAIN = re.compile(
    rf"https?://(?:(?P<name>(?:{_LABEL}\.)*{_LABEL})\.?|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::[0-9]{{1,5}})?"
    r"(?:[/?#](?P<rest>.*))?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_UNCLEAR = re.compile(r"[\\\s\x00-\x20\x7f-\x9f]")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.ASCII | re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:[/\\]*|[/\\]+", re.IGNORECASE)
_ENDS = (re.compile(r"[/?#]"), re.compile(r"[/?#\\]"))
_INSIDE = re.compile(r"[@\\;,!]")
_REMOVED = re.compile(r"[\t\r\n]")
_DOTS = str.maketrans({"。": ".", "．": ".", "｡": "."})
_MAX_NAME = 253
_MAX_SCHEMES = 4


def on_host(url: str, hosts: Iterable[str]) -> Match:
    """Whether the URL's host is one of `hosts`; `*.example.com` stands for all names below it."""
    wanted = _wanted(tuple(hosts))
    certain = certain_host(url)
    if certain is not None and wanted.has(certain):
        return Match.YES
    if len(url) > MAX_READ or any(map(wanted.has, possible_hosts(url))):
        return Match.MAYBE
    return Match.NO


@dataclass(frozen=True, slots=True)
class _Wanted:
    names: frozenset[str]
    endings: tuple[str, ...]

    def has(self, host: str) -> bool:
        return host in self.names or (host.endswith(self.endings) and not host.startswith("."))


@lru_cache(maxsize=4096)
def _wanted(patterns: tuple[str, ...]) -> _Wanted:
    endings = tuple(pattern[1:] for pattern in patterns if pattern.startswith("*."))
    names = (pattern for pattern in patterns if not pattern.startswith("*."))
    return _Wanted(frozenset(_address(name, version=6) or name for name in names), endings)


@lru_cache(maxsize=256)
def certain_host(url: str) -> str | None:
    """The host in lower case, of an http(s) URL that all programs read alike; None for every other text."""
    found = _PLAIN.fullmatch(url)
    if len(url) > MAX_READ or found is None or _UNCLEAR.search(url):
        return None
    if found["v6"] is not None:
        return _address(found["v6"], version=6)
    name = found["name"].lower()
    if len(name) > _MAX_NAME:
        return None
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _address(name, version=4)  # where the last label is a number, all of it must be an address
    return name


@lru_cache(maxsize=256)
def possible_hosts(text: str) -> Collection[str]:
    """Every host that a program might see in this text, of at most `MAX_READ` characters."""
    found: set[str] = set()
    stripped = "".join(character for character in text if character > " " and character != "\x7f")
    readings = (text.strip(), _REMOVED.sub("", text).strip(), stripped)
    for reading in dict.fromkeys((*readings, *map(unquote, readings))):
        for rest in _without_schemes(reading):
            for end in _ENDS:
                authority = end.split(rest, maxsplit=1)[0]
                for part in _INSIDE.split(authority):
                    found |= _spellings(part)
    return found


def _without_schemes(text: str) -> list[str]:
    """As it stands, and behind each scheme: of `view-source:http://host` it is the second that leads somewhere."""
    found = [text]
    while len(found) <= _MAX_SCHEMES and (scheme := _SCHEME.match(found[-1])):
        found.append(found[-1][scheme.end() :])
    return found


def _spellings(part: str) -> set[str]:
    """A host with what may stand around it, in the forms that it is looked up under."""
    found: set[str] = set()
    for text in dict.fromkeys((part, unquote(part))):
        bare = text.strip().strip("[]").partition("%")[0]
        for name in dict.fromkeys((bare, text.partition(":")[0], text.rpartition(":")[0].strip("[]"))):
            found |= _looked_up(name)
    return found - {""}


def _looked_up(name: str) -> set[str]:
    folded = unicodedata.normalize("NFKC", name.translate(_DOTS)).translate(_DOTS).casefold()
    lowered = unicodedata.normalize("NFKC", name.translate(_DOTS)).translate(_DOTS).lower()
    found = {folded.strip("."), lowered.strip(".")}
    for text in list(found):
        visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
        found |= {visible, ".".join(map(_punycode, visible.split(".")))}
    for text in list(found):
        with contextlib.suppress(OSError, ValueError):
            found.add(socket.inet_ntoa(socket.inet_aton(text)))
        address = _address(text, version=6)
        if address is not None:
            found.add(address)
            mapped = ipaddress.IPv6Address(address).ipv4_mapped
            found |= {str(mapped)} if mapped else set()
    return found


def _punycode(label: str) -> str:
    if label.isascii():
        return label
    try:
        return "xn--" + label.encode("punycode").decode("ascii")
    except UnicodeError:
        return label


def _address(text: str, *, version: int) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if address.version != version or "%" in text:
        return None
    return str(address)
