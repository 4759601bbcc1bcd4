"""TypeIDs: a prefix that names the kind, `_`, and 26 characters of base32 with a UUIDv7 inside.

The database stores the bare UUID (ordered by time, so new rows land at the end of an index); the API shows
`ses_01h455vb4pex5vsknk084sn02q`. The text form is that of the TypeID specification, version 0.3.
"""

import os
import threading
import time
import uuid

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGITS = [_ALPHABET[i >> 5] + _ALPHABET[i & 31] for i in range(1024)]
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_LENGTH = 26

PREFIXES = {
    "session": "ses",
    "entry": "ent",
    "turn": "trn",
    "input": "inp",
    "config": "cfg",
    "profile": "prf",
    "tool_call": "tcl",
    "approval": "apr",
    "question": "qst",
    "model_call": "mcl",
    "machine": "mch",
    "artifact": "art",
    "key": "key",
    "project": "prj",
    "secret": "sec",
    "user": "usr",
    "remembered": "rem",
}

_lock = threading.Lock()
_last = 0


class InvalidId(ValueError):
    """Not an id of the expected kind."""


def new_id() -> uuid.UUID:
    """A UUIDv7 (RFC 9562) that grows strictly within this process, also inside one millisecond."""
    global _last  # noqa: PLW0603 - the monotonic counter is the point
    with _lock:
        # 48 bits of milliseconds and 12 bits of their fraction; a burst borrows from the future.
        now = time.time_ns()
        stamp = (now // 1_000_000) << 12 | (now % 1_000_000) * 4096 // 1_000_000
        _last = stamp = max(stamp, _last + 1)
    random = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    return uuid.UUID(int=(stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | random)


def encode(prefix: str, value: uuid.UUID) -> str:
    number = value.int
    return f"{prefix}_{_ALPHABET[number >> 125]}{_ALPHABET[number >> 120 & 31]}" + "".join(
        [_DIGITS[number >> shift & 1023] for shift in range(110, -1, -10)]
    )


def pattern(prefix: str) -> str:
    """What `decode` takes, as a regular expression for descriptions of the API."""
    return f"^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{{_LENGTH - 1}}}$"


def decode(prefix: str, text: str) -> uuid.UUID:
    """The UUID inside; raises `InvalidId` for another kind, a wrong length or a foreign character."""
    start = len(prefix) + 1
    if len(text) != start + _LENGTH or not text.startswith(prefix + "_"):
        raise InvalidId(f"expected an id that starts with {prefix}_ and has {_LENGTH} characters behind it")
    number = 0
    for letter in text[start:]:
        digit = _VALUES.get(letter)
        if digit is None:
            raise InvalidId(f"not a valid id: {letter!r} cannot occur in it")
        number = number << 5 | digit
    if number >> 128:
        raise InvalidId("not a valid id: out of range")
    return uuid.UUID(int=number)
