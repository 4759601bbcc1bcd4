"""What every view starts from: the caller, checked bodies and parameters, ids in paths, answers said once."""

import functools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import IO, Any, ClassVar, cast
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed, QueryDict
from django.views.decorators.csrf import csrf_exempt
from pydantic import ValidationError
from rest_framework.exceptions import NotAcceptable, UnsupportedMediaType
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sessions_app import idempotency, ids
from sessions_app.access import Access, external
from sessions_app.agent_config.shape import Part, problems_of
from sessions_app.api import problems
from sessions_app.api.authentication import aauthenticate
from sessions_app.api.fields import ActorRef, Body, Query
from sessions_app.api.parsers import StrictJSONParser, loads, read_limited, refuse_encoded
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid, NotFound
from sessions_app.idempotency import Answer
from sessions_app.text import clean_text

REPLAYED = "Idempotency-Replayed"


class ApiView(APIView):
    """One resource. `path_ids` names the prefixes of the ids in its path, which arrive as UUIDs."""

    path_ids: ClassVar[Mapping[str, str]] = {}

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        _measure_chunked(request)
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        # An id that can't be one names nothing: the same 404 as for an object that is not there.
        for name, prefix in self.path_ids.items():
            self.kwargs[name] = path_id(prefix, self.kwargs[name])

    @property
    def access(self) -> Access:
        return cast("Access", self.request.auth)

    @property
    def project(self) -> UUID:
        return self.access.project.pk

    def actor(self, named: ActorRef | None) -> Actor:
        """The person that the body names, else the caller (I8)."""
        return self.access.actor if named is None else external(named)

    def body[Model: Body](self, model: type[Model]) -> Model:
        """The body, checked; `Invalid` with every mistake and its JSON pointer."""
        return checked(model, self.request.data)

    def query[Model: Query](self, model: type[Model]) -> Model:
        return checked_query(model, self.request.query_params)

    def once(
        self, effect: Callable[[], Answer], *, request: str | None = None, sealed: bool = False
    ) -> Response:
        """Run a creating effect, once per Idempotency-Key where the client sends one (I4).

        `request` is the fingerprint of what was asked for, where that is not the JSON body.
        """
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return rendered(effect())
        plain = self.request._request  # noqa: SLF001 - DRF's only way to Django's request
        if request is None:
            request = idempotency.fingerprint(self.request.data, plain.META.get("QUERY_STRING", ""))
        return rendered(
            idempotency.once(
                holder=self.access.holder,
                operation=f"{plain.method} {plain.path}",
                key=key,
                request=request,
                effect=effect,
                sealed=sealed,
            )
        )


def rendered(answer: Answer) -> Response:
    return Response(answer.body, answer.status, headers={REPLAYED: "true"} if answer.replayed else None)


def path_id(prefix: str, text: str) -> UUID:
    try:
        return ids.decode(prefix, text)
    except ids.InvalidId:
        raise NotFound from None


def checked[Model: Part](model: type[Model], data: Any) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = problems_of(error)
    detail = "; ".join(f"{item['path'] or '/'}: {item['message']}" for item in errors)
    raise Invalid(detail[:2000], errors=[dict[str, str](**item) for item in errors])


def checked_query[Model: Query](model: type[Model], given: QueryDict) -> Model:
    values: dict[str, Any] = {}
    for name, texts in given.lists():
        cleaned = [clean_text(str(text)) for text in texts]
        if name in model.repeated:
            values[name] = cleaned
        elif len(cleaned) > 1:
            item = {"path": f"/{clean_text(name)}", "code": "repeated", "message": "may stand only once"}
            raise Invalid(f"the parameter {clean_text(name)} stands more than once", errors=[item])
        else:
            values[clean_text(name)] = cleaned[0]
    return checked(model, values)


def json_body(request: HttpRequest) -> Any:
    """The body of an asynchronous view; read and refused as everywhere, empty where there is none."""
    length = request.META.get("CONTENT_LENGTH") or None
    data = read_limited(
        cast("IO[bytes]", request), length=int(length) if length and length.isdecimal() else None
    )
    if not data:
        return {}
    refuse_encoded(request)
    if request.content_type != StrictJSONParser.media_type:
        raise UnsupportedMediaType(request.content_type or "")
    return loads(data)


type AsyncHandler = Callable[..., Awaitable[HttpResponseBase]]


def async_view(
    *,
    methods: Collection[str] = ("GET",),
    answers: Collection[str] = ("application/json",),
    authentication: Callable[[HttpRequest], Awaitable[Any]] = aauthenticate,
) -> Callable[[AsyncHandler], Callable[..., Coroutine[Any, Any, HttpResponseBase]]]:
    """A plain asynchronous view `handler(request, access, **kwargs)` with the API's authentication and errors.

    `answers` are the media types that it can answer in. What `authentication` finds is passed as `access`.
    """

    def wrap(handler: AsyncHandler) -> Callable[..., Coroutine[Any, Any, HttpResponseBase]]:
        @csrf_exempt  # checked with the cookie, by `authenticate`
        @functools.wraps(handler)
        async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            try:
                access = await authentication(request)
                if request.method not in methods:
                    return HttpResponseNotAllowed(sorted(methods))
                _accepted(request, answers)
                return await handler(request, access, **kwargs)
            except Exception as error:
                problem = problems.explain(error)
                if problem is None:
                    raise
                return problem.response(request)

        return view

    return wrap


def _accepted(request: HttpRequest, answers: Collection[str]) -> None:
    if not any(request.accepts(kind) for kind in answers):
        raise NotAcceptable


def _measure_chunked(request: HttpRequest) -> None:
    """A chunked body has no length; DRF would take it for an empty one. ASGI has read it to a file by now."""
    if isinstance(request, ASGIRequest) and "HTTP_TRANSFER_ENCODING" in request.META:
        stream = request._stream  # noqa: SLF001 - Django offers the file under no other name
        here = stream.tell()
        request.META["CONTENT_LENGTH"] = str(stream.seek(0, 2) - here)
        stream.seek(here)
