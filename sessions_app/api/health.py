"""`/healthz` and `/readyz`, for whatever starts, stops and balances processes; outside the API, without a key."""

from typing import Any

from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from sessions_app import readiness
from sessions_app.api import problems
from sessions_app.api.openapi import describe, problem_responses
from sessions_app.api.problems import Problem


@csrf_exempt  # nothing is changed here, and a wrong method is told as such
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers; nothing else is asked."""
    return JsonResponse({"status": "ok"})


@csrf_exempt
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Agents can run: the database answers, a worker lives, a sweeper looks."""
    try:
        found = readiness.check()
    except Error as error:
        away = problems.explain(error) or problems.of_status(503)
        return away.response(request)
    facts = {"workers": found.workers, "sweeper_age": found.sweeper_age}
    if found.missing:
        problem = Problem(
            status=503,
            code="not_ready",
            detail="; ".join(found.missing),
            data=facts,
            headers={"Retry-After": "5"},
        )
        return problem.response(request)
    return JsonResponse({"status": "ready", "database": "ok", **facts})


def _operation(name: str, summary: str, properties: dict[str, Any], *failures: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["health"],
        "security": [],
        "responses": {"200": answer, **problem_responses(*failures)},
    }


_STATUS = {"status": {"type": "string"}}
describe("/healthz", "get", _operation("healthz", "Does this process answer?", _STATUS))
describe(
    "/readyz",
    "get",
    _operation(
        "readyz",
        "Can agents run?",
        {
            **_STATUS,
            "database": {"type": "string"},
            "workers": {"type": "integer"},
            "sweeper_age": {"type": "number", "description": "seconds since a sweeper last looked"},
        },
        503,
    ),
)
