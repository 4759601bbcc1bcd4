"""A transcript as a client sends it, checked and brought into one shape. Pure.

Three formats. `tenure` is the message shape of `sessions_app.engine.resume`, strictly, as an export gives it;
`openai` are messages of Chat Completions or input items of Responses, also mixed; `anthropic` are messages of
the Messages API. The foreign ones carry much that means nothing here, so fields that are not known are passed
over; roles and kinds of content that are not known are errors, because leaving them out would change what was
said. Every mistake names its place, as in `/history/messages/3/content/0`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.errors import Invalid
from sessions_app.history import anthropic, openai, tenure
from sessions_app.history.shape import MAX_MESSAGES, Found, Reader

PATH = "/history/messages"

_FORMATS: Mapping[str, Callable[[Reader, Any, str], None]] = {
    "tenure": tenure.read,
    "openai": openai.read,
    "anthropic": anthropic.read,
}
FORMATS = tuple(_FORMATS)


@dataclass(frozen=True, slots=True)
class History:
    """A transcript that was read: its messages, and the place that each one came from."""

    format: str
    found: tuple[Found, ...]


def parse(format: str, messages: Any) -> History:  # noqa: A002 - the name of the field
    """Read a transcript; `Invalid` with all mistakes and their places."""
    read = _FORMATS.get(format)
    if read is None:
        raise _invalid("/history/format", "not_allowed", f"must be one of {', '.join(FORMATS)}")
    if not isinstance(messages, list):
        raise _invalid(PATH, "wrong_type", "must be a list of messages")
    if not 0 < len(messages) <= MAX_MESSAGES:
        raise _invalid(PATH, "out_of_range", f"must hold 1 to {MAX_MESSAGES} messages")
    reader = Reader()
    for index, message in enumerate(messages):
        path = f"{PATH}/{index}"
        with reader.collecting():
            if not isinstance(message, dict):
                raise _invalid(path, "wrong_type", "must be an object")
            read(reader, message, path)
    reader.raise_problems()
    return History(format, tuple(reader.found))


def _invalid(path: str, code: str, message: str) -> Invalid:
    return Invalid(f"{path}: {message}", errors=[{"path": path, "code": code, "message": message}])
