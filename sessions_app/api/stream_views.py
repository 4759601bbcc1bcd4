"""`GET /sessions/{id}/stream` and `GET /stream`: the feeds as server-sent events.

The first frame is a comment, so that a client knows at once that it is connected. Events carry their cursor as
`id`, which a browser sends back as `Last-Event-ID` when it connects again. What ends a stream is an `error` event;
the stream ends with it.
"""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse

from sessions_app.api import problems
from sessions_app.api.base import async_view
from sessions_app.api.openapi import describe, problem_responses, ref
from sessions_app.api.session_shapes import EntryShape
from sessions_app.api.stream_access import Admission, admit
from sessions_app.api.stream_requests import (
    last_event_id,
    project_query,
    project_source,
    session_query,
    session_source,
)
from sessions_app.api.waiting import give_back
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.follower import CaughtUp, Entries, Event, Follower, Ping, Previewed
from sessions_app.feed.gate import SCOPE_KEY, Gate, SlowConsumer
from sessions_app.feed.hub import hub
from sessions_app.feed.reading import dumps
from sessions_app.feed.sources import Source

MEDIA_TYPE = "text/event-stream"


async def _admit(request: HttpRequest) -> Admission:
    return await sync_to_async(admit)(request, is_socket=False)


@async_view(answers=(MEDIA_TYPE,), authentication=_admit)
async def session_stream(request: HttpRequest, admission: Admission, session: str) -> StreamingHttpResponse:
    query = session_query(request.GET)
    source = await sync_to_async(session_source)(admission, session)
    cursor = last_event_id(request) or query.after
    return await _stream(request, admission, source, cursor, deltas=query.deltas)


@async_view(answers=(MEDIA_TYPE,), authentication=_admit)
async def project_stream(request: HttpRequest, admission: Admission) -> StreamingHttpResponse:
    query = project_query(request.GET)
    only = query.filter()
    source = project_source(admission)
    return await _stream(request, admission, source, last_event_id(request) or query.after, only=only)


async def _stream(
    request: HttpRequest,
    admission: Admission,
    source: Source,
    cursor: str,
    *,
    only: Filter = EVERYTHING,
    deltas: bool = False,
) -> StreamingHttpResponse:
    await give_back()

    def follow(*, deltas: bool = False) -> AbstractAsyncContextManager[Follower]:
        return hub().follow(
            source,
            access=admission.access,
            cursor=cursor,
            only=only,
            login=admission.login,
            deltas=deltas,
        )

    # Once just to see that it can be followed: a wrong cursor is a problem document, not the beginning of a
    # stream. The stream itself begins when the server takes it, which may never happen.
    async with follow():
        pass
    gate: Gate = getattr(request, "scope", {}).get(SCOPE_KEY) or Gate()
    return StreamingHttpResponse(
        _events(functools.partial(follow, deltas=deltas), gate),
        content_type=f"{MEDIA_TYPE}; charset=utf-8",
        headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
    )


async def _events(
    follow: Callable[[], AbstractAsyncContextManager[Follower]], gate: Gate
) -> AsyncIterator[bytes]:
    last = None
    gate.attach()
    try:
        yield b": connected\n\n"
        async with follow() as follower, aclosing(follower.events()) as events:
            async for event in events:
                for text, cursor in _rendered(event):
                    await gate.passable()
                    yield text.encode()
                    last = cursor or last
    except Exception as error:
        problem = problems.explain(error)
        if problem is None:
            raise
        yield _ending(problem, last if isinstance(error, SlowConsumer) else None).encode()
    finally:
        gate.detach()


def _ending(problem: problems.Problem, cursor: str | None) -> str:
    frame = {"type": "error", "code": problem.code, "status": problem.status, "detail": problem.detail}
    if cursor is not None:
        frame["cursor"] = cursor
    return f"event: error\ndata: {dumps(frame)}\n\n"


def _rendered(event: Event) -> list[tuple[str, str | None]]:
    """Texts, and the cursor that a client has who got each."""
    match event:
        case Entries(frames):
            return [(frame.event, frame.cursor) for frame in frames]
        case CaughtUp(cursor):
            frame = dumps({"type": "caught_up", "cursor": cursor})
            return [(f"id: {cursor}\nevent: caught_up\ndata: {frame}\n\n", cursor)]
        case Previewed(frames):
            return [(f"event: delta\ndata: {frame}\n\n", None) for frame in frames]
        case Ping():
            return [(": ping\n\n", None)]


_ENTRY_EVENT = "`id` is the cursor, `event` the kind of the entry, `data` the entry as JSON."


def _described(operation: str, summary: str, text: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    after = {
        "name": "after",
        "in": "query",
        "description": "a cursor: everything behind it, then live. `0` is the beginning, `now` the end",
        "schema": {"type": "string", "maxLength": 1024, "default": "0"},
    }
    browser = [
        {
            "name": "ticket",
            "in": "query",
            "description": "of `POST /tickets`, instead of a key",
            "schema": {"type": "string"},
        },
        {
            "name": "project",
            "in": "query",
            "description": "with a browser session",
            "schema": {"type": "string"},
        },
        {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "where a client that connects again stands; goes before `after`",
            "schema": {"type": "string", "maxLength": 1024},
        },
    ]
    return {
        "operationId": operation,
        "summary": summary,
        "description": text,
        "tags": ["feed"],
        "parameters": [*parameters, after, *browser],
        "responses": {
            "200": {
                "description": "Server-sent events; the data of most is an entry",
                "content": {MEDIA_TYPE: {"schema": ref(EntryShape)}},
            },
            **problem_responses(400, 401, 403, 404, 406, 503),
        },
        "security": [{"apiKey": []}, {"staffSession": []}],
    }


_OTHERS = (
    "Other events are `caught_up` (once: from here on it is live), `delta` and `error`, behind which the stream ends. "
    "The first frame is a comment, and a comment comes every 15 seconds."
)

describe(
    "/api/v1/sessions/{session}/stream",
    "get",
    _described(
        "stream_session",
        "Follow a session",
        f"The log of one session, all branches, from a cursor on and then as it grows. {_ENTRY_EVENT} {_OTHERS}",
        [
            {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}},
            {
                "name": "deltas",
                "in": "query",
                "description": "also previews of replies on their way, which are never saved",
                "schema": {"type": "boolean", "default": False},
            },
        ],
    ),
)
describe(
    "/api/v1/stream",
    "get",
    _described(
        "stream_project",
        "Follow a project",
        f"The entries of all sessions of the project; each session's in order. {_ENTRY_EVENT} {_OTHERS}",
        [
            {
                "name": "kinds",
                "in": "query",
                "description": "kinds of entries, with commas",
                "schema": {"type": "string", "examples": ["turn_ended,approval_requested"]},
            },
            {
                "name": "label",
                "in": "query",
                "description": "key:value of the session; repeated, all must hold",
                "schema": {"type": "array", "items": {"type": "string"}},
            },
            {
                "name": "session",
                "in": "query",
                "description": "ids of sessions, with commas",
                "schema": {"type": "string"},
            },
        ],
    ),
)
