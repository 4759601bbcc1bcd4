"""From entries to the messages a model sees. Pure; no database, no provider.

The branch a session is on is the path along `parent_seq` from its head. Its conversation entries become the
message dicts of the resume module (`role`, `content`, `stop`, `error`), from which the view repair and the
provider adapters go on. A run keeps a `Context` and appends one entry at a time, so that a long history is
decoded once per claim and not once per call.

Two mappings matter. Names: entries say reasoning and arguments, messages say thinking and args; whatever else
a block carries (signatures, provider details) goes along untouched. And replies that ended the turn by
themselves (length, filter, unknown reason) are passed as finished text without their unfinished calls: those
were never run, and a provider would refuse a call without a result.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sessions_app.engine import tokens
from sessions_app.providers.port import Stop

Message = dict[str, Any]

HEADING = "Summary of the conversation so far:\n\n"
"""What tells the model that a checkpoint is one."""

_STOP = {
    Stop.DONE: "stop",
    Stop.TOOL_CALLS: "tool_use",
    Stop.PAUSED: "pause",
    Stop.LENGTH: "stop",
    Stop.FILTERED: "stop",
    Stop.UNKNOWN: "stop",
}
_CALLS_NOT_RUN = frozenset({Stop.LENGTH, Stop.FILTERED, Stop.UNKNOWN})


class EntryRow(NamedTuple):
    """What the context needs of an entry."""

    seq: int
    parent_seq: int | None
    kind: str
    data: Mapping[str, Any]


def message_of(entry: EntryRow) -> Message | None:
    """The message of a conversation entry, None for every other kind."""
    _, _, kind, data = entry
    match kind:
        case "user_message":
            return {"role": "user", "content": _blocks(data.get("content"))}
        case "assistant_message":
            return _assistant(data)
        case "tool_result":
            return {
                "role": "tool_result",
                "id": data["id"],
                "name": data.get("name", ""),
                "error": data.get("outcome") != "succeeded",
                "answered": bool(data.get("answered")),
                "content": _blocks(data.get("content")),
            }
        case "checkpoint":
            return {"role": "checkpoint", "content": HEADING + data.get("summary", "")}
        case "note":
            # A note that was written for the model too speaks as the user.
            role = "user" if data.get("to_model") else "note"
            return {"role": role, "content": data.get("text", "")}
        case "turn_ended" if data.get("status") == "failed":
            error = data.get("error") or {}
            detail = error.get("detail") or data.get("reason", "")
            return {"role": "summary", "content": f"(The turn before this ended with an error: {detail})"}
        case _:
            return None


def messages_of(entries: Iterable[EntryRow]) -> list[Message]:
    """The messages of a path of entries; what a checkpoint covers is replaced by it."""
    return Context.of(entries).messages


class Context:
    """The messages of a session's branch with their estimated tokens, kept up to date one entry at a time."""

    __slots__ = ("_seqs", "messages", "sizes", "tokens")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.sizes: list[int] = []
        self.tokens = 0  # their sum
        self._seqs: list[int] = []

    @classmethod
    def of(cls, entries: Iterable[EntryRow]) -> "Context":
        """A context of a whole path, oldest entry first."""
        context = cls()
        for entry in entries:
            context.append(entry)
        return context

    def append(self, entry: EntryRow) -> None:
        """Add the next entry of the path; a checkpoint takes the place of the entries it covers."""
        message = message_of(entry)
        if message is None:
            return
        if message["role"] == "checkpoint":
            covers = entry[3].get("covers_seq") or 0
            kept = [index for index, seq in enumerate(self._seqs) if seq > covers]
            self.messages[:] = [message, *(self.messages[index] for index in kept)]
            self.sizes[:] = [tokens.of_message(message), *(self.sizes[index] for index in kept)]
            self.tokens = sum(self.sizes)
            # The summary stands where what it covers stood: an equal or later checkpoint covers it too.
            self._seqs[:] = [covers, *(self._seqs[index] for index in kept)]
            return
        size = tokens.of_message(message)
        self.messages.append(message)
        self.sizes.append(size)
        self.tokens += size
        self._seqs.append(entry[0])

    def seq_of(self, index: int) -> int:
        """The entry that the message at `index` was made of; of a checkpoint the last one that it covers."""
        return self._seqs[index]

    def forget_reasoning(self) -> None:
        """Leave out all reasoning so far: its provider can no longer read it, and never will again (A38)."""
        self.messages[:] = [_without_reasoning(message) for message in self.messages]
        self.sizes[:] = [tokens.of_message(message) for message in self.messages]
        self.tokens = sum(self.sizes)

    def truncate(self, keep: int) -> None:
        """Leave out everything behind the first `keep` messages."""
        del self.messages[keep:]
        del self.sizes[keep:]
        self.tokens = sum(self.sizes)
        del self._seqs[keep:]


def artifacts_of(messages: Iterable[Message]) -> list[str]:
    """The ids of the artifacts whose bytes a request with these messages needs, each once, in order."""
    found: dict[str, None] = {}
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            for block in content:
                if block.get("type") == "media" and "data" not in block and block.get("artifact"):
                    found[block["artifact"]] = None
    return list(found)


def with_media(messages: Sequence[Message], loaded: Mapping[str, tuple[str, str]]) -> list[Message]:
    """The messages with the bytes of their media blocks put in.

    `loaded` maps artifact ids to (media type, base64). An artifact that is gone becomes a line of text, so
    that one lost file does not stop a session. Messages without media stay the same objects.
    """
    return [_with_media(message, loaded) for message in messages]


def _with_media(message: Message, loaded: Mapping[str, tuple[str, str]]) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not any(block.get("type") == "media" for block in content):
        return message
    return {**message, "content": [_load(block, loaded) for block in content]}


def _load(block: dict[str, Any], loaded: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    if block.get("type") != "media" or "data" in block:
        return block
    artifact = block.get("artifact")
    found = loaded.get(artifact) if artifact else None
    if found is None:
        return {"type": "text", "text": f"(the file {artifact} is no longer available)"}
    media_type, data = found
    return {**block, "media_type": block.get("media_type") or media_type, "data": data}


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _assistant(data: Mapping[str, Any]) -> Message:
    stop = _stop_of(data.get("stop"))
    blocks = [_assistant_block(block) for block in _blocks(data.get("content"))]
    if stop in _CALLS_NOT_RUN:
        blocks = [block for block in blocks if block["type"] != "tool_call"]
        # Reasoning goes with what it led to: some providers refuse it without its following item.
        while blocks and blocks[-1]["type"] == "thinking":
            blocks.pop()
    return {
        "role": "assistant",
        "content": blocks,
        "stop": _STOP[stop],
        "error": None,
        "provider": data.get("provider"),
        "model": data.get("model"),
    }


def _without_reasoning(message: Message) -> Message:
    content = message["content"]
    if message["role"] != "assistant" or not isinstance(content, list):
        return message
    # What the provider stored goes too: an item that is named asks for the reasoning that it followed.
    kept = [
        {key: value for key, value in block.items() if key not in {"provider", "details"}}
        for block in content
        if block.get("type") != "thinking"
    ]
    return {**message, "content": kept}


def _stop_of(value: Any) -> Stop:
    try:
        return Stop(value)
    except ValueError:
        return Stop.UNKNOWN


def _assistant_block(block: Mapping[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case "reasoning":
            rest = {key: value for key, value in block.items() if key not in {"type", "text"}}
            return {"type": "thinking", "thinking": block.get("text", ""), **rest}
        case "tool_call":
            rest = {key: value for key, value in block.items() if key not in {"arguments", "arguments_raw"}}
            # What the model really sent; the view makes something sendable of it.
            return {**rest, "args": block.get("arguments_raw", block.get("arguments", {}))}
        case _:
            return dict(block)
