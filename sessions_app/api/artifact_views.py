"""`/artifacts`: files in, files out.

Uploads are streamed to the storage and cut off at the size limit. Downloads are always attachments of the type
that was stored, never sniffed and never run: a file from an agent must not become a page of this site.
"""

import asyncio
import hashlib
import io
import re
from collections.abc import AsyncIterator, Iterator
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, cast
from uuid import UUID

from django.conf import settings
from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.utils.http import content_disposition_header
from pydantic import Field
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import artifacts, idempotency
from sessions_app.api import shapes
from sessions_app.api.base import ApiView, checked
from sessions_app.api.fields import Body, Query
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import PageQuery, page
from sessions_app.api.parsers import refuse_encoded
from sessions_app.artifacts import ArtifactTooLarge
from sessions_app.errors import Invalid, TenureError
from sessions_app.idempotency import Answer
from sessions_app.models import Artifact

_CHUNK = 256 * 1024
_FORM = "multipart/form-data"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_BYTES = {"type": "string", "format": "binary"}


class RangeNotSatisfiable(TenureError):
    """The artifact has no such bytes."""

    code = "range_not_satisfiable"
    status = 416


class UploadQuery(Query):
    name: Annotated[str, Field(max_length=1000, description="of a raw body")] | None = None


class UploadForm(Body):
    name: Annotated[str, Field(max_length=1000)] | None = None


class _Limit(TemporaryFileUploadHandler):
    """Ends an upload at the size limit, while it arrives."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        self._left: int = settings.TENURE.max_artifact_bytes

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        self._left -= len(raw_data)
        if self._left < 0:
            raise _too_large()
        return raw_data

    def file_complete(self, file_size: int) -> None:
        """The handlers behind this one keep the bytes."""

    def upload_interrupted(self) -> None:
        """Nothing was kept here."""


class ArtifactsView(ApiView):
    parser_classes = [MultiPartParser]

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        # Before anything reads the form; the CSRF check of a browser session does.
        request.upload_handlers = [
            _Limit(request),
            MemoryFileUploadHandler(request),
            TemporaryFileUploadHandler(request),
        ]
        return super().initialize_request(request, *args, **kwargs)

    @operation(
        "create_artifact",
        "Upload a file",
        tag="artifacts",
        body={
            _FORM: {
                "type": "object",
                "properties": {"file": _BYTES, "name": {"type": "string"}},
                "required": ["file"],
            },
            "application/octet-stream": _BYTES,
        },
        query=UploadQuery,
        answers={201: shapes.ArtifactShape},
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """A form with `file` and perhaps `name`, or the bytes themselves with their `Content-Type` and `?name=`."""
        refuse_encoded(request)
        media_type = request.content_type or ""
        if media_type.partition(";")[0].strip().lower() == _FORM:
            name, media_type, data = self._form(request)
        else:
            name, media_type, data = self._raw(request, media_type)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return self.once(lambda: self._store(name, media_type, data))
        with SpooledTemporaryFile(max_size=_CHUNK) as spool:
            digest = _copy(data, spool)
            asked = idempotency.fingerprint(name, media_type, digest)
            return self.once(lambda: self._store(name, media_type, cast("IO[bytes]", spool)), request=asked)

    @operation(
        "list_artifacts",
        "List files",
        tag="artifacts",
        query=PageQuery,
        answers={200: page_of(shapes.ArtifactShape)},
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        rows = Artifact.objects.filter(project_id=self.project)
        return Response(page(rows, self.query(PageQuery), shapes.artifact, name="artifacts"))

    def _store(self, name: str, media_type: str, data: IO[bytes]) -> Answer:
        row = artifacts.store(project=self.project, name=name, media_type=media_type, data=data)
        row.refresh_from_db(fields=["created_at"])
        return Answer(201, shapes.artifact(row))

    def _raw(self, request: Request, media_type: str) -> tuple[str, str, IO[bytes]]:
        if not media_type or media_type.startswith("application/x-www-form-urlencoded"):
            raise UnsupportedMediaType(media_type)
        stream = request.stream
        if int(request.META.get("CONTENT_LENGTH") or 0) > settings.TENURE.max_artifact_bytes:
            raise _too_large()
        data = cast("IO[bytes]", io.BytesIO() if stream is None else stream)
        return self.query(UploadQuery).name or "file", media_type, data

    def _form(self, request: Request) -> tuple[str, str, IO[bytes]]:
        given = cast("QueryDict", request.data)
        file = request.FILES.get("file")
        if file is None or len(request.FILES.getlist("file")) > 1:
            item = {"path": "/file", "code": "required", "message": "one file is needed, in the part `file`"}
            raise Invalid("/file: one file is needed", errors=[item])
        form = checked(UploadForm, {key: value for key, value in given.items() if key != "file"})
        media_type = file.content_type or "application/octet-stream"
        return form.name or file.name or "file", media_type, cast("IO[bytes]", file)


class ArtifactView(ApiView):
    path_ids = {"artifact": "art"}

    @operation(
        "get_artifact",
        "Read about a file",
        tag="artifacts",
        answers={200: shapes.ArtifactShape},
        errors=[404],
    )
    def get(self, request: Request, artifact: UUID) -> Response:
        """Its bytes are at `/content`."""
        return Response(shapes.artifact(artifacts.get(project=self.project, artifact=artifact)))


class ArtifactContentView(ApiView):
    path_ids = {"artifact": "art"}

    @operation(
        "get_artifact_content",
        "Download a file",
        tag="artifacts",
        answers={200: _BYTES, 206: _BYTES, 304: None},
        errors=[404, 416],
    )
    def get(self, request: Request, artifact: UUID) -> HttpResponseBase:
        """With an `ETag`; understands `If-None-Match`, `If-Range` and `Range` with one range."""
        plain = request._request  # noqa: SLF001 - DRF's only way to Django's request
        return content(plain, artifacts.get(project=self.project, artifact=artifact))


def content(request: HttpRequest, row: Artifact) -> HttpResponseBase:
    """The bytes of an artifact that the caller may see, as the request's headers ask for them."""
    etag = f'"{row.sha256}"'
    if _names(request.headers.get("If-None-Match"), etag):
        return HttpResponse(status=304, headers={"ETag": etag})
    first, last = 0, row.size - 1
    part = _range(request, row.size, etag)
    if part is not None:
        first, last = part
    length = last - first + 1
    body: Any = ()
    if request.method != "HEAD" and length > 0:
        opened = artifacts.open_artifact(row)
        opened.seek(first)
        chunks = _LateChunks if isinstance(request, ASGIRequest) else _Chunks
        body = chunks(opened, length)
    response = StreamingHttpResponse(body, status=200 if part is None else 206, content_type=row.media_type)
    response.headers["Content-Length"] = str(length)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    response.headers["Content-Disposition"] = (
        content_disposition_header(as_attachment=True, filename=row.name) or "attachment"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    if part is not None:
        response.headers["Content-Range"] = f"bytes {first}-{last}/{row.size}"
    return response


def _too_large() -> ArtifactTooLarge:
    limit: int = settings.TENURE.max_artifact_bytes
    return ArtifactTooLarge(f"an artifact has at most {limit} bytes", limit=limit)


def _copy(data: IO[bytes], spool: IO[bytes]) -> str:
    digest = hashlib.sha256()
    left: int = settings.TENURE.max_artifact_bytes
    while chunk := data.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            raise _too_large()
        digest.update(chunk)
        spool.write(chunk)
    spool.seek(0)
    return digest.hexdigest()


def _names(header: str | None, etag: str) -> bool:
    if header is None:
        return False
    return any(part.strip().removeprefix("W/") in {etag, "*"} for part in header.split(","))


def _range(request: HttpRequest, size: int, etag: str) -> tuple[int, int] | None:
    """The first and last byte asked for; None for the whole. Other units and several ranges: the whole."""
    match = _RANGE.fullmatch(request.headers.get("Range", "").replace(" ", ""))
    if match is None or match[0] == "bytes=-" or request.headers.get("If-Range", etag) != etag:
        return None
    if not match[1]:
        first, last = max(0, size - int(match[2])), size - 1
    else:
        first, last = int(match[1]), min(size - 1, int(match[2] or size - 1))
        if match[2] and int(match[2]) < first:
            return None
    if first > last:
        raise RangeNotSatisfiable(size=size)
    return first, last


class _Part:
    """The next `length` bytes of an open file, which is closed with the answer, read or not."""

    def __init__(self, opened: IO[bytes], length: int) -> None:
        self.opened = opened
        self.left = length

    def read(self) -> bytes:
        chunk = self.opened.read(min(_CHUNK, self.left)) if self.left > 0 else b""
        self.left -= len(chunk)
        return chunk

    def close(self) -> None:
        self.opened.close()


class _Chunks(_Part):
    def __iter__(self) -> Iterator[bytes]:
        while chunk := self.read():
            yield chunk


class _LateChunks(_Part):
    """For ASGI, which would gather a plain iterator in memory first."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await asyncio.to_thread(self.read):
            yield chunk
