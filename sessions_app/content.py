"""Content as clients send it: text, files and JSON values, checked and brought into the form that is stored.

`parse` is about the shape alone. `keep_files` stores the bytes that came inside a request as artifacts, so that
the log holds references only, and checks that artifacts which are named belong to the project.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from sessions_app import artifacts, ids
from sessions_app.entry_kinds import Block, Blocks
from sessions_app.errors import Invalid, NotFound
from sessions_app.text import clean_json

MAX_BLOCKS = 1000


def parse(value: Any, *, path: str = "/content", may_be_empty: bool = False) -> Blocks:
    """The blocks of an input: a bare string is one text block. Raises `Invalid` with the places that are wrong.

    `may_be_empty` is for what was said elsewhere: it is taken as it was.
    """
    if isinstance(value, str):
        value = [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise _invalid(path, "wrong_type", "must be a string or a list of content blocks")
    least = 0 if may_be_empty else 1
    if not least <= len(value) <= MAX_BLOCKS:
        raise _invalid(path, "out_of_range", f"must hold {least} to {MAX_BLOCKS} blocks")
    problems: list[dict[str, str]] = []
    blocks = []
    for index, block in enumerate(value):
        try:
            blocks.append(parse_block(block, path=f"{path}/{index}"))
        except Invalid as error:
            problems += error.errors
    if problems:
        raise Invalid("; ".join(f"{item['path']}: {item['message']}" for item in problems), errors=problems)
    if not may_be_empty and all(block["type"] == "text" and not block["text"].strip() for block in blocks):
        raise _invalid(path, "too_short", "must say something: it holds blank text only")
    cleaned: Blocks = clean_json(blocks)
    return cleaned


def keep_files(blocks: Blocks, *, project: UUID, path: str = "/content") -> Blocks:
    """The same blocks with inline bytes stored as artifacts; raises `Invalid` for an artifact that is not there."""
    return [_kept(block, project, f"{path}/{index}") for index, block in enumerate(blocks)]


def _kept(block: Block, project: UUID, path: str) -> Block:
    if block["type"] != "media":
        return block
    if "data" in block:
        media_type = block["media_type"]
        try:
            stored = artifacts.store(
                project=project,
                name=media_type.replace("/", "."),
                media_type=media_type,
                data=base64.b64decode(block["data"]),
            )
        except Invalid as error:
            raise _invalid(f"{path}/media_type", "malformed", error.detail) from None
        return {"type": "media", "artifact": ids.encode("art", stored.pk)}
    try:
        artifacts.get(project=project, artifact=ids.decode("art", block["artifact"]))
    except NotFound:
        raise _invalid(f"{path}/artifact", "not_found", "no such artifact") from None
    return block


def parse_block(block: Any, *, path: str) -> Block:
    """One block; `Invalid` with the place that is wrong."""
    if not isinstance(block, dict):
        raise _invalid(path, "wrong_type", "must be an object")
    kind = block.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise _invalid(f"{path}/type", "not_allowed", f"must be one of {', '.join(_READERS)}")
    return read(block, path)


def _text(block: Block, path: str) -> Block:
    _only(block, path, {"type", "text"})
    return {"type": "text", "text": _string(block, "text", path)}


def _data(block: Block, path: str) -> Block:
    _only(block, path, {"type", "value"})
    if "value" not in block:
        raise _invalid(f"{path}/value", "required", "required")
    return {"type": "data", "value": block["value"]}


def _media(block: Block, path: str) -> Block:
    _only(block, path, {"type", "artifact", "data", "media_type"})
    if ("artifact" in block) == ("data" in block):
        raise _invalid(path, "not_allowed", "must hold either an artifact or data")
    if "artifact" in block:
        if "media_type" in block:
            raise _invalid(f"{path}/media_type", "not_allowed", "goes with data; an artifact has its own")
        artifact = _string(block, "artifact", path)
        try:
            ids.decode("art", artifact)
        except ids.InvalidId as error:
            raise _invalid(f"{path}/artifact", "malformed", str(error)) from None
        return {"type": "media", "artifact": artifact}
    data = _string(block, "data", path)
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(f"{path}/data", "malformed", "must be base64") from None
    return {"type": "media", "data": data, "media_type": _string(block, "media_type", path)}


_READERS: Mapping[str, Callable[[Block, str], Block]] = {"text": _text, "media": _media, "data": _data}


def _only(block: Block, path: str, known: set[str]) -> None:
    for name in block:
        if name not in known:
            raise _invalid(f"{path}/{name}", "unknown_field", "unknown field")


def _string(block: Block, name: str, path: str) -> str:
    if name not in block:
        raise _invalid(f"{path}/{name}", "required", "required")
    value = block[name]
    if not isinstance(value, str):
        raise _invalid(f"{path}/{name}", "wrong_type", "must be a string")
    return value


def _invalid(path: str, code: str, message: str) -> Invalid:
    return Invalid(f"{path}: {message}", errors=[{"path": path, "code": code, "message": message}])
