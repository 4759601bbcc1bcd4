"""`GET /tools`: which tools this deployment offers to agent configs."""

from typing import Annotated, Any, TypedDict

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.base import ApiView
from sessions_app.api.openapi import list_of, operation
from tools_app import registry
from tools_app.definitions import ToolDefinition
from tools_app.models import ToolClass
from tools_app.offers import permission_of

OfferedToolShape = TypedDict(
    "OfferedToolShape",
    {
        "name": str,
        "class": Annotated[str, Field(description="internal, outside, human or command")],
        "description": str,
        "input_schema": dict[str, Any],
        "rerun_safe": bool,
        "time_limit": Annotated[float | None, Field(description="seconds, where the config says nothing")],
        "permission": Annotated[str, Field(description="allow, ask or deny: where no rule decides")],
    },
)
OfferedToolShape.__doc__ = "A tool that configs can enable by its name."


class ToolsView(ApiView):
    @operation("list_tools", "List tools", tag="tools", answers={200: list_of(OfferedToolShape)})
    def get(self, request: Request) -> Response:
        """By name. Custom and HTTP tools and those of MCP servers stand in the configs themselves."""
        return Response({"data": [_tool(found) for found in registry.all_tools()]})


def _tool(found: ToolDefinition) -> OfferedToolShape:
    has_limit = found.tool_class == ToolClass.OUTSIDE
    return {
        "name": found.name,
        "class": str(found.tool_class),
        "description": found.description,
        "input_schema": found.input_schema,
        "rerun_safe": found.rerun_safe,
        "time_limit": registry.time_limit_of(found.name) if has_limit else None,
        "permission": permission_of(found),
    }
