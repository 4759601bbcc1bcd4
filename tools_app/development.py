"""Tools for development, demos and crash tests; offered only with `TENURE_DEV_TOOLS` or `TENURE_DEBUG`.

Each run leaves one byte in a file, so whoever kills a worker can count afterwards how often a tool ran.
"""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

from django.conf import settings

from sessions_app.tool_port import ToolContext
from tools_app.registry import ToolDefinition
from tools_app.results import ToolFailed

MAX_DELAY = 600
_DELAY = {
    "type": "number",
    "minimum": 0,
    "maximum": MAX_DELAY,
    "description": "Seconds to wait in the middle.",
}


async def dev_append(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    path = _below_root(arguments["file"])
    await _pause(arguments)
    size = await asyncio.to_thread(_append_byte, path)
    await _pause(arguments)
    return {"file": arguments["file"], "bytes": size}


async def dev_lookup(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    key = arguments["key"]
    await asyncio.to_thread(_append_byte, _below_root(f"lookup.{key}"))
    await _pause(arguments)
    value = hashlib.sha256(key.encode()).hexdigest()[:12]
    return {"key": key, "value": value, "token": context.token}


async def _pause(arguments: dict[str, Any]) -> None:
    await asyncio.sleep(arguments.get("delay", 0))


def _below_root(file: str) -> Path:
    root = Path(settings.TENURE.dev_tool_root).resolve()
    try:
        path = (root / file).resolve()
    except (OSError, ValueError):
        raise ToolFailed(f"{file!r} is not a file name.") from None
    if path == root or not path.is_relative_to(root):
        raise ToolFailed(f"{file!r} is not below the folder of the development tools.")
    return path


def _append_byte(path: Path) -> int:
    """Exactly one byte, on disk when this returns; the size of the file after it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.write(descriptor, b".")
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


TOOLS = [
    ToolDefinition(
        name="dev_append",
        description="Append one byte to a file in the development folder. For tests: never run twice.",
        input_schema={
            "type": "object",
            "properties": {
                "file": {"type": "string", "minLength": 1, "maxLength": 200},
                "delay": _DELAY
                | {"description": "Seconds to wait before, and again after the byte is written."},
            },
            "required": ["file"],
            "additionalProperties": False,
        },
        run=dev_append,
        permission="allow",
    ),
    ToolDefinition(
        name="dev_lookup",
        description="Look up the value of a key. For tests: it may run again after a crash.",
        input_schema={
            "type": "object",
            "properties": {
                "key": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
                "delay": _DELAY,
            },
            "required": ["key"],
            "additionalProperties": False,
        },
        rerun_safe=True,
        run=dev_lookup,
        permission="allow",
    ),
]
