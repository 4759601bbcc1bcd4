"""`GET /schema`: the OpenAPI document, made once per process."""

import functools
from typing import Any

import yaml
from drf_spectacular.generators import SchemaGenerator
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation


class YamlRenderer(BaseRenderer):
    media_type = "application/yaml"
    format = "yaml"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        del accepted_media_type, renderer_context
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).encode()


class SchemaView(ApiView):
    authentication_classes = []
    permission_classes = []
    renderer_classes = [YamlRenderer, JSONRenderer]

    @operation(
        "schema",
        "This document",
        tag="schema",
        answers={200: {"type": "object"}},
        public=True,
    )
    def get(self, request: Request) -> Response:
        """As YAML, or as JSON where `Accept` asks for it. Needs no key."""
        return Response(_document())


@functools.cache
def _document() -> dict[str, Any]:
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return document
