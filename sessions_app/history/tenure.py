"""Our own message shape, strictly: what an export in the format `messages` gives. Pure."""

from collections.abc import Mapping
from typing import Any

from sessions_app import content as contents
from sessions_app.history.shape import (
    MAX_ID,
    MAX_NAME,
    Block,
    Reader,
    call,
    invalid,
    objects,
    optional,
    result,
    string,
)

_FIELDS: Mapping[str, frozenset[str]] = {
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content", "stop", "error", "provider", "model"}),
    "tool_result": frozenset({"role", "content", "id", "name", "error", "answered"}),
    "note": frozenset({"role", "content"}),
    "summary": frozenset({"role", "content"}),
    "checkpoint": frozenset({"role", "content"}),
}
_MADE_BY = frozenset({"provider", "details", "signature"})
_BLOCKS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}) | _MADE_BY,
    "thinking": frozenset({"type", "thinking"}) | _MADE_BY,
    "tool_call": frozenset({"type", "tool_call", "id", "name", "args"}) | _MADE_BY,
}


def read(reader: Reader, message: dict[str, Any], path: str) -> None:
    role = message.get("role")
    fields = _FIELDS.get(role) if isinstance(role, str) else None
    if fields is None:
        raise invalid(f"{path}/role", "not_allowed", f"must be one of {', '.join(_FIELDS)}")
    _only(message, fields, path)
    content = f"{path}/content"
    match role:
        case "user":
            blocks = contents.parse(message.get("content"), path=content, may_be_empty=True)
            reader.add({"role": "user", "content": blocks}, path)
        case "tool_result":
            made = result(
                string(message, "id", path, most=MAX_ID),
                contents.parse(message.get("content") or [], path=content, may_be_empty=True),
                name=optional(message, "name", path, str, "a string"),
                error=bool(optional(message, "error", path, bool, "true, false")),
            )
            if len(made["name"] or "") > MAX_NAME:
                raise invalid(f"{path}/name", "out_of_range", f"must have at most {MAX_NAME} characters")
            made["answered"] = bool(optional(message, "answered", path, bool, "true, false"))
            reader.add(made, path)
        case "assistant":
            reader.add(
                {
                    "role": "assistant",
                    "content": _reply(message.get("content"), content),
                    **{
                        name: optional(message, name, path, str, "a string")
                        for name in ("stop", "error", "provider", "model")
                    },
                },
                path,
            )
        case _:
            blocks = contents.parse(message.get("content"), path=content, may_be_empty=True)
            for index, block in enumerate(blocks):
                if block["type"] != "text":
                    raise invalid(f"{content}/{index}/type", "not_allowed", "must be text")
            text = "\n".join(block["text"] for block in blocks)
            reader.add({"role": role, "content": text}, path)


def _reply(value: Any, path: str) -> list[Block]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [_block(block, place) for block, place in objects(value, path)]


def _block(block: Block, path: str) -> Block:
    kind = block.get("type")
    fields = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        # Files and values, as in an input; an unknown kind is told there.
        return contents.parse_block(block, path=path)
    _only(block, fields, path)
    made_by = {
        "provider": optional(block, "provider", path, str, "a string"),
        "signature": optional(block, "signature", path, str, "a string"),
        "details": optional(block, "details", path, dict, "an object"),
    }
    kept = {name: value for name, value in made_by.items() if value is not None}
    if kind == "tool_call":
        return call(block, path, id_="id", name="name", arguments="args") | kept
    says = str(kind)  # both kinds have their text under their own name
    return {"type": says, says: string(block, says, path), **kept}


def _only(value: dict[str, Any], known: frozenset[str], path: str) -> None:
    for name in value:
        if name not in known:
            raise invalid(f"{path}/{name}", "unknown_field", "unknown field")
