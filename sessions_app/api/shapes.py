"""What clients see: one typed dict per shape, and one plain function per row that makes it.

The OpenAPI document is generated from the types, the answers from the functions, and mypy holds the two
together. No serializer runs per object: lists are hot read paths.
"""

import functools
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import Field, WithJsonSchema

from sessions_app import ids
from sessions_app.models import AgentConfig, AgentProfile, ApiKey, Artifact, ProfileVersion, Project, Secret

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Money = Annotated[str, Field(description="USD, a decimal string", examples=["0.0123"])]


def id_field(prefix: str) -> Any:
    """An id of this kind, for a shape."""
    return Field(pattern=ids.pattern(prefix))


SessionId = Annotated[str, id_field("ses")]
EntryId = Annotated[str, id_field("ent")]
TurnId = Annotated[str, id_field("trn")]
InputId = Annotated[str, id_field("inp")]
ConfigId = Annotated[str, id_field("cfg")]
ProfileId = Annotated[str, id_field("prf")]
ArtifactId = Annotated[str, id_field("art")]
KeyId = Annotated[str, id_field("key")]
ProjectId = Annotated[str, id_field("prj")]


class ErrorItem(TypedDict):
    """One thing wrong with a request; `path` is a JSON pointer into the body, or the name of a parameter."""

    path: str
    code: str
    message: str


class ProblemShape(TypedDict):
    """RFC 9457. `current` comes with 409: the object as it is, or null. Some codes bring further members."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    errors: list[ErrorItem]
    current: NotRequired[Any]


class ProjectRef(TypedDict):
    id: ProjectId
    name: str


class KeyRef(TypedDict):
    id: KeyId
    name: str
    prefix: str


class Me(TypedDict):
    """Who is asking; `key` is null for a staff member's browser session."""

    project: ProjectRef
    key: KeyRef | None
    role: str


class Key(TypedDict):
    """An API key. Its text is never shown again; `prefix` is the part that tells which one it is."""

    id: KeyId
    name: str
    role: str
    prefix: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None


class NewKey(Key):
    """The answer to the creation of a key, the only one with its `secret`."""

    secret: str


class Warned(TypedDict):
    """A name in a config that this deployment lacks."""

    path: str
    code: str
    message: str


class Config(TypedDict):
    """An immutable agent config. `document` has its short forms expanded and no defaults filled in."""

    id: ConfigId
    document: dict[str, Any]
    warnings: list[Warned]
    created_at: Time


class Profile(TypedDict):
    """A named pointer to a config; `version` counts its moves."""

    id: ProfileId
    name: str
    config: ConfigId
    version: int
    created_at: Time
    updated_at: Time


class ActorShape(TypedDict):
    """Who did it; `kind` is user, key, external or system."""

    kind: str
    id: str
    name: str


class ProfileVersionShape(TypedDict):
    version: int
    config: ConfigId
    actor: ActorShape
    created_at: Time


class ArtifactShape(TypedDict):
    id: ArtifactId
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: Time


class SecretShape(TypedDict):
    """A secret's name. Its value is never returned."""

    name: str
    created_at: Time
    updated_at: Time


def time(value: datetime) -> str:
    """RFC 3339 in UTC, with microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def time_or_none(value: datetime | None) -> str | None:
    return None if value is None else time(value)


def money(value: Decimal | None) -> str | None:
    """A decimal string without an exponent; null where a price is not known."""
    if value is None:
        return None
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


@functools.singledispatch
def shape_of(row: Any) -> Any:
    """The shape of a row, for `current` in conflicts; each resource registers its own."""
    raise TypeError(f"{type(row).__name__} has no shape in the API")


def project_ref(project: Project) -> ProjectRef:
    return {"id": ids.encode("prj", project.pk), "name": project.name}


def key_ref(row: ApiKey) -> KeyRef:
    return {"id": ids.encode("key", row.pk), "name": row.name, "prefix": row.prefix}


@shape_of.register
def key(row: ApiKey) -> Key:
    return {
        "id": ids.encode("key", row.pk),
        "name": row.name,
        "role": row.role,
        "prefix": row.prefix,
        "created_at": time(row.created_at),
        "expires_at": time_or_none(row.expires_at),
        "revoked_at": time_or_none(row.revoked_at),
    }


def config(row: AgentConfig, *, warnings: list[Warned]) -> Config:
    return {
        "id": ids.encode("cfg", row.pk),
        "document": row.document,
        "warnings": warnings,
        "created_at": time(row.created_at),
    }


@shape_of.register
def profile(row: AgentProfile) -> Profile:
    return {
        "id": ids.encode("prf", row.pk),
        "name": row.name,
        "config": ids.encode("cfg", row.config_id),
        "version": row.version,
        "created_at": time(row.created_at),
        "updated_at": time(row.updated_at),
    }


def profile_version(row: ProfileVersion) -> ProfileVersionShape:
    return {
        "version": row.version,
        "config": ids.encode("cfg", row.config_id),
        "actor": row.actor,
        "created_at": time(row.created_at),
    }


@shape_of.register
def artifact(row: Artifact) -> ArtifactShape:
    return {
        "id": ids.encode("art", row.pk),
        "name": row.name,
        "media_type": row.media_type,
        "size": row.size,
        "sha256": row.sha256,
        "created_at": time(row.created_at),
    }


@shape_of.register
def secret(row: Secret) -> SecretShape:
    return {"name": row.name, "created_at": time(row.created_at), "updated_at": time(row.updated_at)}
