"""What a client may send over a session's socket, by the frame's type; apps above register theirs.

A handler runs in a thread, under the same rules as the REST call it stands for: it calls the same service, raises
the same errors, and returns what the acknowledgement says.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from sessions_app.access import Access

type Handler = Callable[[Access, UUID | None, dict[str, Any]], Mapping[str, Any]]
"""(who, the session that the socket follows if it is one's, the frame without type and ref) -> the ack's fields."""

_handlers: dict[str, Handler] = {}


def register_frame(kind: str, handler: Handler) -> None:
    """Answer frames of this type with `handler`; in `AppConfig.ready()`."""
    _handlers[kind] = handler


def handler_of(kind: str) -> Handler | None:
    return _handlers.get(kind)


def kinds() -> list[str]:
    """For messages to those who send something else."""
    return sorted(_handlers)
