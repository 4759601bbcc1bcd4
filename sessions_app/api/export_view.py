"""`GET /sessions/{id}/export`: the whole session, streamed in chunks of bounded size.

Entries come as JSON lines: first the session, then one entry a line. Messages come as one JSON document that
`POST /sessions` takes as `history`. A plain asynchronous view, because under ASGI a synchronous stream would be
gathered in memory first; each chunk borrows a thread for one short query.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse

from sessions_app import export as exports
from sessions_app.access import Access
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import async_view, checked_query, path_id
from sessions_app.api.openapi import describe, problem_responses
from sessions_app.api.session_requests import ExportQuery

LINES = "application/x-ndjson"
DOCUMENT = "application/json"


@async_view(answers=(LINES, DOCUMENT))
async def export(request: HttpRequest, access: Access, session: str) -> StreamingHttpResponse:
    """The session as it is when this begins."""
    key = path_id("ses", session)
    query = checked_query(ExportQuery, request.GET)
    shape = await _look(_shape, key, access.project.pk)
    if query.format == "messages":
        chunk = await _look(exports.messages, key)
        response = StreamingHttpResponse(_document(chunk), content_type=DOCUMENT)
    else:
        chunk = await _look(exports.entries, key)
        response = StreamingHttpResponse(_lines(shape, chunk), content_type=LINES)
    response.headers["Cache-Control"] = "private, no-store"
    ending = "json" if query.format == "messages" else "jsonl"
    response.headers["Content-Disposition"] = f'attachment; filename="{shape["id"]}.{ending}"'
    return response


async def _lines(shape: shapes.SessionShape, chunk: exports.Chunk) -> AsyncIterator[bytes]:
    yield _encoded({"type": "session", "session": shape}) + b"\n"
    while rows := await _look(chunk):
        yield b"".join(_encoded({"type": "entry", "entry": shapes.entry(row)}) + b"\n" for row in rows)


async def _document(chunk: exports.Chunk) -> AsyncIterator[bytes]:
    yield b'{"format":"tenure","messages":['
    separator = b""
    while messages := await _look(chunk):
        yield separator + b",\n".join(_encoded(message) for message in messages)
        separator = b",\n"
    yield b"]}\n"


def _encoded(value: Any) -> bytes:
    return json.dumps(value, cls=DjangoJSONEncoder, separators=(",", ":")).encode()


async def _look(function: Callable[..., Any], *args: Any) -> Any:
    def look() -> Any:
        try:
            return function(*args)
        finally:
            # A slow reader holds no connection between two chunks.
            if not connection.in_atomic_block:
                connection.close()

    return await sync_to_async(look)()


def _shape(session: UUID, project: UUID) -> shapes.SessionShape:
    return shapes.session(shapes.session_row(session, project=project))


describe(
    "/api/v1/sessions/{session}/export",
    "get",
    {
        "operationId": "export_session",
        "summary": "Export a session",
        "description": "As JSON lines: `{type: session, session}`, then `{type: entry, entry}` for each entry, "
        "those that a fork inherits first. With `format=messages` one document `{format: tenure, messages}` of "
        "the current branch, which `history` of a new session takes. Streamed; of any length.",
        "tags": ["sessions"],
        "parameters": [
            {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}},
            {
                "name": "format",
                "in": "query",
                "schema": {"type": "string", "enum": ["entries", "messages"], "default": "entries"},
            },
        ],
        "responses": {
            "200": {
                "description": "OK",
                "content": {
                    LINES: {"schema": {"type": "string"}},
                    DOCUMENT: {
                        "schema": {
                            "type": "object",
                            "properties": {
                                "format": {"const": "tenure"},
                                "messages": {"type": "array", "items": {"type": "object"}},
                            },
                            "required": ["format", "messages"],
                        }
                    },
                },
            },
            **problem_responses(400, 401, 404, 503),
        },
        "security": [{"apiKey": []}, {"staffSession": []}],
    },
)
