"""The outermost layer: a request id on everything, and no page of HTML under the API's paths."""

import json
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from sessions_app.api import problems

_FOREIGN_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_FIRST_ERROR = 400


class RequestIdMiddleware:
    """Takes the client's or proxy's `X-Request-Id` where it is a plain word, else makes one."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._later(request)
        self._begin(request)
        return self._finish(request, self.get_response(request))

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        self._begin(request)
        return self._finish(request, await self.get_response(request))

    def _begin(self, request: HttpRequest) -> None:
        given = request.headers.get("X-Request-Id", "")
        number = given if _FOREIGN_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        request.request_id = number  # type: ignore[attr-defined]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=number)

    def _finish(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if (
            response.status_code >= _FIRST_ERROR
            and problems.is_api(request)
            and isinstance(response, HttpResponse)
            and not response.headers.get("Content-Type", "").startswith(problems.MEDIA_TYPE)
        ):
            # In place: what else the answer carries (cookies, Allow, what has to be closed) stays with it.
            problem = problems.of_status(response.status_code)
            response.content = json.dumps(problem.document(request)).encode()
            response.headers["Content-Type"] = problems.MEDIA_TYPE
            for name, value in problem.headers.items():
                response.headers.setdefault(name, value)
            response.headers.pop("Content-Length", None)
        response.headers["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
        return response
