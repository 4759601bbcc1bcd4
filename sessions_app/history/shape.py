"""What the readers of all formats share: where results are gathered, and how a field is looked at. Pure."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sessions_app import content as contents
from sessions_app.errors import Invalid
from sessions_app.text import UnstorableJson, clean_json

MAX_MESSAGES = 10_000
MAX_PROBLEMS = 100
"""More mistakes than these are not told: the first ones will do."""

MAX_ID = 500
MAX_NAME = 200
"""Characters of a call's id and of a tool's name."""

type Message = dict[str, Any]
type Block = dict[str, Any]

_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A message in our shape, and the place of the client's message that it was made from."""

    message: Message
    path: str


class Reader:
    """Gathers messages, and mistakes instead of stopping at the first."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self._problems: list[dict[str, str]] = []

    def add(self, message: Message, path: str) -> None:
        self.found.append(Found(message, path))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep an `Invalid` for later."""
        if len(self._problems) >= MAX_PROBLEMS:
            self.raise_problems()
        try:
            yield
        except Invalid as error:
            self._problems += error.errors

    def raise_problems(self) -> None:
        told = self._problems[:MAX_PROBLEMS]
        if told:
            raise Invalid(
                "; ".join(f"{item['path']}: {item['message']}" for item in told)[:2000], errors=told
            )


def invalid(path: str, code: str, message: str) -> Invalid:
    return Invalid(f"{path}: {message}", errors=[{"path": path, "code": code, "message": message}])


def objects(value: Any, path: str) -> list[tuple[dict[str, Any], str]]:
    """The objects of a list, each with its place."""
    if not isinstance(value, list):
        raise invalid(path, "wrong_type", "must be a list")
    if len(value) > contents.MAX_BLOCKS:
        raise invalid(path, "out_of_range", f"must hold at most {contents.MAX_BLOCKS}")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise invalid(f"{path}/{index}", "wrong_type", "must be an object")
    return [(item, f"{path}/{index}") for index, item in enumerate(value)]


def string(value: dict[str, Any], name: str, path: str, *, most: int | None = None) -> str:
    """A text that has to be there."""
    if name not in value:
        raise invalid(f"{path}/{name}", "required", "required")
    text = value[name]
    if not isinstance(text, str):
        raise invalid(f"{path}/{name}", "wrong_type", "must be a string")
    if most is not None and not 0 < len(text) <= most:
        raise invalid(f"{path}/{name}", "out_of_range", f"must have 1 to {most} characters")
    return text


def optional(value: dict[str, Any], name: str, path: str, kind: type, called: str) -> Any:
    """A value that may be missing or null."""
    found = value.get(name)
    if found is not None and not isinstance(found, kind):
        raise invalid(f"{path}/{name}", "wrong_type", f"must be {called} or null")
    return found


def call(value: dict[str, Any], path: str, *, id_: str, name: str, arguments: str) -> Block:
    """A tool call, with its fields under the names that this format gives them."""
    args = value.get(arguments)
    if not isinstance(args, dict | str):
        raise invalid(f"{path}/{arguments}", "wrong_type", "must be an object, or its JSON as a string")
    return {
        "type": "tool_call",
        "id": string(value, id_, path, most=MAX_ID),
        "name": string(value, name, path, most=MAX_NAME),
        "args": _arguments(args),
    }


def _arguments(args: dict[str, Any] | str) -> dict[str, Any] | str:
    """Arguments are an object; text that is none stays as it came."""
    if isinstance(args, dict):
        return args
    if not args.strip():
        return {}
    try:
        value = clean_json(json.loads(args))
    except (ValueError, RecursionError, UnstorableJson):
        return args
    return value if isinstance(value, dict) else args


def result(call_id: str, content: Any, *, name: str | None = None, error: bool = False) -> Message:
    """A tool result; where the tool's name is not known it is the call's."""
    return {
        "role": "tool_result",
        "id": call_id,
        "name": name,
        "error": error,
        "answered": False,
        "content": content,
    }


def assistant(content: list[Block], provider: str | None, *, model: str | None = None) -> Message:
    """A reply whose stop reason nobody noted."""
    return {
        "role": "assistant",
        "content": content,
        "stop": None,
        "error": None,
        "provider": provider,
        "model": model,
    }


def media(value: dict[str, Any], path: str) -> Block:
    """Inline bytes, checked as those of an input are."""
    return contents.parse_block({"type": "media", **value}, path=path)


def data_url(url: Any, path: str) -> Block:
    """The file in a `data:` URL. Nothing is fetched from anywhere."""
    if not isinstance(url, str):
        raise invalid(path, "wrong_type", "must be a string")
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise invalid(path, "not_allowed", "must be a data: URL with base64; files are not fetched")
    try:
        return media({"media_type": match[1], "data": match[2]}, path)
    except Invalid:
        raise invalid(path, "malformed", "must hold base64") from None
