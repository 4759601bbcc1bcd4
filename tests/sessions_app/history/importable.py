"""Generated transcripts as the readers give them: any history of the resume tests, in storable form."""

from typing import Any

from hypothesis import strategies as st

from sessions_app.errors import Invalid
from sessions_app.history import reading
from sessions_app.text import clean_json
from tests.sessions_app.engine.generated import PROVIDERS, transcripts

_KNOWN_BLOCKS = {"text", "thinking", "tool_call", "data"}


def _as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what a client may not send: unknown blocks, empty ids, files."""
    content = message.get("content")
    if isinstance(content, list):
        known = [b for b in content if isinstance(b, dict) and b.get("type") in _KNOWN_BLOCKS]
        content = [_block(b) for b in known if b["type"] != "text" or "text" in b]
        if message["role"] != "assistant":
            content = [{key: b[key] for key in ("type", "text", "value") if key in b} for b in content]
        if message["role"] in {"note", "summary", "checkpoint"}:
            content = [b for b in content if b["type"] == "text"]
    sent = {**message, "content": content or []}
    if message["role"] == "tool_result":
        sent["id"] = message["id"] or "empty"
    return sent


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_call":
        args = block["args"] if isinstance(block["args"], dict | str) else {}
        return {**block, "id": block["id"] or "empty", "name": block["name"] or "unnamed", "args": args}
    return block


def sent(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as the body of a request could hold them."""
    cleaned: list[dict[str, Any]] = clean_json([_as_sent(message) for message in messages], on_nan="null")
    return cleaned


def read(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not messages:
        return []
    try:
        return [found.message for found in reading.parse("tenure", sent(messages)).found]
    except Invalid as error:
        raise AssertionError(f"the generator made what no client can send: {error.errors}") from error


def importable() -> st.SearchStrategy[list[dict[str, Any]]]:
    return transcripts(PROVIDERS).map(read)
