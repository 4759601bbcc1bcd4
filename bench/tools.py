"""The tool of the step benchmark: outside, and over at once, so that what is measured is the engine."""

from typing import Any

from sessions_app.tool_port import ToolContext
from tools_app.registry import ToolDefinition


async def bench_echo(arguments: dict[str, Any], context: ToolContext) -> str:
    del context
    return str(arguments.get("text", ""))


TOOLS = [
    ToolDefinition(
        name="bench_echo",
        description="Give back the text.",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
        tool_class="outside",
        run=bench_echo,
    )
]
