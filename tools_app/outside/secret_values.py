"""A project's secrets for a tool that is about to send them: revealed in a thread, told to nobody."""

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote
from uuid import UUID

import structlog

from sessions_app import secrets
from sessions_app.errors import NotFound
from sessions_app.key_ring import UndecryptableSecret
from tools_app import keeping
from tools_app.results import ToolFailed

logger = structlog.get_logger(__name__)

_FIT_FOR_HEADERS = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
# What is shorter says nothing and stands in every text.
_SHORTEST_HIDDEN = 4


async def header_secret(project: UUID, name: str) -> str:
    """The value of a secret, fit to stand in a header; `ToolFailed` says what an operator has to do."""
    value = (await asyncio.to_thread(keeping.in_thread, _reveal, project, name)).strip()
    if not _FIT_FOR_HEADERS.fullmatch(value):
        raise ToolFailed(
            f"The secret {name!r} holds characters that can't stand in a header; an operator has to store it again."
        )
    return value


def _reveal(project: UUID, name: str) -> str:
    try:
        return secrets.reveal(project, name)
    except NotFound:
        raise ToolFailed(
            f"The secret {name!r} is not stored in this project. An operator has to store it "
            f"(manage.py setsecret, or PUT /api/v1/secrets/{name}); until then this tool can't be used."
        ) from None
    except (UndecryptableSecret, secrets.NoKeyRing) as error:
        logger.warning(
            "tool.secret_not_readable", secret=name, project=str(project), problem=type(error).__name__
        )
        raise ToolFailed(
            f"The secret {name!r} can't be decrypted with the keys of this deployment; an operator has to see to it."
        ) from None


class Hidden:
    """Takes secrets out of what a server says back, in the forms that they may stand there in."""

    def __init__(self, values: Iterable[str]) -> None:
        forms: set[str] = set()
        for value in values:
            forms |= {value, json.dumps(value)[1:-1], quote(value), quote(value, safe="")}
        longest_first = sorted(
            (form for form in forms if len(form) >= _SHORTEST_HIDDEN), key=len, reverse=True
        )
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub("[secret]", text)

    def value(self, value: Any) -> Any:
        """The same JSON value with its texts, names included, hidden; as deep as JSON is read."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(name): self.value(item) for name, item in value.items()}
            case _:
                return value
