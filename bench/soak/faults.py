"""Which fault a request meets, and what the fault does to the answer. Pure; the seed decides.

A request meets one fault at most. What it meets depends on its session and on how many requests that session
made before, so a run with the same seed meets the same faults whatever the machine does in between.
"""

import json
import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

KINDS = ("429", "500", "529", "cut", "error event", "malformed event")
INSTEAD = ("429", "500", "529")
"""Faults that are an answer of their own: the model is never asked."""

_END_OF_REPLY = {
    "openai": re.compile(rb'"type": ?"response\.completed"'),
    "openai-chat": re.compile(rb'"finish_reason": ?"'),
    "anthropic": re.compile(rb'"type": ?"message_delta"'),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """`place` (0 to 1) is where in the answer, `variant` one of the fault's forms."""

    kind: str
    place: float
    variant: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets. `broken` ends it without the end that HTTP asks for.

    `fails` says whether a client has to take the call for failed; None where both readings are right, because
    nothing was lost but the end of the stream.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    broken: bool = False
    fails: bool | None = False


def fault_of(*, seed: int, session: str, number: int, share: float) -> Fault | None:
    """The fault of the session's request `number`, counted from 1; None for none."""
    draw = random.Random(f"{seed}/{session}/{number}")
    if draw.random() >= share:
        return None
    return Fault(kind=draw.choice(KINDS), place=draw.random(), variant=draw.randrange(3))


def refusal(protocol: str, fault: Fault) -> Answer:
    """The answer of a provider that does not even begin."""
    status = int(fault.kind)
    headers = {"content-type": "application/json"}
    if status == 429:
        headers |= _retry_after(fault.variant)
    kind = {429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}[status]
    error: dict[str, Any] = {"type": kind, "message": f"The soak answers {status}"}
    body = {"type": "error", "error": error} if protocol == "anthropic" else {"error": error}
    return Answer(status, headers, json.dumps(body).encode(), fails=True)


def _retry_after(variant: int) -> dict[str, str]:
    if variant == 0:
        return {"retry-after-ms": "250"}
    if variant == 1:
        return {"retry-after": "1"}
    return {"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)}


def damage(protocol: str, fault: Fault, headers: dict[str, str], stream: bytes) -> Answer:
    """A whole event stream, with the fault in it."""
    events = stream.split(b"\n\n")
    pieces = [event + b"\n\n" for event in events if event.strip()]
    last = next(
        (at for at, piece in enumerate(pieces) if _END_OF_REPLY[protocol].search(piece)), len(pieces) - 1
    )
    at = int(fault.place * (last + 1))  # before one of the events up to the reply's end
    before, rest = pieces[:at], pieces[at:]
    match fault.kind:
        case "cut":
            size = 1 + int(fault.place * (len(stream) - 1))
            whole = sum(map(len, pieces[:last]))
            fails = True if size <= whole else None
            return Answer(200, headers, stream[:size], broken=fault.variant > 0, fails=fails)
        case "error event":
            return Answer(200, headers, b"".join([*before, _error_event(protocol)]), fails=True)
    broken = b'data: {"type": "broken, \xff\n\n' if fault.variant else b"data: {]\n\n"
    return Answer(200, headers, b"".join([*before, broken, *rest]), fails=True)


def _error_event(protocol: str) -> bytes:
    said = "The soak breaks this stream off"
    match protocol:
        case "anthropic":
            error: dict[str, Any] = {
                "type": "error",
                "error": {"type": "overloaded_error", "message": said},
            }
        case "openai":
            error = {"type": "error", "code": "server_error", "message": said, "sequence_number": 1}
        case _:
            error = {"error": {"type": "server_error", "message": said}}
    name = b"" if protocol == "openai-chat" else b"event: error\n"
    return name + b"data: " + json.dumps(error).encode() + b"\n\n"
