"""What a tool gave back, made into content that the log can hold and a model can read (S8).

Text becomes a text block, `Content` is taken as it is, everything else is a data block: JSON values, and what
pydantic makes JSON of (models, dataclasses, times, enums). What PostgreSQL can't store is replaced, NaN becomes
null. A result that is longer than the limit is cut to its two ends; of an outside tool the whole is kept as an
artifact, stored before the transaction that saves the result begins, because writing to the storage is an
effect outside of it.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_core import to_jsonable_python

from sessions_app.text import clean_json, cut_head_tail
from sessions_app.tool_port import Blocks


class ToolFailed(Exception):
    """Raised by a tool: it did not work, and the message tells the model why.

    `more` of an outside tool goes with it: text, JSON or `Content`, such as what another system said.
    """

    def __init__(self, message: str = "", *, more: Any = None) -> None:
        super().__init__(message)
        self.more = more


class UnusableResult(ValueError):
    """The tool ran, but gave something back that can't be stored."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content blocks of a tool: text, data, and media (`data` in base64 with `media_type`, or `artifact`)."""

    blocks: Blocks


class Keep(Protocol):
    def __call__(self, *, name: str, media_type: str, data: bytes) -> str | None:
        """Store bytes as an artifact; its id, or None if they can't be kept."""


def content_of(result: Any, *, name: str, limit: int, keep: Keep | None) -> Blocks:
    """The blocks of a result, of at most `limit` characters (media apart).

    Without `keep` nothing outside the database may be written: a cut result is not kept in full then, and
    inline media is refused. Raises `UnusableResult`.
    """
    blocks = [_with_artifact(block, name, keep) for block in _blocks(result)]
    sizes = sum(len(_text_of(block)) for block in blocks if block["type"] != "media")
    return blocks if sizes <= limit else _cut(blocks, name, limit, keep)


def _blocks(result: Any) -> Blocks:
    match result:
        case None:
            return []
        case str():
            blocks: Any = [{"type": "text", "text": result}]
        case Content():
            blocks = result.blocks
        case _:
            blocks = [{"type": "data", "value": result}]
    try:
        cleaned: list[Any] = clean_json(_as_json(blocks), on_nan="null")
        json.dumps(cleaned)
    except (TypeError, ValueError) as error:
        raise UnusableResult(f"its result can't be stored as JSON: {error}") from None
    if not all(_is_block(block) for block in cleaned):
        raise UnusableResult("its result holds a block that is no whole text, data or media")
    return cleaned


def _as_json(blocks: Any) -> Any:
    """The same blocks, with pydantic's JSON for what is none by itself."""
    try:
        json.dumps(blocks)
    except (TypeError, ValueError):
        return to_jsonable_python(blocks)
    return blocks


def _is_block(block: Any) -> bool:
    match block:
        case {"type": "text", "text": str()} | {"type": "data", "value": _}:
            return True
        case {"type": "media", "artifact": str()} | {"type": "media", "data": str(), "media_type": str()}:
            return True
        case _:
            return False


def _with_artifact(block: dict[str, Any], name: str, keep: Keep | None) -> dict[str, Any]:
    if block["type"] != "media" or "data" not in block:
        return block
    if keep is None:
        raise UnusableResult("an internal tool can't give back media by value")
    try:
        data = base64.b64decode(block["data"], validate=True)
    except ValueError:
        raise UnusableResult("its result holds media that is not base64") from None
    artifact = keep(name=block.get("name") or name, media_type=block["media_type"], data=data)
    if artifact is None:
        return {"type": "text", "text": f"(a file of type {block['media_type']} could not be kept)"}
    return {"type": "media", "artifact": artifact}


def _cut(blocks: Blocks, name: str, limit: int, keep: Keep | None) -> Blocks:
    """One text with the two ends of everything, and the media behind it."""
    whole = "\n".join(_text_of(block) for block in blocks if block["type"] != "media")
    kept = None
    if keep is not None:
        is_json = len(blocks) == 1 and blocks[0]["type"] == "data"
        kind = ("json", "application/json") if is_json else ("txt", "text/plain; charset=utf-8")
        kept = keep(name=f"{name}.{kind[0]}", media_type=kind[1], data=whole.encode())
    note = f"\n(the whole output of {len(whole)} characters is artifact {kept})" if kept else ""
    text, _ = cut_head_tail(whole, limit - len(note))
    return [{"type": "text", "text": text + note}, *(block for block in blocks if block["type"] == "media")]


def _text_of(block: dict[str, Any]) -> str:
    if block["type"] == "text":
        text: str = block["text"]
        return text
    return json.dumps(block["value"], ensure_ascii=False)
