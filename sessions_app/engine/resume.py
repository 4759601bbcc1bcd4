"""What an attempt may build on, and what a model is shown: three pure functions over a transcript.

- `plan_resume` is asked where a turn is open and the attempt before this one died, and for history that was
  imported, forked or rewound. It says which tail to leave out (a reply that never came to its end) and which
  calls have no result. It does not say what happens next: `plan_next` alone decides that.
- `repair_orphaned_tool_calls` makes any history whole, at reading time: behind every frame one result per
  call, in call order. It is the last line of defence; calls are settled where leases end.
- `to_request` makes a view valid for one provider.

They touch no database, never change their input, never raise, and give the same answer for the same input.

Messages are plain dicts `{role: user | assistant | tool_result | note | summary | checkpoint, content: a list
of blocks or a str, stop, error}`. Blocks are `{type: tool_call, id, name, args}`, `{type: text, text}`,
`{type: thinking, thinking, signature?, provider?, details?}`, `{type: media, media_type, data}`,
`{type: data, value}`, or unknown. A result is `{role: tool_result, id, name, error, answered, content}`.
Calls are named by their place: (message index, block index).
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sessions_app.engine import reductions, request_view
from sessions_app.engine.transcript import (
    ASSISTANT,
    SYNTHETIC,
    TOOL_RESULT,
    USER,
    Call,
    Frame,
    Message,
    Place,
    Reading,
    answers,
    identity,
    listed,
    places,
    read,
    read_frame,
    role_of,
)

HANDS_OVER = frozenset({"ask_user", "create_skill"})

INTERRUPTED = "The tool call was interrupted before a result was recorded; its external outcome is unknown."


@dataclass(frozen=True, slots=True)
class Start:
    """Nothing is left to build on."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Somebody is owed an answer: go on from the first `keep` messages, after settling `repaired`."""

    keep: int
    repaired: list[Place] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AlreadyComplete:
    """The model has answered, or handed over to a person: the session must not speak by itself."""

    keep: int
    repaired: list[Place] = field(default_factory=list)


def plan_resume(
    messages: Any, open_calls: Any = (), hands_over: Collection[str] = HANDS_OVER
) -> Start | Continue | AlreadyComplete:
    """Say how much of the transcript to keep, whether an answer is owed, and which calls have no result.

    `open_calls` are the places of calls that somebody still works on (waiting, ready, awaiting approval):
    they are not missing a result. `hands_over` are the tools whose success gives the turn to a person.
    """
    items = listed(messages)
    still_open = places(open_calls)
    reading = read(items)
    newest_whole = max((index for index, frame in reading.frames.items() if not frame.incomplete), default=-1)
    keep = len(items)
    tail = _look_through(items, reading, keep - 1, newest_whole)
    while tail >= 0 and _is_left_out(reading.frames.get(tail), tail, still_open):
        reading.drop_frame(tail)
        keep = tail
        tail = _look_through(items, reading, keep - 1, newest_whole)
    if tail < 0:
        return Start()
    repaired = _unanswered(items, reading, keep, still_open)
    frame = reading.frames.get(tail)
    if _waits_for_a_person(items, reading, keep, newest_whole, hands_over):
        return AlreadyComplete(keep, repaired)
    if frame is not None and not frame.calls:
        return AlreadyComplete(keep, repaired)
    return Continue(keep, repaired)


def repair_orphaned_tool_calls(messages: Any, open_calls: Any = ()) -> tuple[Any, list[Place]]:
    """A view of the history in which every call has exactly one result, right behind its frame.

    Returns the view and the places (in `messages`) of the calls that got a synthetic result. A history that
    is whole already comes back as the same object. A call in `open_calls` gets no synthetic result; a view
    that holds one is not to be sent.
    """
    items = listed(messages)
    if not items and not isinstance(messages, list | tuple):
        return [], []
    if _is_whole(items):
        return messages, []
    still_open = places(open_calls)
    reading = read(items)
    view: list[Any] = []
    repaired: list[Place] = []
    for index, message in enumerate(items):
        frame = reading.frames.get(index)
        if frame is None:
            if role_of(message) != TOOL_RESULT:
                view.append(message)
            continue
        if not frame.is_shown:
            continue
        view.append(message)
        own = answers(frame, reading.results[index], items)
        for call, result in zip(frame.calls, own, strict=True):
            if result is not None:
                view.append(items[result])
            elif not _is_open(call, index, still_open):
                view.append(_synthetic_result(call))
                repaired.append((index, call.blocks[0]))
    if len(view) == len(items) and all(new is old for new, old in zip(view, items, strict=True)):
        return messages, []
    return view, repaired


def to_request(view: Any, provider: str, *, budget: int | None = None, beside: int = 0) -> Any:
    """The view as that provider accepts it; the same object where it is so already.

    `provider` is the family that the request goes to: `openai` (Responses), `openai-chat`, `anthropic`,
    `google`, or another name, which gets the narrowest limits. What changes, and why, is told in
    `sessions_app.engine.request_view`, and in `reductions` what is left out for its size: the body has to fit
    `budget` (the provider's limit where none is given), of which `beside` bytes go to other things than messages.
    Nothing in, nothing out: an empty view is no request.
    """
    whole, _ = repair_orphaned_tool_calls(view)
    built = request_view.build(whole, provider)
    if not isinstance(built, list | tuple):
        return built
    return reductions.reduce(built, provider, budget=budget, beside=beside)


def _look_through(items: Any, reading: Reading, index: int, newest_whole: int) -> int:
    """Index of the last message, from `index` down, that can carry a session; -1 if there is none."""
    while index >= 0:
        role = role_of(items[index])
        if role in (USER, ASSISTANT):
            break
        # A result is late where its frame has been followed by a whole one: the answer after it stands.
        if role == TOOL_RESULT and reading.owner.get(index, -1) >= max(newest_whole, 0):
            break
        index -= 1
    return index


def _is_left_out(frame: Frame | None, index: int, still_open: frozenset[Place]) -> bool:
    """A tail that never came to its end; one with an open call did, whatever its stop reason says."""
    if frame is None or not frame.incomplete:
        return False
    return not any(_is_open(call, index, still_open) for call in frame.calls)


def _is_open(call: Call, index: int, still_open: frozenset[Place]) -> bool:
    return bool(still_open) and any((index, block) in still_open for block in call.blocks)


def _waits_for_a_person(
    items: Any, reading: Reading, keep: int, newest_whole: int, hands_over: Collection[str]
) -> bool:
    """Whether a tool gave the turn to a person since anybody last spoke, and the person has not answered."""
    for index in range(keep - 1, newest_whole, -1):
        message = items[index]
        if role_of(message) == USER:
            return False
        if index not in reading.owner or message.get("error") or message.get("answered"):
            continue
        if _tool_of(message, reading.frames[reading.owner[index]]) in hands_over:
            return True
    return False


def _tool_of(result: Message, frame: Frame) -> str:
    """The tool a result came from: its own word, else that of the call."""
    name = result.get("name")
    if not isinstance(name, str):
        key = identity(result.get("id"))
        name = next((call.name for call in frame.calls if call.key == key), None)
    return name if isinstance(name, str) else ""


def _unanswered(items: Any, reading: Reading, keep: int, still_open: frozenset[Place]) -> list[Place]:
    """The calls in the first `keep` messages that have no result there and are not open."""
    found: list[Place] = []
    for index, frame in reading.frames.items():
        if not frame.calls:
            continue
        own = answers(frame, [result for result in reading.results[index] if result < keep], items)
        found.extend(
            (index, call.blocks[0])
            for call, result in zip(frame.calls, own, strict=True)
            if result is None and not _is_open(call, index, still_open)
        )
    return found


def _is_whole(items: Any) -> bool:
    """One pass that says yes only where there is nothing to repair; the rest is left to the repair."""
    expected: tuple[Call, ...] = ()
    answered = 0
    for message in items:
        role = role_of(message)
        if role == TOOL_RESULT:
            if answered == len(expected) or identity(message.get("id")) != expected[answered].key:
                return False
            answered += 1
            continue
        if answered < len(expected):
            return False
        expected, answered = (), 0
        if role == ASSISTANT:
            frame = read_frame(message)
            if not frame.is_shown or frame.reuses_ids:
                return False
            expected = frame.calls
    return answered == len(expected)


def _synthetic_result(call: Call) -> Message:
    return {
        "role": TOOL_RESULT,
        "id": call.id,
        "name": call.name,
        "error": True,
        "answered": False,
        "content": INTERRUPTED,
        SYNTHETIC: True,
    }
