"""The URL of an HTTP tool, with a call's arguments in their places. Pure.

What a model writes stays inside the place that the template gives it: it is percent-encoded, it can't climb out of
its part of the path, and the host is the template's. Arguments that the template does not name are left over, for
the query or the body.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

from sessions_app.agent_config.tools import placeholders

MAX_URL = 8000

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_SEPARATOR = re.compile(r"[/\\]")


class BadArgument(ValueError):
    """An argument can't stand where the URL takes it; the message is for the model."""


def fill(template: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The URL, and the arguments that it does not name; raises `BadArgument`."""
    address, mark, query = template.partition("?")
    path = "/".join(_segment(segment, arguments) for segment in address.split("/"))
    filled = path + mark + _PLACE.sub(lambda place: quote(_text(place[1], arguments), safe=""), query)
    if len(filled) > MAX_URL:
        raise BadArgument("with these arguments the URL becomes too long")
    named = set(placeholders(template))
    return filled, {name: value for name, value in arguments.items() if name not in named}


def _segment(segment: str, arguments: Mapping[str, Any]) -> str:
    if not _PLACE.search(segment):
        return segment
    filled = _PLACE.sub(lambda place: quote(_in_path(place[1], arguments), safe=""), segment)
    # Also servers that decode before they split, or cut off what is behind a semicolon, must not be led elsewhere.
    if any(part.partition(";")[0] in {".", ".."} for part in _SEPARATOR.split(unquote(filled))):
        raise BadArgument("an argument in the path must not lead to another place (. or ..)")
    return filled


def _in_path(name: str, arguments: Mapping[str, Any]) -> str:
    text = _text(name, arguments)
    if not text:
        raise BadArgument(f"{name} stands in the path and must not be empty")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise BadArgument(f"{name} stands in the path and must not hold control characters")
    return text


def _text(name: str, arguments: Mapping[str, Any]) -> str:
    value = arguments.get(name)
    if value is None:
        raise BadArgument(f"{name} is missing: it stands in the URL")
    if isinstance(value, dict | list):
        raise BadArgument(f"{name} stands in the URL and must be a single value")
    return _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def with_query(url: str, arguments: Mapping[str, Any]) -> str:
    """The URL with arguments in its query: lists repeat their name, objects are JSON, null is left out."""
    pairs = [
        (name, _plain(item))
        for name, value in arguments.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    if not pairs:
        return url
    longer = f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}"
    if len(longer) > MAX_URL:
        raise BadArgument("with these arguments the URL becomes too long")
    return longer
