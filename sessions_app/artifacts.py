"""Artifacts: files in Django's storage, each with a row that names its project (S8).

The bytes lie under their SHA-256, so the same file is stored once per project, and a file whose row was lost
to a crash is found again by the next one. A file of the right name but the wrong size was cut off while it was
written; it is left alone and the bytes get a name of their own.

The storage is no part of any transaction: `store` writes the bytes first and the row afterwards.
"""

import hashlib
import re
from tempfile import SpooledTemporaryFile
from typing import IO
from uuid import UUID

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage

from sessions_app.errors import Invalid, NotFound, TenureError
from sessions_app.models import Artifact
from sessions_app.text import clean_text

_CHUNK = 1 << 20
_MEDIA_TYPE = re.compile(
    r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}(\s*;[\x20-\x7e]{1,100})?", re.IGNORECASE | re.ASCII
)
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f]")


class ArtifactTooLarge(TenureError):
    """The file is larger than this deployment takes."""

    code = "artifact_too_large"
    status = 413


def store(*, project: UUID, name: str, media_type: str, data: bytes | IO[bytes]) -> Artifact:
    """Keep a file. Raises `ArtifactTooLarge`, or `Invalid` for a media type that is none.

    `data` may be a stream; it is read once, in pieces. The last part of `name` is kept, for people.
    """
    if not _MEDIA_TYPE.fullmatch(media_type):
        path = {"path": "/media_type", "code": "malformed", "message": "expected a media type like image/png"}
        raise Invalid("not a media type", errors=[path])
    with SpooledTemporaryFile(max_size=_CHUNK) as spool:
        digest, size = _copy(data, spool)
        storage_name = _write(f"{project.hex}/{digest[:2]}/{digest}", File(spool), size)
    return Artifact.objects.create(
        project_id=project,
        name=_label(name),
        media_type=media_type,
        size=size,
        sha256=digest,
        storage_name=storage_name,
    )


def get(*, project: UUID, artifact: UUID) -> Artifact:
    """The artifact's row; `NotFound` also where it is another project's."""
    row = Artifact.objects.filter(pk=artifact, project_id=project).first()
    if row is None:
        raise NotFound("no such artifact")
    return row


def find(project: UUID, artifact: UUID) -> Artifact | None:
    """The artifact, if the project has it and the storage still has its bytes."""
    row = Artifact.objects.filter(pk=artifact, project_id=project).first()
    return row if row is not None and default_storage.exists(row.storage_name) else None


def read(artifact: Artifact) -> bytes:
    """All of its bytes; at most `max_artifact_bytes`."""
    with open_artifact(artifact) as opened:
        data: bytes = opened.read()
    return data


def open_artifact(artifact: Artifact) -> "File[bytes]":
    """The bytes, as a file that can be read from any place; `NotFound` if the storage lost them."""
    try:
        opened: File[bytes] = default_storage.open(artifact.storage_name)
    except FileNotFoundError:
        raise NotFound("the bytes of this artifact are gone") from None
    return opened


def _copy(data: bytes | IO[bytes], spool: IO[bytes]) -> tuple[str, int]:
    limit: int = settings.TENURE.max_artifact_bytes
    digest = hashlib.sha256()
    size = 0
    view = memoryview(data) if isinstance(data, bytes) else None
    while True:
        chunk = data.read(_CHUNK) if view is None else view[size : size + _CHUNK]  # type: ignore[union-attr]
        if not chunk:
            break
        size += len(chunk)
        if size > limit:
            raise ArtifactTooLarge(f"an artifact has at most {limit} bytes", limit=limit)
        digest.update(chunk)
        spool.write(chunk)
    spool.seek(0)
    return digest.hexdigest(), size


def _write(name: str, content: "File[bytes]", size: int) -> str:
    if default_storage.exists(name) and default_storage.size(name) == size:
        return name
    return default_storage.save(name, content)


def _label(name: str) -> str:
    last = re.split(r"[/\\]", clean_text(name))[-1]
    return _NOT_IN_NAMES.sub("", last).strip()[:255] or "file"
