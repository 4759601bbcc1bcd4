"""How the OpenAPI document is made: every shape and request model once, from the types that the code uses.

`operation` describes a view's method. Models are registered as they are named there and land in
`components.schemas` in `add_components`, which drf-spectacular calls last; it also adds the paths that DRF does
not see (`describe`: asynchronous views, health).
"""

import http
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, OpenApiRequest, OpenApiResponse, extend_schema
from pydantic import TypeAdapter

from sessions_app.api import problems
from sessions_app.api.fields import Query
from sessions_app.api.shapes import ProblemShape

_FIRST_ERROR = 400
_REFERENCE = "#/components/schemas/{model}"
_shapes: dict[str, Any] = {}
_paths: dict[str, dict[str, Any]] = {}

# Every path may answer with these.
_ALWAYS = (401, 503)

_ABOUT = """\
Durable AI agent sessions.

Errors are `application/problem+json` (RFC 9457) with `type, title, status, code, detail, request_id, errors`, and
`current` on 409: the object as it is, or null. `errors` holds one item for each mistake, with a JSON pointer into
the body (or `/` and the name of a parameter). Every answer has `X-Request-Id`. An object that is missing and one
that belongs to another project are the same 404. Unknown fields and parameters are errors. The codes:"""

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    OpenApiParameter.HEADER,
    description="1 to 255 visible characters. The same key with the same request gives the first answer again, "
    "with `Idempotency-Replayed: true`; with another request it is 409 `idempotency_conflict`. Keys are kept for "
    "at least 24 hours, per key holder, method and path. Only successful answers are kept: after an error the "
    "same key may be used again.",
)


def _phrase(status: int) -> str:
    return problems.title(status) if status >= _FIRST_ERROR else http.HTTPStatus(status).phrase


def ref(shape: Any) -> dict[str, Any]:
    """A reference to a typed dict or model, which becomes a component."""
    known = _shapes.setdefault(shape.__name__, shape)
    if known is not shape:
        raise ValueError(f"two shapes are called {shape.__name__}")
    return {"$ref": _REFERENCE.format(model=_public_name(shape.__name__))}


def list_of(shape: Any) -> dict[str, Any]:
    """All that there are, at once."""
    return {
        "type": "object",
        "properties": {"data": {"type": "array", "items": ref(shape)}},
        "required": ["data"],
    }


def page_of(shape: Any) -> dict[str, Any]:
    """A list with a cursor."""
    return {
        "type": "object",
        "properties": {
            "data": {"type": "array", "items": ref(shape)},
            "next_cursor": {"type": ["string", "null"], "maxLength": 1024},
        },
        "required": ["data", "next_cursor"],
    }


def seq_page_of(shape: Any) -> dict[str, Any]:
    """A log page."""
    return {
        "type": "object",
        "properties": {"data": {"type": "array", "items": ref(shape)}, "has_more": {"type": "boolean"}},
        "required": ["data", "has_more"],
    }


def operation(
    name: str,
    summary: str,
    *,
    tag: str,
    answers: Mapping[int, Any],
    body: Any = None,
    query: type[Query] | None = None,
    errors: Collection[int] = (),
    creates: bool = False,
    parameters: Collection[OpenApiParameter] = (),
    public: bool = False,
) -> Callable[[Any], Any]:
    """Describe one method of a view.

    `answers` maps a status to a shape, a schema or None; `body` is a model, or media types with their schemas.
    """
    described = [*parameters, *(_parameters(query) if query else ())]
    failures = {*errors, *(() if public else _ALWAYS)}
    if creates:
        described.append(IDEMPOTENCY_KEY)
        failures.add(409)
    if body is not None:
        failures |= {400, 413, 415}
    if query is not None:
        failures.add(400)
    responses: dict[Any, Any] = {}
    for status, shape in answers.items():
        text = _phrase(status)
        if shape is None:
            responses[status] = OpenApiResponse(description=text)
        else:
            responses[status] = OpenApiResponse(_schema(shape), description=text)
    for status in sorted(failures):
        text = _phrase(status)
        responses[status, problems.MEDIA_TYPE] = OpenApiResponse(ref(ProblemShape), description=text)

    def wrap(method: Any) -> Any:
        return extend_schema(
            operation_id=name,
            summary=summary,
            description=inspect.cleandoc(method.__doc__ or ""),
            tags=[tag],
            parameters=described,
            request=_request(body),
            responses=responses,
            auth=[] if public else None,
        )(method)

    return wrap


def describe(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add an operation of a view that is not DRF's; schemas inside it come from `ref`."""
    _paths.setdefault(path, {})[method] = operation


def problem_responses(*statuses: int) -> dict[str, Any]:
    """For `describe`."""
    return {
        str(status): {
            "description": _phrase(status),
            "content": {problems.MEDIA_TYPE: {"schema": ref(ProblemShape)}},
        }
        for status in sorted(statuses)
    }


def add_components(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The hook that drf-spectacular calls when the paths are done."""
    for path, operations in sorted(_paths.items()):
        result["paths"].setdefault(path, {}).update(operations)
    result["paths"] = dict(sorted(result["paths"].items()))
    for operations in result["paths"].values():
        for described in operations.values():
            for status, response in described["responses"].items():
                _describe_headers(status, response)
    rows = [f"| `{code}` | {status} | {text} |" for code, status, text in problems.code_table()]
    result["info"]["description"] = "\n".join(
        [_ABOUT, "", "| code | status | meaning |", "|---|---|---|", *rows]
    )
    inputs: list[tuple[Any, Any, TypeAdapter[Any]]] = [
        (name, "validation", TypeAdapter(shape)) for name, shape in sorted(_shapes.items())
    ]
    definitions = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)[1]
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name, definition in definitions.get("$defs", {}).items():
        schemas[_public_name(name)] = _renamed(definition)
    components["schemas"] = dict(sorted(schemas.items()))
    return result


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "sessions_app.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        del auto_schema
        return {"type": "http", "scheme": "bearer", "description": "An API key; it belongs to one project."}


class StaffSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "sessions_app.api.authentication.StaffSessionAuthentication"
    name = "staffSession"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        del auto_schema
        text = "A staff member's browser session; with the header Tenure-Project, and X-CSRFToken where it writes."
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME, "description": text}


def _describe_headers(status: str, response: dict[str, Any]) -> None:
    headers = {"X-Request-Id": {"schema": {"type": "string"}}}
    if status in {"429", "503"}:
        headers["Retry-After"] = {"schema": {"type": "integer"}}
    response["headers"] = headers | response.get("headers", {})


def _request(body: Any) -> Any:
    if body is None:
        return None
    if isinstance(body, Mapping):
        return {media_type: OpenApiRequest(_schema(schema)) for media_type, schema in body.items()}
    return {"application/json": OpenApiRequest(ref(body))}


def _schema(shape: Any) -> dict[str, Any]:
    if isinstance(shape, dict):
        return dict[str, Any](shape)
    return ref(shape)


def _parameters(query: type[Query]) -> list[OpenApiParameter]:
    schema = TypeAdapter(query).json_schema()
    found = []
    for name, field in schema["properties"].items():
        described = dict(field)
        described.pop("title", None)
        schema_of_one = _renamed(_without_null(described))
        text = schema_of_one.pop("description", "")
        found.append(
            OpenApiParameter(
                name,
                schema_of_one,
                OpenApiParameter.QUERY,
                required=name in schema.get("required", ()),
                description=text,
            )
        )
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out, never null."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    return {**options[0], **rest}


def _public_name(name: str) -> str:
    """`ArtifactShape` is called so only where a model of that name stands in the way."""
    return name.removesuffix("Shape")


def _renamed(value: Any) -> Any:
    """Without pydantic's titles, and with references by public names."""
    if isinstance(value, dict):
        return {
            key: _public_name(item) if key == "$ref" else _renamed(item)
            for key, item in value.items()
            if not (key == "title" and isinstance(item, str))
        }
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    return value
