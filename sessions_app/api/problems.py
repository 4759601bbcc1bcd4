"""Every error as a problem document (RFC 9457), whoever raised it.

`explain` turns an exception into a `Problem`; DRF's handler, the asynchronous views and the middleware all
render that. What Django answers on its own under the API's paths (unknown paths, CSRF, a crash, a refused
host) reaches the client through the middleware, which replaces it by `of_status`.
"""

import dataclasses
import http
import json
from collections.abc import Mapping
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.db import DatabaseError, DataError, Error, IntegrityError, InterfaceError
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.views.csrf import csrf_failure as csrf_failure_page
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from sessions_app.api.shapes import shape_of
from sessions_app.database import is_transient
from sessions_app.errors import Invalid, TenureError
from sessions_app.text import clean_json

logger = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:tenure:problem:"
BEARER = 'Bearer realm="tenure"'
RETRY_AFTER = 2  # seconds, while the database is away

# For answers that no exception of ours explains: code, title, detail. Python's own phrases differ by version.
_STATUSES: dict[int, tuple[str, str, str]] = {
    400: ("malformed", "Bad Request", "The request can't be read."),
    401: ("unauthenticated", "Unauthorized", "Send an API key: Authorization: Bearer <key>."),
    403: ("forbidden", "Forbidden", "This is not allowed."),
    404: ("not_found", "Not Found", "No such object."),
    405: ("method_not_allowed", "Method Not Allowed", "This method is not allowed here."),
    406: ("not_acceptable", "Not Acceptable", "No media type that `Accept` names can be sent."),
    409: ("conflict", "Conflict", "The object is not in the state that this needs."),
    411: ("length_required", "Length Required", "The request needs a Content-Length."),
    413: ("too_large", "Content Too Large", "The body is larger than this deployment takes."),
    415: (
        "unsupported_media_type",
        "Unsupported Media Type",
        "The body's media type is none that can be read here.",
    ),
    416: ("range_not_satisfiable", "Range Not Satisfiable", "There are no such bytes."),
    429: ("too_many_requests", "Too Many Requests", "Slow down, and come back after Retry-After."),
    500: ("internal_error", "Internal Server Error", "Something went wrong on our side."),
    503: ("unavailable", "Service Unavailable", "The service can't answer at the moment; try again soon."),
}
CODES = {status: code for status, (code, _, _) in _STATUSES.items()}
_MORE_CODES = {
    "csrf_failed": (403, "The CSRF token is missing or wrong; send it as X-CSRFToken."),
    "database_unavailable": (503, "The database is away; what was asked may be repeated."),
    "not_ready": (503, "Agents can't run: `detail` says what is missing."),
}
_NEVER_SHOWN = {"error", "lease_lost", "worker_dead"}
_FIELDS = frozenset({"type", "title", "status", "code", "detail", "request_id", "errors"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    status: int
    code: str
    detail: str
    errors: list[dict[str, str]] = dataclasses.field(default_factory=list)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def document(self, request: Any) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": TYPE + self.code,
            "title": title(self.status),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "request_id": request_id(request),
            "errors": self.errors,
        }
        more = {name: _plain(value) for name, value in self.data.items() if name not in _FIELDS}
        if self.status == http.HTTPStatus.CONFLICT:
            more.setdefault("current", None)
        document: dict[str, Any] = clean_json(body | more, on_nan="null")
        return document

    def response(self, request: HttpRequest) -> HttpResponse:
        """For whatever is no DRF view."""
        body = json.dumps(self.document(request))
        return HttpResponse(body, status=self.status, content_type=MEDIA_TYPE, headers=dict(self.headers))


def request_id(request: Any) -> str:
    return getattr(getattr(request, "_request", request), "request_id", "")


def of_status(status: int) -> Problem:
    status = status if status in CODES else 400 if status < 500 else 500
    return Problem(status=status, code=CODES[status], detail=_STATUSES[status][2], headers=_headers(status))


def title(status: int) -> str:
    """The status in words."""
    return _STATUSES[status][1] if status in _STATUSES else http.HTTPStatus(status).phrase


def code_table() -> list[tuple[str, int, str]]:
    """Every code that a client may see, with its status and meaning, for the reference."""
    found = {code: (status, text) for status, (code, _, text) in _STATUSES.items()} | _MORE_CODES
    kinds: list[type[TenureError]] = [TenureError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # In a fixed order, whatever was imported first: two classes may share a code.
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__name__)):
        is_ours = kind.__module__.partition(".")[0].endswith("_app")
        if is_ours and "code" in vars(kind) and kind.code not in _NEVER_SHOWN:
            found[kind.code] = (kind.status, " ".join((kind.__doc__ or "").split()))
    return sorted((code, status, text) for code, (status, text) in found.items())


def explain(error: BaseException) -> Problem | None:
    """None where only a crash of ours explains it: that is a 500, and its traceback belongs in the log."""
    match error:
        case TenureError():
            return Problem(
                status=error.status,
                code=error.code,
                detail=error.detail,
                errors=error.errors if isinstance(error, Invalid) else [],
                data=error.data,
                headers=_headers(error.status, retry_after=getattr(error, "retry_after", None)),
            )
        case Http404():
            return of_status(404)
        case PermissionDenied():
            return of_status(403)
        case RequestDataTooBig() | TooManyFieldsSent() | TooManyFilesSent():
            return dataclasses.replace(of_status(413), detail=str(error))
        case MultiPartParserError():
            return dataclasses.replace(of_status(400), detail=f"not a multipart body: {error}")
        case exceptions.APIException():
            return _of_drf(error)
        case Error():
            return _of_database(error)
    return None


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's hook."""
    problem = explain(error)
    if problem is None:
        return None
    request = context["request"]
    document = problem.document(request)
    # A problem is JSON, also where answers are not (the schema is YAML), and whatever `Accept` says.
    request.accepted_renderer, request.accepted_media_type = JSONRenderer(), "application/json"
    return Response(document, problem.status, headers=dict(problem.headers), content_type=MEDIA_TYPE)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's CSRF_FAILURE_VIEW."""
    if is_api(request):
        return CSRF_FAILED.response(request)
    page: HttpResponse = csrf_failure_page(request, reason)
    return page


CSRF_FAILED = Problem(status=403, code="csrf_failed", detail=_MORE_CODES["csrf_failed"][1])


def is_api(request: HttpRequest) -> bool:
    """Whether errors at this path are problem documents."""
    path = request.path_info
    return path.startswith("/api/") or path in {"/api", "/healthz", "/readyz"}


def _of_drf(error: exceptions.APIException) -> Problem:
    status = error.status_code if error.status_code in CODES else 400
    detail = error.detail if isinstance(error.detail, str) else json.dumps(error.detail, default=str)
    if isinstance(error, exceptions.NotAuthenticated):
        detail = _STATUSES[401][2]
    headers = _headers(status, retry_after=getattr(error, "wait", None))
    return Problem(status=status, code=CODES[status], detail=str(detail), headers=headers)


def _of_database(error: Error) -> Problem | None:
    """What may pass is 503; what the database refuses for good is the request's fault (C71)."""
    if is_transient(error):
        logger.warning("api.database_away", error=str(error).partition("\n")[0])
        return dataclasses.replace(of_status(503), code="database_unavailable")
    if isinstance(error, DataError | IntegrityError):
        # Validation should have said so first: worth a look, but no reason to fail again and again.
        logger.warning(
            "api.refused_write", sqlstate=getattr(error.__cause__, "sqlstate", None), exc_info=error
        )
        if isinstance(error, DataError):
            return Problem(status=400, code="invalid", detail="The database can't store this.")
        return Problem(status=409, code="conflict", detail="This contradicts what is stored already.")
    if isinstance(error, InterfaceError) or not isinstance(error, DatabaseError):
        return dataclasses.replace(of_status(503), code="database_unavailable")
    return None


def _headers(status: int, *, retry_after: float | None = None) -> dict[str, str]:
    headers = {"WWW-Authenticate": BEARER} if status == http.HTTPStatus.UNAUTHORIZED else {}
    if retry_after is None and status in {429, 503}:
        retry_after = RETRY_AFTER
    if retry_after is not None:
        headers["Retry-After"] = str(max(1, round(retry_after)))
    return headers


def _plain(value: Any) -> Any:
    return shape_of(value) if isinstance(value, Model) else value
