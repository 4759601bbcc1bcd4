"""Tools that a config declares as HTTP calls (`class: outside` with `method` and `url`), as they are offered.

What a call does is in `outside.http_call`, which is loaded by the first of them: most processes make none.
"""

from collections.abc import Mapping
from typing import Any

from sessions_app.agent_config.tools import placeholders
from sessions_app.tool_port import ToolContext
from tools_app.results import Content


def description_of(own: Mapping[str, Any]) -> str:
    """What the model is told where the config says nothing."""
    return own.get("description") or f"Send {own['method']} {own['url']}."


def schema_of(own: Mapping[str, Any]) -> dict[str, Any]:
    """The config's schema, or one that asks for what the URL names."""
    given: dict[str, Any] | None = own.get("input_schema")
    if given is not None:
        return given
    names = list(dict.fromkeys(placeholders(own["url"])))
    return {
        "type": "object",
        "properties": {name: {"type": "string", "minLength": 1} for name in names},
        "required": names,
        "additionalProperties": False,
    }


async def run(own: Mapping[str, Any], arguments: dict[str, Any], context: ToolContext) -> Content:
    """Send the request that `own` (the tool as the config has it) declares. Raises `ToolFailed`.

    Time limits are the caller's.
    """
    from tools_app.outside import http_call

    return await http_call.run(own, arguments, context)
