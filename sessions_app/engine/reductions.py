"""What a provider would refuse for its size is left out of the request, with a note in its place. Pure.

One file above the provider's limits, or of a kind that it does not take, would be refused at every try and so
poison the session; many that are fine alone add up to a body that is refused. The log keeps every original.

- **One file** that is too large, too many pixels wide or high, or of a kind that the provider does not read
  becomes a line of text that says so. A media type that the bytes contradict is corrected.
- **All of them** have to fit the provider's body limit and number of images: the oldest are replaced first,
  then the texts of the oldest long tool results are cut to their head and tail.

Requests stay stable while a conversation grows: what is left out is decided by walking from the oldest message
to the newest, and whenever the limit is passed, enough is dropped to have room again for a while. So a prefix
that a provider has cached changes once in a while and not with every new image.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.engine.images import Header, is_text, read_base64
from sessions_app.text import cut_head_tail

Message = dict[str, Any]

MIB = 1 << 20
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_DOCUMENTS = frozenset({"application/pdf"})
_BLOCK_OVERHEAD = 300  # bytes around one file or text in a body: keys, quotes, its media type
_NOTE = 200  # bytes of a note
_ROOM = 4  # a fourth of a limit is free again after it was passed
_CUT_TO = 4_000  # characters that stay of a tool result that is cut
_WORST_ESCAPE = 6  # bytes that one character can become in JSON


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider takes. Bytes of files are counted as they are sent, in base64.

    `many_images` is the number of images above which each may have at most `side_of_many` pixels a side.
    `types` are the media types that are read besides text; None for a server that nothing is known of.
    """

    body: int
    file: int
    images: int
    side: int | None = None
    many_images: int | None = None
    side_of_many: int | None = None
    types: frozenset[str] | None = None
    type_families: tuple[str, ...] = ()


# As the providers document them; where the documents and the servers differ, the smaller number.
ANTHROPIC = Limits(
    body=32 * MIB,
    file=5 * MIB,
    images=100,
    side=8000,
    many_images=20,
    side_of_many=2000,
    types=_IMAGES | _DOCUMENTS,
    type_families=("text/",),
)
OPENAI = Limits(
    body=50 * MIB, file=20 * MIB, images=500, types=_IMAGES | _DOCUMENTS, type_families=("text/",)
)
GOOGLE = Limits(
    body=20 * MIB,
    file=15 * MIB,
    images=3000,
    types=_IMAGES | _DOCUMENTS | {"image/heic", "image/heif"},
    type_families=("audio/", "video/", "text/"),
)
OTHER = Limits(body=20 * MIB, file=15 * MIB, images=100)
_LIMITS = {"anthropic": ANTHROPIC, "openai": OPENAI, "openai-chat": OPENAI, "google": GOOGLE}


def limits_of(provider: Any) -> Limits:
    """The limits of a provider by the name that configs use."""
    return _LIMITS.get(provider, OTHER) if isinstance(provider, str) else OTHER


def reduce(
    view: Sequence[Message], provider: Any, *, budget: int | None = None, beside: int = 0
) -> Sequence[Message]:
    """The view with what is too much left out; the same object where nothing is.

    `budget` is a smaller body limit than the provider's, after it refused a body; `beside` are the bytes of
    the body that are not messages (instructions, tools).
    """
    limits = limits_of(provider)
    body = min(limits.body, budget or limits.body) - beside
    messages = _each_alone(view, limits, side=limits.side)
    if any(_files(message) for message in messages):
        messages = _without_oldest_files(messages, body, limits)
        if limits.many_images is not None and _count(messages) > limits.many_images:
            messages = _each_alone(messages, limits, side=limits.side_of_many)
    if _at_most(messages) > body and _size(messages) > body:
        messages = _with_cut_results(messages, body)
    return view if messages is view else messages


def can_shrink(view: Sequence[Message]) -> bool:
    """Whether a smaller budget would change anything: there are files, or long tool results."""
    return any(
        _has_files(message) or (message.get("role") == "tool_result" and _long_texts(message))
        for message in view
    )


# --- each file alone -------------------------------------------------------------------------------------


def _each_alone(view: Sequence[Message], limits: Limits, *, side: int | None) -> Sequence[Message]:
    changed = False
    messages = []
    for message in view:
        files = _files(message)
        new = message
        if files:
            content = list(message["content"])
            for index in files:
                content[index] = _alone(content[index], limits, side)
            if any(content[index] is not message["content"][index] for index in files):
                new = {**message, "content": content}
                changed = True
        messages.append(new)
    return messages if changed else view


def _alone(block: Message, limits: Limits, side: int | None) -> Message:
    declared = str(block["media_type"]).partition(";")[0].strip().lower()
    size = len(block["data"])
    header = read_base64(block["data"]) if declared.startswith("image/") else None
    kind = declared if header is None else header.media_type
    if declared in _IMAGES and header is None and is_text(block["data"]):
        return _note(
            f"A file that is declared as {declared} is left out: it is not an image that can be read."
        )
    if limits.types is not None and kind not in limits.types and not kind.startswith(limits.type_families):
        return _note(f"A file of type {kind} is left out: the model's provider does not read it.")
    if size > limits.file:
        return _note(
            f"{_name(kind, header)} is left out: it is {_megabytes(size)} as it would be sent, and the model's "
            f"provider takes at most {_megabytes(limits.file)} for one file."
        )
    if header is not None and side is not None and max(header.width or 0, header.height or 0) > side:
        return _note(
            f"{_name(kind, header)} is left out: the model's provider takes at most {side} pixels a side"
            f"{'' if side == limits.side else ' where there are many images'}."
        )
    return block if kind == declared else {**block, "media_type": kind}


def _name(kind: str, header: Header | None) -> str:
    if header is None or header.width is None:
        return f"A file of type {kind}"
    return f"An image of {header.width} x {header.height} pixels"


def _megabytes(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def _note(text: str) -> Message:
    return {"type": "text", "text": f"({text} The original is kept in the session.)"}


_OLD = _note("An older file is left out to keep the request within the size that the model's provider takes.")


# --- all of them together --------------------------------------------------------------------------------


def _without_oldest_files(view: Sequence[Message], body: int, limits: Limits) -> Sequence[Message]:
    """Walk from the oldest message to the newest and drop the oldest files whenever there is too much."""
    total = 0
    kept: list[tuple[int, int, int]] = []  # (message, block, bytes), oldest first
    dropped: set[tuple[int, int]] = set()
    for at, message in enumerate(view):
        total += _size([message])
        kept += [(at, index, len(message["content"][index]["data"])) for index in _files(message)]
        if total > body or len(kept) > limits.images:
            first = 0
            most = body - body // _ROOM
            most_images = limits.images - limits.images // _ROOM
            while first < len(kept) and (total > most or len(kept) - first > most_images):
                place, block, size = kept[first]
                dropped.add((place, block))
                total -= size - _NOTE
                first += 1
            del kept[:first]
    if not dropped:
        return view
    return [
        {
            **message,
            "content": [
                _OLD if (at, index) in dropped else block for index, block in enumerate(message["content"])
            ],
        }
        if any(place == at for place, _ in dropped)
        else message
        for at, message in enumerate(view)
    ]


def _with_cut_results(view: Sequence[Message], body: int) -> Sequence[Message]:
    """Cut the longest there is to cut, oldest first, in the same way as files are dropped."""
    messages = list(view)
    total = 0
    long: list[int] = []
    for at, message in enumerate(view):
        total += _size([message])
        if message.get("role") == "tool_result" and _long_texts(message):
            long.append(at)
        if total > body:
            while long and total > body - body // _ROOM:
                cut = _cut(messages[long[0]])
                total -= _size([messages[long[0]]]) - _size([cut])
                messages[long.pop(0)] = cut
    return messages


def _cut(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": _cut_text(content)}
    return {
        **message,
        "content": [
            {**block, "text": _cut_text(block["text"])} if _is_long(block) else block for block in content
        ],
    }


def _cut_text(text: str) -> str:
    cut, _ = cut_head_tail(text, _CUT_TO)
    return cut


def _long_texts(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return len(content) > 2 * _CUT_TO
    return any(_is_long(block) for block in content or ())


def _is_long(block: Message) -> bool:
    return block.get("type") == "text" and len(block["text"]) > 2 * _CUT_TO


# --- measuring -------------------------------------------------------------------------------------------


def _files(message: Message) -> list[int]:
    """The places of the files among the blocks of a message."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [index for index, block in enumerate(content) if block.get("type") == "media" and "data" in block]


def _count(view: Sequence[Message]) -> int:
    return sum(len(_files(message)) for message in view)


def _has_files(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(block.get("type") == "media" for block in content)


def _at_most(view: Sequence[Message]) -> int:
    """A bound that costs nothing to compute, for the many requests that are far below every limit."""
    total = 0
    for message in view:
        content = message.get("content")
        if isinstance(content, str):
            total += len(content) * _WORST_ESCAPE + _BLOCK_OVERHEAD
            continue
        for block in content or ():
            total += _BLOCK_OVERHEAD
            for value in block.values():
                if isinstance(value, str):
                    total += len(value) * (1 if block.get("type") == "media" else _WORST_ESCAPE)
                elif isinstance(value, dict | list):
                    total += len(json.dumps(value))
    return total


def _size(view: Sequence[Message]) -> int:
    total = 0
    for message in view:
        content = message.get("content")
        blocks = [content] if isinstance(content, str) else content or ()
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "media":
                total += len(block.get("data") or "")
            else:
                total += len(json.dumps(block, ensure_ascii=False, default=str).encode("utf-8", "replace"))
            total += _BLOCK_OVERHEAD
    return total
