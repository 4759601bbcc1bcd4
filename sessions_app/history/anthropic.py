"""Messages of Anthropic's Messages API. Pure.

Results of tools stand inside user messages there and are messages of their own here. Signed thinking is kept
with its signature and goes back to Anthropic only.
"""

from typing import Any

from sessions_app.history.shape import (
    MAX_ID,
    Block,
    Reader,
    assistant,
    call,
    invalid,
    media,
    objects,
    optional,
    result,
    string,
)

_PROVIDER = "anthropic"


def read(reader: Reader, message: dict[str, Any], path: str) -> None:
    role = message.get("role")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise invalid(f"{path}/content", "wrong_type", "must be a string or a list of content blocks")
    if role == "assistant":
        blocks = (
            [{"type": "text", "text": content}]
            if isinstance(content, str)
            else [_said(block, place) for block, place in objects(content, f"{path}/content")]
        )
        reader.add(assistant(blocks, _PROVIDER), path)
    elif role == "user":
        _user(reader, content, path)
    else:
        raise invalid(f"{path}/role", "not_allowed", "must be user or assistant")


def _user(reader: Reader, content: str | list[Any], path: str) -> None:
    if isinstance(content, str):
        reader.add({"role": "user", "content": [{"type": "text", "text": content}]}, path)
        return
    blocks = []
    for block, place in objects(content, f"{path}/content"):
        if block.get("type") == "tool_result":
            called = string(block, "tool_use_id", place, most=MAX_ID)
            error = bool(optional(block, "is_error", place, bool, "true, false"))
            reader.add(result(called, _parts(block.get("content"), f"{place}/content"), error=error), place)
        else:
            blocks.append(_part(block, place))
    if blocks:
        reader.add({"role": "user", "content": blocks}, path)


def _said(block: dict[str, Any], path: str) -> Block:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": string(block, "text", path)}
        case "thinking":
            kept: Block = {
                "type": "thinking",
                "thinking": string(block, "thinking", path),
                "provider": _PROVIDER,
            }
            signature = optional(block, "signature", path, str, "a string")
            return {**kept, "signature": signature} if signature else kept
        case "redacted_thinking":
            return {
                "type": "thinking",
                "thinking": "",
                "provider": _PROVIDER,
                "signature": string(block, "data", path),
                "details": {"id": "redacted_thinking"},
            }
        case "tool_use":
            return call(block, path, id_="id", name="name", arguments="input")
        case _:
            raise invalid(
                f"{path}/type", "not_allowed", "must be text, thinking, redacted_thinking or tool_use"
            )


def _parts(value: Any, path: str) -> list[Block]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [_part(block, place) for block, place in objects(value, path)]


def _part(block: dict[str, Any], path: str) -> Block:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": string(block, "text", path)}
        case "image" | "document":
            return _file(block.get("source"), f"{path}/source")
        case _:
            raise invalid(f"{path}/type", "not_allowed", "must be text, image, document or tool_result")


def _file(source: Any, path: str) -> Block:
    if not isinstance(source, dict):
        raise invalid(path, "wrong_type", "must be an object")
    match source.get("type"):
        case "base64":
            data, media_type = string(source, "data", path), string(source, "media_type", path)
            return media({"media_type": media_type, "data": data}, path)
        case "text":
            return {"type": "text", "text": string(source, "data", path)}
        case _:
            raise invalid(f"{path}/type", "not_allowed", "must be base64 or text; files are not fetched")
