"""Reading a JSON body strictly: what two readers could understand differently is refused with its place.

Refused are duplicate keys, NaN and Infinity (also as 1e999), more than 200 levels, more digits than a number
may have, more bytes than `TENURE_MAX_BODY_BYTES`, and text that is not UTF-8. What PostgreSQL can't store
(U+0000, lone surrogates) is replaced here, once, for every resource (S8).
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser

from sessions_app.errors import Invalid, TenureError
from sessions_app.text import UnstorableJson, clean_json, json_pointer

_TOO_MANY_DIGITS = "a number has more digits than can be read"


class Malformed(Invalid):
    """The body is not JSON. `line` and `column` count from 1, where they are known."""

    code = "malformed"


class BodyTooLarge(TenureError):
    """The body is larger than this deployment takes."""

    code = "too_large"
    status = 413


class StrictJSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        del media_type
        refuse_encoded((parser_context or {}).get("request"))
        length = (parser_context or {}).get("length")
        return loads(read_limited(stream, length=length))


def refuse_encoded(request: Any) -> None:
    """A compressed body would be taken for what it is not."""
    encoding = "" if request is None else request.headers.get("Content-Encoding", "")
    if encoding.strip().lower() not in {"", "identity"}:
        raise UnsupportedMediaType("", detail="Bodies are read without any Content-Encoding.")


def read_limited(stream: IO[Any], *, length: int | None = None) -> bytes:
    """The whole body; `BodyTooLarge` without reading more than the limit."""
    limit: int = settings.TENURE.max_body_bytes
    too_large = BodyTooLarge(f"a body has at most {limit} bytes", limit=limit)
    if length is not None and length > limit:
        raise too_large
    data: bytes = stream.read(limit + 1)
    if len(data) > limit:
        raise too_large
    return data


def loads(data: bytes) -> Any:
    """JSON types that can be stored as they are; raises `Malformed` or `UnstorableJson`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _malformed(f"not UTF-8 at byte {error.start}", code="not_utf8") from None
    doubled: list[_Doubled] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        doubled.append(_Doubled(pairs))
        return doubled[-1]

    try:
        value = json.loads(text, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        message = f"{error.msg} (line {error.lineno}, column {error.colno})"
        raise _malformed(message, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise _malformed("nested too deeply", code="too_deep") from None
    except ValueError:  # the interpreter's own limit on the digits of an integer
        raise _malformed(_TOO_MANY_DIGITS, code="too_many_digits") from None
    if doubled:
        where = _path_to(value, doubled[0]) or ()
        name = doubled[0].name
        error_item = {
            "path": json_pointer((*where, name)),
            "code": "duplicate_key",
            "message": "stands twice in one object",
        }
        raise Malformed(f"the key {name!r} stands twice in one object", errors=[error_item])
    try:
        return clean_json(value)
    except UnstorableJson as error:
        # One code for what was wrong with the whole body, another for what was wrong at this place.
        raise Invalid(error.detail, errors=error.errors) from None


class _Doubled(dict[str, Any]):
    """An object in which a key stands twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        # Counted in one pass: a body of a few megabytes may hold a million keys.
        times = Counter(name for name, _ in pairs)
        self.name = next(name for name, _ in pairs if times[name] > 1)


def _path_to(value: Any, wanted: object) -> tuple[str | int, ...] | None:
    """Without recursion: the body may be as deep as the decoder could go."""
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        item, path = waiting.pop()
        if item is wanted:
            return path
        if isinstance(item, dict):
            waiting += [(child, (*path, name)) for name, child in item.items()]
        elif isinstance(item, list):
            waiting += [(child, (*path, place)) for place, child in enumerate(item)]
    return None


def _malformed(message: str, *, code: str = "malformed", **data: Any) -> Malformed:
    return Malformed(message, errors=[{"path": "", "code": code, "message": message}], **data)
