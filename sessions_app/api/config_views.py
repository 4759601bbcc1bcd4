"""`/configs`: the document itself, as JSON or YAML."""

from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar
from uuid import UUID

from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import configs
from sessions_app.agent_config.yaml import load_json, load_yaml
from sessions_app.api import shapes
from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation
from sessions_app.api.parsers import read_limited, refuse_encoded
from sessions_app.idempotency import Answer

_DOCUMENT = {"type": "object", "description": "an agent config; see the guide to its shape"}
_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


class DocumentParser(BaseParser):
    """An agent config; its own readers refuse what would make two documents out of one."""

    media_type = "application/json"
    load: ClassVar[Callable[[bytes], Any]] = staticmethod(load_json)

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        del media_type
        refuse_encoded((parser_context or {}).get("request"))
        return type(self).load(read_limited(stream))


def _yaml_parser(name: str) -> type[DocumentParser]:
    return type("YamlParser", (DocumentParser,), {"media_type": name, "load": staticmethod(load_yaml)})


class ConfigsView(ApiView):
    parser_classes = [DocumentParser, *(_yaml_parser(name) for name in _YAML)]

    @operation(
        "create_config",
        "Store an agent config",
        tag="configs",
        body={"application/json": _DOCUMENT, "application/yaml": _DOCUMENT},
        answers={201: shapes.Config, 200: shapes.Config},
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """201 for a new document, 200 for one that the project knows; the same document is always one config.

        `warnings` names what this deployment lacks of what the document uses.
        """
        document = request.data

        def effect() -> Answer:
            stored = configs.create_config(project=self.project, document=document)
            return Answer(201 if stored.is_new else 200, _shape(stored.row, stored.warnings))

        return self.once(effect)


class ConfigView(ApiView):
    path_ids = {"config": "cfg"}

    @operation(
        "get_config", "Read an agent config", tag="configs", answers={200: shapes.Config}, errors=[404]
    )
    def get(self, request: Request, config: UUID) -> Response:
        """`warnings` are those of this moment."""
        row = configs.get_config(project=self.project, config=config)
        return Response(_shape(row, configs.warnings_of(row)))


def _shape(row: Any, warnings: list[Any]) -> shapes.Config:
    return shapes.config(row, warnings=warnings)
