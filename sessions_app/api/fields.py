"""The parts of request models: ids, times, actors, labels. Each says what is wrong in one short sentence.

Requests are checked by pydantic, everywhere: a body is a `Body`, query parameters are a `Query`. Both refuse
what they don't know, and mistakes come back with a JSON pointer.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from sessions_app import ids
from sessions_app.agent_config.shape import Part

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Body(Part):
    """A JSON object from a client. Types are not bent: "1" is no number."""

    model_config = ConfigDict(strict=True)


class Query(Part):
    """Query parameters. A misspelled filter is an error: ignoring it would show everything."""

    repeated: ClassVar[frozenset[str]] = frozenset()
    """Parameters that may stand more than once; their fields are lists."""


def reads_id(prefix: str) -> BeforeValidator:
    """Ids of this kind come in as text, and as UUIDs from the path."""

    def read(value: Any) -> Any:
        if isinstance(value, UUID):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError("wrong_type", "must be a string")
        try:
            return ids.decode(prefix, value)
        except ids.InvalidId as error:
            raise PydanticCustomError("malformed", "{reason}", {"reason": str(error)}) from None

    return BeforeValidator(read)


def id_schema(prefix: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": ids.pattern(prefix)})


SessionRef = Annotated[UUID, reads_id("ses"), id_schema("ses")]
InputRef = Annotated[UUID, reads_id("inp"), id_schema("inp")]
ConfigRef = Annotated[UUID, reads_id("cfg"), id_schema("cfg")]


def _read_time(value: Any) -> Any:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and _TIME.fullmatch(value):
        try:
            # In UTC: a year that only an offset makes readable is none that can be stored.
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError("malformed", "must be a time like 2030-01-31T12:00:00Z, with its offset")


Moment = Annotated[
    datetime, BeforeValidator(_read_time), WithJsonSchema({"type": "string", "format": "date-time"})
]


def _visible(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("too_short", "must not be blank")
    return text


Name = Annotated[StrictStr, Field(min_length=1, max_length=100), AfterValidator(_visible)]
"""Of a profile, a key, a secret: something people read."""

Labels = Annotated[
    dict[
        Annotated[StrictStr, Field(min_length=1, max_length=100)], Annotated[StrictStr, Field(max_length=500)]
    ],
    Field(max_length=100),
]


class ActorRef(Body):
    """An external person, as the calling backend names it."""

    id: Annotated[StrictStr, Field(min_length=1, max_length=200)]
    name: Annotated[StrictStr, Field(max_length=200)] = ""
