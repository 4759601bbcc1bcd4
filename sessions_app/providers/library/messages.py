"""Our message dicts to the library's messages, and its response to our entry blocks, without loss.

What a block carries beyond its text is kept under `details` and goes back to the provider that made it,
unchanged: item ids, and whatever the library keeps as provider details (`provider` says whose they are; the
view leaves foreign ones out before they get here). Reasoning keeps its signature beside its text.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from sessions_app.providers.library.correctors import MADE_UP
from sessions_app.providers.port import Usage

Block = dict[str, Any]


def to_library(
    messages: Sequence[Mapping[str, Any]], *, provider: str, system: str, instructions: str
) -> list[ModelMessage]:
    """The messages of a request view for a library model whose own name for the provider is `system`."""
    result: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = []
    for message in messages:
        if message["role"] == "assistant":
            if waiting:
                result.append(ModelRequest(parts=waiting))
                waiting = []
            parts = [
                part
                for block in _blocks(message)
                if (part := _response_part(block, provider, system)) is not None
            ]
            result.append(ModelResponse(parts=parts, provider_name=system))
        elif message["role"] == "tool_result":
            waiting.append(_tool_return(message))
        else:
            waiting.append(UserPromptPart(content=_user_content(_blocks(message))))
    result.append(ModelRequest(parts=waiting, instructions=instructions or None))
    return result


def from_library(response: ModelResponse, provider: str) -> list[Block]:
    """The entry blocks of a response. Blocks that hold nothing are left out."""
    blocks = [_entry_block(part, provider) for part in response.parts]
    return unique_calls([block for block in blocks if block is not None])


def usage_of(response: ModelResponse) -> Usage:
    """The tokens of a response."""
    usage = response.usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        reasoning_tokens=usage.details.get("reasoning_tokens") or usage.details.get("thoughts_tokens") or 0,
        cache_write_tokens=usage.cache_write_tokens,
    )


def unique_calls(blocks: Iterable[Block]) -> list[Block]:
    """Each call once, under an id of its own.

    Exact duplicates (same id, name and arguments) are dropped (C05); another call under a used id gets a
    new id, the same each time (C06).
    """
    kept: list[Block] = []
    by_id: dict[str, list[tuple[str, str]]] = {}
    blocks = list(blocks)
    taken = {block["id"] for block in blocks if block["type"] == "tool_call"}
    for block in blocks:
        if block["type"] == "tool_call":
            said = block.get("arguments_raw", json.dumps(block["arguments"], sort_keys=True))
            seen = by_id.setdefault(block["id"], [])
            if (block["name"], said) in seen:
                continue
            seen.append((block["name"], said))
            if len(seen) > 1:
                number = len(seen)
                while (fresh := f"{block['id']}_{number}") in taken:
                    number += 1
                taken.add(fresh)
                block = {**block, "id": fresh}  # noqa: PLW2901
        kept.append(block)
    return kept


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _user_content(blocks: Sequence[Block]) -> str | list[UserContent]:
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return str(blocks[0]["text"])
    return [content for block in blocks if (content := _content(block)) is not None]


def _content(block: Block) -> UserContent | None:
    match block["type"]:
        case "text":
            return str(block["text"])
        case "data":
            return json.dumps(block["value"], ensure_ascii=False)
        case "media":
            return BinaryContent(data=base64.b64decode(block["data"]), media_type=block["media_type"])
        case _:
            return None


def _tool_return(message: Mapping[str, Any]) -> ToolReturnPart:
    blocks = _blocks(message)
    contents = [item for block in blocks if (item := _content(block)) is not None]
    content: Any = contents
    if all(isinstance(item, str) for item in contents):
        content = "\n".join(str(item) for item in contents)
    return ToolReturnPart(
        tool_name=message.get("name") or "unknown",
        content=content,
        tool_call_id=message["id"],
        # Of the library's outcomes only this one reaches the model as an error.
        outcome="failed" if message.get("error") else "success",
    )


def _response_part(block: Block, provider: str, system: str) -> ModelResponsePart | None:
    own = block.get("provider") == provider
    details = block.get("details") if own else None
    kept: dict[str, Any] = {}
    if details:
        kept = {"id": details.get("id"), "provider_details": details.get("provider_details")}
        kept["provider_name"] = system
    match block["type"]:
        case "text":
            return TextPart(content=block["text"], **kept)
        case "thinking":
            if not own:
                return None
            return ThinkingPart(
                content=block.get("thinking") or "",
                signature=block.get("signature"),
                **{**kept, "provider_name": system},
            )
        case "tool_call":
            return ToolCallPart(tool_name=block["name"], args=block["args"], tool_call_id=block["id"], **kept)
        case _:
            return None


def _entry_block(part: ModelResponsePart, provider: str) -> Block | None:
    if isinstance(part, TextPart):
        if not part.content:
            return None
        return {"type": "text", "text": part.content, **_details(part, provider)}
    if isinstance(part, ThinkingPart):
        if not part.content and not part.signature:
            return None
        block: Block = {"type": "reasoning", "text": part.content, "provider": provider}
        if part.signature:
            block["signature"] = part.signature
        return {**block, **_details(part, provider)}
    if isinstance(part, ToolCallPart):
        return {
            "type": "tool_call",
            "id": part.tool_call_id,
            "name": part.tool_name,
            **_arguments(part.args),
            **_details(part, provider),
        }
    return None


def _details(part: TextPart | ThinkingPart | ToolCallPart, provider: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if part.id and not part.id.startswith(MADE_UP):
        details["id"] = part.id
    if part.provider_details:
        details["provider_details"] = json.loads(json.dumps(part.provider_details, default=str))
    return {"provider": provider, "details": details} if details else {}


def _arguments(args: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(args, Mapping):
        return {"arguments": dict(args)}
    if args is None or not args.strip():
        return {"arguments": {}}
    try:
        parsed = json.loads(args)
    except ValueError:
        parsed = None
    return {"arguments": parsed} if isinstance(parsed, dict) else {"arguments": {}, "arguments_raw": args}
