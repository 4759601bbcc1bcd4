"""A whole view as one provider accepts it.

`build` expects a repaired view (each frame followed by one result per call, in call order) and changes only
what a provider would refuse, so a request stays the same, byte for byte, when the transcript grows:

- **Ids.** A call id that is too long, holds other characters, or was used before becomes a hash of itself;
  a legal one stays. Ids are given out in the order of the calls, so a later message never changes an
  earlier id. Exact duplicates of a call inside one frame are sent once.
- **Reasoning** goes back only to the provider that made it, and only signed (OpenAI: and with its item id).
  Where an OpenAI reasoning item is left out, what followed it loses its stored item id (an item sent by id
  asks for its reasoning). Reasoning that nothing follows is left out: it belongs to what came after it. No
  item id is sent twice.
- **Text.** Empty blocks are left out; a result or a user message without content gets a placeholder.
- **Arguments** are a JSON object within the size limit, names are legal, text is valid UTF-8.
- **Roles.** Notes are ours and left out; summaries and checkpoints speak as the user. A request begins
  with a user message and ends in a user message or a tool result.
"""

import hashlib
import json
import re
from collections.abc import Hashable
from typing import Any

from sessions_app.engine.transcript import (
    ASSISTANT,
    TOOL_RESULT,
    USER,
    Frame,
    Message,
    canonical,
    identity,
    is_blank,
    listed,
    read_frame,
    role_of,
)
from sessions_app.text import UnstorableJson, clean_json, clean_text

NO_OUTPUT = "(no output)"
EMPTY_MESSAGE = "(empty message)"
OPENING = "(The beginning of this conversation is not shown.)"
GO_ON = "Continue."

ID_LIMIT = {"openai": 64, "anthropic": 64, "google": 64}
NARROWEST_ID_LIMIT = 40
"""Chat Completions, and whatever speaks it."""

NAME_LIMIT = 64
ARGUMENTS_LIMIT = 1_048_576
"""Characters of a call's arguments as JSON, at which OpenAI Responses refuses a request."""

_LEGAL = re.compile(r"[A-Za-z0-9_-]+")
_ILLEGAL_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_STORED_BY_PROVIDER = ("provider", "details", "signature")
_SPEAKS_AS_USER = ("summary", "checkpoint")
_WITHOUT_SIGNED_REASONING = ("openai-chat",)


def build(view: Any, provider: str) -> Any:
    """Change what `provider` would refuse; the same object comes back where there is nothing to change."""
    request = _Request(provider)
    items = listed(view)
    for message in items:
        request.add(message)
    built = request.finish()
    if len(built) == len(items) and all(new is old for new, old in zip(built, items, strict=True)):
        return view
    return built


class SentIds:
    """Gives every call of one request its own legal id.

    Ask in the order of the calls, once per call. The same transcript always gets the same ids, and ids that
    are already legal and unique stay as they are, so a request built from a request changes nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: set[str] = set()
        self._hashed: dict[Hashable, int] = {}

    def for_call(self, stored: Any) -> str:
        """The id to send for the next call, whose stored id this is."""
        sent = stored if self._is_free(stored) else self._hash(stored)
        self._taken.add(sent)
        return sent

    def _is_free(self, stored: Any) -> bool:
        if not isinstance(stored, str) or len(stored) > self._limit or stored in self._taken:
            return False
        return _LEGAL.fullmatch(stored) is not None

    def _hash(self, stored: Any) -> str:
        key = identity(stored)
        text = stored if isinstance(stored, str) else repr(key)
        while True:
            count = self._hashed[key] = self._hashed.get(key, -1) + 1
            sent = f"call_{_digest(f'{count}:{text}')}"
            if sent not in self._taken:
                return sent


class _Request:
    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._ids = SentIds(_id_limit(provider))
        self._items: set[str] = set()
        self._calls: list[tuple[str, Any]] = []
        self._messages: list[Message] = []

    def add(self, message: Any) -> None:
        role = role_of(message)
        if role == ASSISTANT:
            self._add_frame(message)
        elif role == TOOL_RESULT and self._calls:
            # Results of a whole view come in the order of the calls whose ids were just given out.
            sent, called = self._calls.pop()
            name = _sent_name(message.get("name") or called)
            content = _sayable(message.get("content"), NO_OUTPUT)
            self._messages.append(_changed(message, id=sent, name=name, content=content))
        elif role == USER:
            content = _sayable(message.get("content"), EMPTY_MESSAGE)
            self._messages.append(_changed(message, content=content))
        elif role in _SPEAKS_AS_USER:
            content = _sayable(message.get("content"), "")
            if content:
                self._messages.append({"role": USER, "content": content})

    def finish(self) -> list[Message]:
        messages = self._messages
        if messages and messages[0].get("role") != USER:
            messages.insert(0, {"role": USER, "content": OPENING})
        if messages and messages[-1].get("role") == ASSISTANT:
            messages.append({"role": USER, "content": GO_ON})
        return messages

    def _add_frame(self, message: Message) -> None:
        frame = read_frame(message)
        ids = {call.blocks[0]: self._ids.for_call(call.id) for call in frame.calls}
        self._calls = [(ids[call.blocks[0]], call.name) for call in reversed(frame.calls)]
        content = message.get("content")
        if isinstance(content, str):
            sayable = [] if is_blank(content) else clean_text(content)
        else:
            sayable = _same_or_new(content, self._frame_blocks(message, frame, ids))
        if sayable:
            self._messages.append(_changed(message, content=sayable))

    def _frame_blocks(self, message: Message, frame: Frame, ids: dict[int, str]) -> list[Message]:
        duplicates = {index for call in frame.calls for index in call.blocks[1:]}
        blocks: list[Message] = []
        lost_reasoning = False
        for index, block in enumerate(listed(message.get("content"))):
            if not isinstance(block, dict) or index in duplicates:
                continue
            kind = block.get("type")
            maker = block.get("provider") or message.get("provider")
            is_own = maker == self._provider and self._is_first(block, blocks)
            if kind == "thinking":
                keeps = is_own and self._keeps_reasoning(block, blocks)
                lost_reasoning = not keeps and self._provider == "openai"
                sayable = _changed(block, provider=maker) if keeps else None
            elif index in ids:
                sayable = _call(block, ids[index])
            else:
                sayable = self._frame_block(block, kind)
            if sayable is not None and (not is_own or lost_reasoning):
                sayable = _without_stored(sayable)
            if sayable is not None:
                self._note_item(sayable)
                blocks.append(sayable)
        while blocks and blocks[-1].get("type") == "thinking":
            blocks.pop()
        return blocks

    def _frame_block(self, block: Message, kind: Any) -> Message | None:
        if kind == "text":
            return None if is_blank(block.get("text")) else _changed(block, text=clean_text(block["text"]))
        if kind == "data":
            return {"type": "text", "text": _data_text(block)}
        if kind == "media" and self._provider == "google" and _is_media(block):
            return block  # no other protocol takes files in a model's own message
        return None

    def _keeps_reasoning(self, block: Message, before: list[Message]) -> bool:
        thinking = block.get("thinking", "")
        if self._provider in _WITHOUT_SIGNED_REASONING or not _is_sendable(thinking):
            return False
        item = _item_id(block)
        if not is_blank(block.get("signature")):
            # A Responses reasoning item is named; without its name it could only go as plain text.
            return _is_sendable(block["signature"]) and (item is not None or self._provider != "openai")
        # Further summaries of one reasoning item carry its id; only the first carries the signature.
        last = before[-1] if before else {}
        return item is not None and last.get("type") == "thinking" and _item_id(last) == item

    def _is_first(self, block: Message, before: list[Message]) -> bool:
        """Whether no other item of this request has the block's item id.

        Parts of one item may share it where they stand together: apart, the library would move the later ones
        to the first, and reasoning between them would be followed by nothing.
        """
        item = _item_id(block)
        if item is None or item not in self._items:
            return True
        last = before[-1] if before else {}
        kind = block.get("type")
        return kind != "tool_call" and (last.get("type"), _item_id(last)) == (kind, item)

    def _note_item(self, block: Message) -> None:
        item = _item_id(block)
        if item is not None:
            self._items.add(item)


def _id_limit(provider: Any) -> int:
    return ID_LIMIT.get(provider, NARROWEST_ID_LIMIT) if isinstance(provider, str) else NARROWEST_ID_LIMIT


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _changed(message: Message, **values: Any) -> Message:
    """The message with these values, or itself where it has them already."""
    if all(_has(message, key, value) for key, value in values.items()):
        return message
    return {**message, **values}


def _has(message: Message, key: str, value: Any) -> bool:
    if key not in message:
        return False
    return message[key] is value or (isinstance(value, str) and message[key] == value)


def _is_sendable(text: Any) -> bool:
    """Reasoning is signed as it stands: text that would have to be cleaned can't go back at all."""
    return isinstance(text, str) and clean_text(text) is text


def _same_or_new(old: Any, new: list[Any]) -> list[Any]:
    if isinstance(old, list) and len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True)):
        return old
    return new


def _item_id(block: Message) -> str | None:
    """The id under which the provider stored this item."""
    details = block.get("details")
    item = details.get("id") if isinstance(details, dict) else None
    return item if isinstance(item, str) else None


def _without_stored(block: Message) -> Message:
    if not any(key in block for key in _STORED_BY_PROVIDER):
        return block
    return {key: value for key, value in block.items() if key not in _STORED_BY_PROVIDER}


def _call(block: Message, sent_id: str) -> Message:
    return _changed(
        block, id=sent_id, name=_sent_name(block.get("name")), args=_sent_arguments(block.get("args"))
    )


def _sent_name(name: Any) -> Any:
    """A tool's name as providers take it. A model may have made it up, but the call was answered."""
    if not isinstance(name, str) or not name:
        return "unnamed"
    if len(name) <= NAME_LIMIT and _LEGAL.fullmatch(name):
        return name
    legal = _ILLEGAL_IN_NAMES.sub("_", name)
    return legal if len(legal) <= NAME_LIMIT else f"{legal[: NAME_LIMIT - 33]}_{_digest(name)}"


def _sent_arguments(arguments: Any) -> Any:
    """Arguments that every provider reads as a JSON object; a string that holds one stays as it is."""
    try:
        parsed = _parsed(arguments)
        readable = {"invalid_arguments": _as_text(arguments)} if parsed is None else parsed
        cleaned = clean_json(readable, on_nan="null")
        sent = arguments if parsed and cleaned is readable and isinstance(arguments, str) else cleaned
        size = len(sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False))
    except (UnstorableJson, TypeError, ValueError, RecursionError):
        return {"note": "The arguments of this call are left out: they are not JSON that can be sent."}
    if size >= ARGUMENTS_LIMIT:
        return {"note": f"The arguments of this call are left out: they are {size} characters long."}
    return sent


def _parsed(arguments: Any) -> dict[str, Any] | None:
    """The object that the arguments are, or None."""
    if arguments is None or (isinstance(arguments, str) and is_blank(arguments)):
        return {}
    if not isinstance(arguments, str):
        return arguments if isinstance(arguments, dict) else None
    try:
        value = json.loads(arguments, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else canonical(arguments) or type(arguments).__name__


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _sayable(content: Any, placeholder: str) -> Any:
    """What a user message or a result says, or the placeholder where it says nothing."""
    if content is None:
        return placeholder
    if isinstance(content, str):
        return placeholder if is_blank(content) else clean_text(content)
    if not isinstance(content, list | tuple):
        return [{"type": "data", "value": _data(content)}]
    blocks = [sayable for block in content if (sayable := _sayable_block(block)) is not None]
    return _same_or_new(content, blocks) if blocks else placeholder


def _sayable_block(block: Any) -> Message | None:
    if isinstance(block, str):
        block = {"type": "text", "text": block}
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    if kind == "text":
        return None if is_blank(block.get("text")) else _changed(block, text=clean_text(block["text"]))
    if kind == "data":
        return _changed(block, value=_data(block.get("value")))
    return block if kind == "media" and _is_media(block) else None


def _data(value: Any) -> Any:
    try:
        return clean_json(value, on_nan="null")
    except (UnstorableJson, TypeError, RecursionError):
        return "(data that is not JSON)"


def _data_text(block: Message) -> str:
    return json.dumps(_data(block.get("value")), ensure_ascii=False)


def _is_media(block: Message) -> bool:
    return not is_blank(block.get("data")) and not is_blank(block.get("media_type"))
