"""`GET /sessions/{id}/wait`: a long poll that waits on the event loop and holds no database connection.

It subscribes before it looks, so nothing that happens between the two is missed, and looks again whenever the
session's log grows. Each look borrows one of a few threads for one short query and gives its database
connection back, so any number of clients can wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, JsonResponse

from sessions_app import wakeups
from sessions_app.access import Access
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import async_view, checked_query, path_id
from sessions_app.api.openapi import describe, problem_responses, ref
from sessions_app.api.session_requests import WaitQuery
from sessions_app.errors import NotFound
from sessions_app.models import Session, SessionStatus

FALLBACK_POLL = 5.0
CLAIM_POLL = 1.0
"""Seconds. A claim rings no bell, so whoever waits for `running` looks more often."""

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="wait")


@async_view()
async def wait(request: HttpRequest, access: Access, session: str) -> JsonResponse:
    """The session as soon as its status is one of `for`, or as it is after `timeout` seconds."""
    key = path_id("ses", session)
    query = checked_query(WaitQuery, request.GET)
    # Authentication used this request's own thread; its connection would be held as long as the request.
    await sync_to_async(_give_back)()
    until = asyncio.get_running_loop().time() + min(query.timeout, settings.TENURE.wait_max)
    poll = CLAIM_POLL if SessionStatus.RUNNING in query.statuses else FALLBACK_POLL
    bell = _Bell(key)
    try:
        while True:
            bell.clear()
            status = await _look(_status, key, access.project.pk)
            left = until - asyncio.get_running_loop().time()
            if status in query.statuses or left <= 0:
                return JsonResponse(await _look(_shape, key, access.project.pk))
            await bell.ring_within(min(left, poll))
    finally:
        bell.close()


class _Bell:
    """Rung from the listener's thread when the log of one session grew."""

    def __init__(self, session: UUID) -> None:
        loop = asyncio.get_running_loop()
        rung = self._rung = asyncio.Event()
        mine = {None, str(session)}

        def ring(word: str | None) -> None:
            if word in mine and not loop.is_closed():
                loop.call_soon_threadsafe(rung.set)

        self.close = wakeups.subscribe(wakeups.ENTRIES, ring)

    def clear(self) -> None:
        self._rung.clear()

    async def ring_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return


async def _look(function: Callable[..., Any], *args: Any) -> Any:
    def look() -> Any:
        try:
            return function(*args)
        finally:
            _give_back()

    return await asyncio.get_running_loop().run_in_executor(_threads, look)


def _give_back() -> None:
    if not connection.in_atomic_block:
        connection.close()


def _status(session: UUID, project: UUID) -> str:
    status = Session.objects.filter(pk=session, project_id=project).values_list("status", flat=True).first()
    if status is None:
        raise NotFound("no such session")
    return status


def _shape(session: UUID, project: UUID) -> shapes.SessionShape:
    return shapes.session(shapes.session_row(session, project=project))


describe(
    "/api/v1/sessions/{session}/wait",
    "get",
    {
        "operationId": "wait_for_session",
        "summary": "Wait for a session's status",
        "description": "Answers as soon as the status is one of `for`; after `timeout` with the session as it is.",
        "tags": ["sessions"],
        "parameters": [
            {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}},
            {
                "name": "for",
                "in": "query",
                "required": True,
                "description": "statuses that end the wait, with commas",
                "schema": {"type": "string", "examples": ["idle,waiting"]},
            },
            {
                "name": "timeout",
                "in": "query",
                "description": "seconds, at most `TENURE_WAIT_MAX` of the deployment (60 by default)",
                "schema": {"type": "number", "minimum": 0, "default": 30},
            },
        ],
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": ref(shapes.SessionShape)}},
            },
            **problem_responses(400, 401, 404, 503),
        },
        "security": [{"apiKey": []}, {"staffSession": []}],
    },
)
