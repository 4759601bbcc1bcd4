"""Reading a transcript: what a frame holds, which result belongs to which call.

A transcript is a list of plain dicts (`sessions_app.engine.resume` gives their shape) that may come from
anywhere: our own log, an import, a fork, a process that died in the middle. So nothing here trusts a type,
raises or changes what it reads, and everything is one pass over the messages: these functions run before
every model call, over histories of thousands of messages.

- A *frame* is an assistant message. `read_frame` says which calls it makes, whether it holds anything, and
  whether it is incomplete (a reply that never came to its end).
- `read` deals the results out to the frames: a result belongs to the nearest earlier frame that made a call
  with its id, else to the first later one that did, else to nobody.
- `answers` deals the results of one frame out to its calls.
"""

import json
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

USER = "user"
ASSISTANT = "assistant"
TOOL_RESULT = "tool_result"

NATURAL_ENDS = ("stop", "end_turn")
PARTIAL_STOPS = ("aborted", "error", "length")

SYNTHETIC = "synthetic"
"""Key that marks a result which repair made up, so that a durable one always goes before it."""

type Message = dict[str, Any]
type Place = tuple[int, int]
"""Index of a message and index of a block in it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a frame. `blocks` are the indexes of its block and of that block's exact duplicates."""

    id: Any
    key: Hashable
    name: Any
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """An assistant message, read."""

    calls: tuple[Call, ...]
    incomplete: bool
    empty: bool

    @property
    def is_shown(self) -> bool:
        """Whether a view holds it: it made a call, or it is a whole reply that says something."""
        return bool(self.calls) or not (self.incomplete or self.empty)

    @property
    def reuses_ids(self) -> bool:
        """Whether two different calls of it have one id."""
        return len(self.calls) > 1 and len({call.key for call in self.calls}) < len(self.calls)


@dataclass(frozen=True, slots=True)
class Reading:
    """A transcript's frames by message index, and whose each result is, both ways."""

    frames: dict[int, Frame]
    owner: dict[int, int]
    results: dict[int, list[int]]

    def drop_frame(self, index: int) -> None:
        """Forget the last frame; no later one is there to adopt its results, so nobody owns them."""
        del self.frames[index]
        for result in self.results.pop(index, ()):
            del self.owner[result]


def listed(messages: Any) -> Sequence[Any]:
    """The messages, or none where this is no list of messages."""
    return messages if isinstance(messages, list | tuple) else ()


def role_of(message: Any) -> str | None:
    """The role, or None for whatever is no message."""
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else None


def is_blank(value: Any) -> bool:
    """Whether there is nothing to read in it; what is no text says nothing."""
    return not isinstance(value, str) or not value or value.isspace()


def canonical(value: Any) -> str | None:
    """One text for equal JSON values (1 and true differ, key order doesn't), None for what is no JSON."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None


def identity(value: Any) -> Hashable:
    """A hashable stand-in for an id or a name; an id that is no string is odd, but it is an id."""
    return value if isinstance(value, str) else (type(value).__name__, canonical(value))


def places(open_calls: Any) -> frozenset[Place]:
    """The (message, block) pairs among `open_calls`, whatever else is in there."""
    if not isinstance(open_calls, Iterable):
        return frozenset()
    return frozenset(
        (place[0], place[1])
        for place in open_calls
        if isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(i, int) for i in place)
    )


def read_frame(message: Message) -> Frame:
    """Read one assistant message."""
    stop = message.get("stop")
    has_natural_end = isinstance(stop, str) and stop in NATURAL_ENDS
    content = message.get("content")
    found: list[tuple[int, Message]] = []
    if isinstance(content, str):
        says_something = not is_blank(content)
    elif isinstance(content, list | tuple):
        says_something = False
        for index, block in enumerate(content):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_call":
                found.append((index, block))
            elif not says_something:
                says_something = not is_blank(block[kind]) if _is_prose(block, kind) else kind not in _PROSE
    else:
        says_something = has_natural_end
    empty = not found and not says_something
    incomplete = not has_natural_end and (
        empty or (isinstance(stop, str) and stop in PARTIAL_STOPS) or not is_blank(message.get("error"))
    )
    return Frame(calls=_calls(found), incomplete=incomplete, empty=empty)


def read(messages: Sequence[Any]) -> Reading:
    """Read all frames and give every result to the frame it belongs to."""
    reading = Reading(frames={}, owner={}, results={})
    newest_with: dict[Hashable, int] = {}
    waiting: dict[Hashable, list[int]] = {}
    for index, message in enumerate(messages):
        role = role_of(message)
        if role == TOOL_RESULT:
            key = identity(message.get("id"))
            frame_index = newest_with.get(key)
            if frame_index is None:
                waiting.setdefault(key, []).append(index)
            else:
                reading.owner[index] = frame_index
                reading.results[frame_index].append(index)
        elif role == ASSISTANT:
            frame = read_frame(message)
            reading.frames[index] = frame
            adopted: list[int] = []
            for call in frame.calls:
                newest_with[call.key] = index
                adopted.extend(waiting.pop(call.key, ()))
            reading.results[index] = sorted(adopted)
            reading.owner.update(dict.fromkeys(adopted, index))
    return reading


def answers(frame: Frame, results: Sequence[int], messages: Sequence[Any]) -> list[int | None]:
    """For each call of the frame the index of its result: the first durable one, else a synthetic one.

    `results` are the indexes of the frame's results, in order. Different calls with one id are told apart by
    the name their results carry: no result is given to a call of another tool while one of its own is there.
    """
    durable: dict[Hashable, deque[int]] = {}
    synthetic: dict[Hashable, deque[int]] = {}
    for result in results:
        into = synthetic if messages[result].get(SYNTHETIC) is True else durable
        into.setdefault(identity(messages[result].get("id")), deque()).append(result)
    if frame.reuses_ids:
        return _answers_by_name(frame, durable, synthetic, messages)
    dealt: list[int | None] = []
    for call in frame.calls:
        own = durable.get(call.key) or synthetic.get(call.key)
        dealt.append(own[0] if own else None)
    return dealt


_PROSE = ("text", "thinking")


def _is_prose(block: Any, kind: Any) -> bool:
    return kind in _PROSE and kind in block


def _calls(found: list[tuple[int, Message]]) -> tuple[Call, ...]:
    """The distinct calls, each with the places of its duplicates."""
    keys = [identity(block.get("id")) for _, block in found]
    if len(set(keys)) == len(keys):
        return tuple(
            Call(id=block.get("id"), key=key, name=block.get("name"), blocks=(index,))
            for key, (index, block) in zip(keys, found, strict=True)
        )
    grouped: dict[Hashable, list[int]] = {}
    for key, (index, block) in zip(keys, found, strict=True):
        arguments: Hashable = canonical(block.get("args"))
        same = (key, identity(block.get("name")), index if arguments is None else arguments)
        grouped.setdefault(same, []).append(index)
    blocks = dict(found)
    return tuple(
        Call(
            id=blocks[indexes[0]].get("id"),
            key=identity(blocks[indexes[0]].get("id")),
            name=blocks[indexes[0]].get("name"),
            blocks=tuple(indexes),
        )
        for indexes in grouped.values()
    )


def _answers_by_name(
    frame: Frame,
    durable: dict[Hashable, deque[int]],
    synthetic: dict[Hashable, deque[int]],
    messages: Sequence[Any],
) -> list[int | None]:
    """Durable results by name, then those whose name fits no call of that id in order, then synthetic ones.

    A durable result too many for its name is left over rather than given to another tool's call. That, and
    synthetic results coming last, is what makes a second repair find the same order again.
    """
    dealt: list[int | None] = [None] * len(frame.calls)
    unanswered: dict[Hashable, deque[int]] = {}
    by_name: dict[tuple[Hashable, Hashable], deque[int]] = {}
    for position, call in enumerate(frame.calls):
        unanswered.setdefault(call.key, deque()).append(position)
        by_name.setdefault((call.key, identity(call.name)), deque()).append(position)
    for key, results in durable.items():
        nameless: list[int] = []
        for result in results:
            fitting = by_name.get((key, identity(messages[result].get("name"))))
            if fitting is None:
                nameless.append(result)
            elif fitting:
                dealt[fitting.popleft()] = result
        positions = [position for position in unanswered.get(key, ()) if dealt[position] is None]
        for position, result in zip(positions, nameless, strict=False):
            dealt[position] = result
    for key, results in synthetic.items():
        for result in results:
            fitting = by_name.get((key, identity(messages[result].get("name"))), deque())
            while fitting and dealt[fitting[0]] is not None:
                fitting.popleft()
            if fitting:
                dealt[fitting.popleft()] = result
    return dealt
