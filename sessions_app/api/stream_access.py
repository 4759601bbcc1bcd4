"""Who may follow a feed, and which: for sockets and server-sent events.

Beside a bearer key in the header there are two ways for browsers, which can't set one here: a ticket, and the
cookie of a logged-in staff member with `project` in the query. A socket is opened with its cookie by whatever
page asks for it, so with a cookie its Origin has to be one of ours. Keys are never taken from a URL.
"""

import io
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from sessions_app import access, ids, tickets
from sessions_app.access import Access, Forbidden, Unauthenticated
from sessions_app.api.authentication import by_header, refuse_key_in_url
from sessions_app.errors import Invalid, NotFound


class ForeignOrigin(Forbidden):
    """This page may not open a socket with the cookie of this site."""

    code = "foreign_origin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who follows, the key of its browser session, and the one session that its ticket is for."""

    access: Access
    login: str | None = None
    only_session: UUID | None = None


def request_of(scope: dict[str, Any]) -> HttpRequest:
    """The request that a socket's handshake was."""
    request = ASGIRequest(dict(scope, type="http", method="GET", scheme="http"), io.BytesIO())
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    request.user = get_user(request)
    return request


def admit(request: HttpRequest, *, is_socket: bool) -> Admission:
    """Reads the database. Raises `Unauthenticated` for nobody, and what a wrong key, ticket or Origin deserves."""
    refuse_key_in_url(request.GET)
    found = by_header(request)
    if found is not None:
        return Admission(access=found)
    text = request.GET.get("ticket")
    if text is not None:
        redeemed = tickets.redeem(text)
        return Admission(access=redeemed.access, only_session=redeemed.session)
    if is_socket and settings.SESSION_COOKIE_NAME in request.COOKIES:
        _check_origin(request, required=True)
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        raise Unauthenticated
    if not is_socket:
        _check_origin(request, required=False)
    return Admission(
        access=access.by_user(user, project=_project(request)), login=request.session.session_key
    )


def _check_origin(request: HttpRequest, *, required: bool) -> None:
    origin = request.headers.get("Origin")
    if origin is None and not required:
        return
    try:
        host = request.get_host()
    except DisallowedHost:
        raise ForeignOrigin from None
    ours = {f"https://{host}"} if settings.SESSION_COOKIE_SECURE else {f"https://{host}", f"http://{host}"}
    if origin is None or not (origin in ours or _is_trusted(origin)):
        raise ForeignOrigin


def _is_trusted(origin: str) -> bool:
    """As for CSRF: a trusted origin is exact, or `scheme://*.domain`."""
    asking = urlsplit(origin)
    for text in settings.CSRF_TRUSTED_ORIGINS:
        trusted = urlsplit(text)
        if text == origin:
            return True
        if trusted.netloc.startswith("*.") and trusted.scheme == asking.scheme:
            domain = trusted.netloc[1:]
            if asking.netloc.endswith(domain) or asking.netloc == domain[1:]:
                return True
    return False


def _project(request: HttpRequest) -> UUID:
    text = request.headers.get("Tenure-Project") or request.GET.get("project")
    if not text:
        error = {"path": "/project", "code": "required", "message": "name the project by its id"}
        raise Invalid("feeds that are opened with a cookie need the parameter project", errors=[error])
    try:
        return ids.decode("prj", text)
    except ids.InvalidId:
        raise NotFound("no such project") from None
