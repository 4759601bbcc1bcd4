"""`GET /sessions/{id}/wait`: a long poll that waits on the event loop and holds no database connection.

It looks whenever the session's log grows (see `waiting`).
"""

import asyncio
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, JsonResponse

from sessions_app import wakeups
from sessions_app.access import Access
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import async_view, checked_query, path_id
from sessions_app.api.openapi import describe, problem_responses, ref
from sessions_app.api.session_requests import WaitQuery
from sessions_app.api.waiting import FALLBACK_POLL, Bell, give_back, look
from sessions_app.errors import NotFound
from sessions_app.models import Session, SessionStatus

CLAIM_POLL = 1.0
"""Seconds. A claim rings no bell, so whoever waits for `running` looks more often."""


@async_view()
async def wait(request: HttpRequest, access: Access, session: str) -> JsonResponse:
    """The session as soon as its status is one of `for`, or as it is after `timeout` seconds."""
    key = path_id("ses", session)
    query = checked_query(WaitQuery, request.GET)
    await give_back()
    until = asyncio.get_running_loop().time() + min(query.timeout, settings.TENURE.wait_max)
    poll = CLAIM_POLL if SessionStatus.RUNNING in query.statuses else FALLBACK_POLL
    bell = Bell(wakeups.ENTRIES, str(key))
    try:
        while True:
            bell.clear()
            status = await look(_status, key, access.project.pk)
            left = until - asyncio.get_running_loop().time()
            if status in query.statuses or left <= 0:
                return JsonResponse(await look(_shape, key, access.project.pk))
            await bell.ring_within(min(left, poll))
    finally:
        bell.close()


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
