"""How a request says who it is: a bearer key, or the cookie of a staff member's session.

`authenticate` serves every HTTP view, synchronous or not; the DRF classes only adapt it. Keys are taken from the
`Authorization` header and from nowhere else: a URL ends up in logs and histories, so a key in one is refused
even where the header holds another.
"""

from collections.abc import Mapping
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions_app import access, ids
from sessions_app.access import Access, Forbidden, InvalidKey, Unauthenticated
from sessions_app.api import problems
from sessions_app.errors import Invalid, NotFound

_NAMES_OF_KEYS = frozenset(
    {"key", "api_key", "apikey", "api-key", "access_token", "authorization", "bearer", "token"}
)


class KeyInUrl(Unauthenticated):
    """API keys are never taken from a URL; send it in the Authorization header, and replace this one."""

    code = "key_in_url"


class CsrfFailed(Forbidden):
    """The CSRF token is missing or wrong; send it as X-CSRFToken."""

    code = "csrf_failed"


def _any_view(request: HttpRequest) -> HttpResponse:
    """What the CSRF check wants to know of a view is only whether it is exempt; none is, with a cookie."""
    return problems.CSRF_FAILED.response(request)


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason


def authenticate(request: HttpRequest) -> Access | None:
    """Who is asking; None for nobody. Raises what a wrong key, project or CSRF token deserves."""
    refuse_key_in_url(request.GET)
    return by_header(request) or _by_cookie(request)


async def aauthenticate(request: HttpRequest) -> Access:
    """The same for asynchronous views, which have no permission classes: nobody is refused here."""
    found = await sync_to_async(authenticate)(request)
    if found is None:
        raise Unauthenticated
    return found


def refuse_key_in_url(query: Mapping[str, Any]) -> None:
    for name, value in query.items():
        if name.lower() in _NAMES_OF_KEYS or access.KEY_FORM.search(str(value)):
            raise KeyInUrl


def by_header(request: HttpRequest) -> Access | None:
    header = request.headers.get("Authorization")
    if not header:
        return None
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated
    try:
        return access.by_key(text.strip())
    except UnicodeError:
        raise InvalidKey from None


def _by_cookie(request: HttpRequest) -> Access | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    _check_csrf(request)
    text = request.headers.get("Tenure-Project")
    if not text:
        error = {"path": "/Tenure-Project", "code": "required", "message": "name the project by its id"}
        raise Invalid("requests with a session cookie need the header Tenure-Project", errors=[error])
    try:
        project = ids.decode("prj", text)
    except ids.InvalidId:
        raise NotFound("no such project") from None
    return access.by_user(user, project=project)


def _check_csrf(request: HttpRequest) -> None:
    check = _CsrfCheck(_any_view)
    check.process_request(request)
    if check.process_view(request, _any_view, (), {}):
        raise CsrfFailed


class _Authentication(BaseAuthentication):
    def authenticate_header(self, request: Request) -> str:
        return problems.BEARER


class ApiKeyAuthentication(_Authentication):
    def authenticate(self, request: Request) -> tuple[Any, Access] | None:
        plain = request._request  # noqa: SLF001 - DRF's only way to Django's request
        refuse_key_in_url(plain.GET)
        found = by_header(plain)
        return None if found is None else (found, found)


class StaffSessionAuthentication(_Authentication):
    def authenticate(self, request: Request) -> tuple[Any, Access] | None:
        found = _by_cookie(request._request)  # noqa: SLF001 - as above
        return None if found is None else (found.user, found)


class HasProject(BasePermission):
    """Everything in the API belongs to a project, so somebody has to be asking for one."""

    def has_permission(self, request: Request, view: Any) -> bool:
        del view
        return isinstance(request.auth, Access)


class IsProjectAdmin(HasProject):
    message = "only keys with the role admin may do this"

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and cast("Access", request.auth).is_admin
