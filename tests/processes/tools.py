"""Tools for tests of workers: they block a thread or the whole event loop, and leave a byte for each run."""

import asyncio
import os
import signal
import time
from typing import Any

from sessions_app.tool_port import ToolContext
from tools_app.development import _append_byte, _below_root
from tools_app.registry import ToolDefinition


async def block_loop(arguments: dict[str, Any], context: ToolContext) -> str:
    """Badly written on purpose: nothing else on this worker's event loop moves meanwhile."""
    _append_byte(_below_root(arguments["file"]))
    time.sleep(arguments["seconds"])  # noqa: ASYNC251
    return "the loop was blocked"


def block_thread(arguments: dict[str, Any], context: ToolContext) -> str:
    """A plain function: nobody can stop it."""
    _append_byte(_below_root(arguments["file"]))
    time.sleep(arguments["seconds"])
    return f"attempt {context.attempt}"


async def kill_worker(arguments: dict[str, Any], context: ToolContext) -> str:
    """Poison: the worker that runs it is gone, as after a crash of native code or for want of memory."""
    _append_byte(_below_root(arguments["file"]))
    await asyncio.sleep(arguments["seconds"])
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


_SCHEMA = {
    "type": "object",
    "properties": {"file": {"type": "string"}, "seconds": {"type": "number"}},
    "required": ["file", "seconds"],
}

TOOLS = [
    ToolDefinition(
        name="block_loop",
        description="Block the loop.",
        input_schema=_SCHEMA,
        run=block_loop,
        permission="allow",
    ),
    ToolDefinition(
        name="kill_worker",
        description="Kill the worker.",
        input_schema=_SCHEMA,
        run=kill_worker,
        rerun_safe=True,
    ),
    ToolDefinition(
        name="block_thread",
        description="Block.",
        input_schema=_SCHEMA,
        run=block_thread,
        permission="allow",
    ),
    ToolDefinition(
        name="block_again",
        description="Block; may run again.",
        input_schema=_SCHEMA,
        rerun_safe=True,
        run=block_thread,
    ),
]
