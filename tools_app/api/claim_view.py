"""`POST /tool-calls/claim`: a long poll that takes calls as soon as there are any, and holds no connection meanwhile.

It looks when it hears that a call of its project began to wait, or was given back; a claim that runs out rings no
bell, so it also looks from time to time. Each look is a transaction of its own (see `waiting`).
"""

import asyncio
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, JsonResponse

from sessions_app import idempotency, wakeups
from sessions_app.access import Access
from sessions_app.api.base import REPLAYED, async_view, checked, json_body
from sessions_app.api.openapi import IDEMPOTENCY_KEY, describe, problem_responses, ref
from sessions_app.api.waiting import FALLBACK_POLL, Bell, give_back, look
from sessions_app.idempotency import Answer
from tools_app import claims
from tools_app.api import tool_call_shapes as shapes
from tools_app.api.tool_call_requests import ClaimCalls


class _NothingYet(Exception):
    """Undoes a look that found nothing, with its record: the request is not answered by it."""


@async_view(methods=["POST"])
async def claim(request: HttpRequest, access: Access) -> JsonResponse:
    """Calls that wait, oldest first, claimed for `lease_seconds`; after `wait` perhaps none."""
    data = json_body(request)
    body = checked(ClaimCalls, data)
    key = request.headers.get("Idempotency-Key")
    await give_back()
    print_of_request = idempotency.fingerprint(data, request.META.get("QUERY_STRING", ""))

    def take(*, last: bool) -> Answer:
        taken = claims.claim(
            project=access.project.pk,
            names=body.names,
            limit=body.limit,
            lease_seconds=body.lease_seconds,
            actor=access.actor,
        )
        if not taken.calls and not last:
            raise _NothingYet
        return Answer(200, {"data": [shapes.claimed(row, taken.token) for row in taken.calls]})

    def once(*, last: bool) -> Answer | None:
        try:
            if key is None:
                return take(last=last)
            return idempotency.once(
                holder=access.holder,
                operation=f"{request.method} {request.path}",
                key=key,
                request=print_of_request,
                effect=lambda: take(last=last),
                sealed=True,  # it holds the token
            )
        except _NothingYet:
            return None

    answer = await _first(access, body.wait, once)
    headers = {REPLAYED: "true"} if answer.replayed else None
    return JsonResponse(answer.body, status=answer.status, headers=headers)


async def _first(access: Access, wait: float, once: Callable[..., Answer | None]) -> Answer:
    """What the first look that finds anything answers, or the last one."""
    loop = asyncio.get_running_loop()
    until = loop.time() + min(wait, settings.TENURE.wait_max)
    bell = Bell(wakeups.CALLS, str(access.project.pk)) if wait > 0 else None
    try:
        while True:
            if bell is not None:
                bell.clear()
            left = until - loop.time()
            is_last = bell is None or left <= 0
            answer = await look(once, last=is_last)
            if answer is not None:
                return answer
            if bell is not None:
                await bell.ring_within(min(max(left, 0.0), FALLBACK_POLL))
    finally:
        if bell is not None:
            bell.close()


describe(
    "/api/v1/tool-calls/claim",
    "post",
    {
        "operationId": "claim_tool_calls",
        "summary": "Claim custom calls",
        "description": "Takes waiting calls that no other worker of the backend is at. Their state stays "
        "`waiting`, and anybody may still post their results: a claim only keeps two workers from the same work. "
        "When it expires the call is free again. The token is shown here only.",
        "tags": ["tool calls"],
        "parameters": [
            {
                "name": IDEMPOTENCY_KEY.name,
                "in": "header",
                "schema": IDEMPOTENCY_KEY.type,
                "description": IDEMPOTENCY_KEY.description,
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref(ClaimCalls)}}},
        "responses": {
            "200": {
                "description": "OK",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": {"data": {"type": "array", "items": ref(shapes.ToolCallShape)}},
                            "required": ["data"],
                        }
                    }
                },
            },
            **problem_responses(400, 401, 409, 413, 415, 503),
        },
        "security": [{"apiKey": []}, {"staffSession": []}],
    },
)
