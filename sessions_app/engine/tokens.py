"""How many tokens a request will have, cheaply: from the number of characters, by the kind of block. Pure.

An estimate decides when to compact, so it has to be there before every call and must not cost a pass over the
history: each message is measured once, when it enters the context, and the context keeps the sum. The estimate
is then corrected by what the provider counted for the last call (`calibrated`): tokenizers differ by language
and model far more than the number of characters tells.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

CHARACTERS_PER_TOKEN = 4
JSON_CHARACTERS_PER_TOKEN = 3
"""Punctuation and short keys make JSON denser than prose."""

MESSAGE_TOKENS = 4
"""What a message costs beside its content: its role and its frame."""

IMAGE_TOKENS = 1600
"""About what an image of a megapixel costs with the large providers."""

FILE_TOKENS = 3000
"""Any other file: a few pages."""

RATIOS = (0.5, 3.0)
"""Beyond these a count says more about a short request or about what a provider adds than about its tokenizer."""


def of_message(message: Mapping[str, Any]) -> int:
    """The estimated tokens of a message dict; notes are not sent."""
    if message.get("role") == "note":
        return 0
    return MESSAGE_TOKENS + of_content(message.get("content"))


def of_content(content: Any) -> int:
    """Of a text or a list of blocks, as entries or as messages have them."""
    if isinstance(content, str):
        return of_text(content)
    if not isinstance(content, list | tuple):
        return 0
    return sum(_of_block(block) for block in content if isinstance(block, Mapping))


def of_text(text: str, characters_per_token: int = CHARACTERS_PER_TOKEN) -> int:
    """Characters outside ASCII count by their bytes: other scripts need more tokens for the same length."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-length // characters_per_token)


def of_json(value: Any) -> int:
    """Of a value that goes out as JSON; a string is taken for JSON that is encoded already."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return of_text(text, JSON_CHARACTERS_PER_TOKEN)


def of_frame(
    instructions: str, tools: Iterable[Mapping[str, Any]], output_schema: Mapping[str, Any] | None
) -> int:
    """What goes out with every request of a config, beside the messages."""
    fixed = of_text(instructions) + sum(of_json(tool) for tool in tools)
    return fixed + (of_json(output_schema) if output_schema else 0)


def calibrated(*, counted: int, estimated: int) -> float:
    """What to multiply estimates with, after a provider counted `counted` tokens for `estimated` ones."""
    if counted <= 0 or estimated <= 0:
        return 1.0
    low, high = RATIOS
    return min(high, max(low, counted / estimated))


def _of_block(block: Mapping[str, Any]) -> int:
    match block.get("type"):
        case "text":
            return _of_any(block.get("text"))
        case "reasoning":
            return _of_any(block.get("text"))
        case "thinking":
            return _of_any(block.get("thinking"))
        case "tool_call":
            arguments = block.get("arguments_raw", block.get("arguments", block.get("args")))
            return _of_any(block.get("name")) + of_json(arguments) + MESSAGE_TOKENS
        case "media":
            kind = str(block.get("media_type") or "image/")
            return IMAGE_TOKENS if kind.startswith("image/") else FILE_TOKENS
        case "data":
            return of_json(block.get("value"))
        case _:
            return of_json(dict(block))


def _of_any(value: Any) -> int:
    return of_text(value) if isinstance(value, str) else 0
