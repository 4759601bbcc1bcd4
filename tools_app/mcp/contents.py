"""The result of an MCP tool as content of the log. Pure; takes it as the protocol writes it.

Text stays text, images and sounds become media, structured content a data block. Servers are asked to send the
structured content as text too, for clients that read nothing else; a model gets it once.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tools_app.results import Content

MAX_BLOCKS = 500
_UNKNOWN_TYPE = "application/octet-stream"


def content_of(result: Mapping[str, Any]) -> Content:
    """The blocks of a `CallToolResult`."""
    items = result.get("content") or []
    structured = result.get("structuredContent")
    blocks = [_block(item) for item in items[:MAX_BLOCKS]]
    if len(items) > MAX_BLOCKS:
        blocks.append(_text(f"({len(items) - MAX_BLOCKS} more parts were left out)"))
    if structured is not None:
        blocks = _with_structured(blocks, structured)
    return Content(blocks)


def _block(item: Mapping[str, Any]) -> dict[str, Any]:
    match item:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _media(data, item.get("mimeType"), kind)
        case {"type": "resource", "resource": {"text": str(text), **resource}}:
            return _text(f"{resource.get('uri')}:\n{text}")
        case {"type": "resource", "resource": {"blob": str(data), **resource}}:
            uri = str(resource.get("uri") or "")
            return _media(data, resource.get("mimeType"), uri or "resource", name=_file_name(uri))
        case {"type": "resource_link"}:
            told = [item.get("title") or item.get("name"), item.get("uri"), item.get("description")]
            return _text(" - ".join(str(part) for part in told if part))
        case _:
            return {"type": "data", "value": dict(item)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _media(data: str, media_type: Any, what: str, name: str | None = None) -> dict[str, Any]:
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return _text(f"({what}: its bytes are not base64)")
    block = {"type": "media", "data": data, "media_type": str(media_type or _UNKNOWN_TYPE)}
    return block | {"name": name} if name else block


def _file_name(uri: str) -> str | None:
    try:
        return urlsplit(uri).path.rpartition("/")[2] or None
    except ValueError:
        return None


def _with_structured(blocks: list[dict[str, Any]], structured: Any) -> list[dict[str, Any]]:
    """The structured content beside the blocks that say something else."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if isinstance(structured, dict) and set(structured) == {"result"}:
        # What servers make of a plain value, which the text has as well.
        value = structured["result"]
        if any(text == value or _same(_parsed(text), value) for text in texts):
            return blocks
        if isinstance(value, list) and texts and _same([_parsed(text) for text in texts], value):
            return blocks
    rest = [
        block for block in blocks if block["type"] != "text" or not _same(_parsed(block["text"]), structured)
    ]
    return [{"type": "data", "value": structured}, *rest]


class _NoJson:
    pass


_NO_JSON = _NoJson()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text or _NO_JSON


def _same(first: Any, second: Any) -> bool:
    """As JSON: in Python 1 == True."""
    if first is _NO_JSON:
        return False
    try:
        return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False
