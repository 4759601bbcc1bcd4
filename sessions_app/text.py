"""What text and JSON look like once they are stored (S8).

PostgreSQL stores neither U+0000 nor a lone surrogate, and JSON has no NaN. Whatever comes from outside
(tool output, model output, a client's body) passes through here before it is saved:

- `clean_text` and `clean_json` put U+FFFD where a character can't be stored, keys included. A surrogate
  pair that was cut in two and put together again is one character and is kept as that character.
- NaN and Infinity are refused with their place (`UnstorableJson`), or become null where the sender is a
  tool that nobody can ask again.
- `cut_head_tail` shortens oversized text to its two ends and says how much it left out.

Nearly everything is clean already, so the clean case costs one look and builds nothing: the same object
comes back.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

from sessions_app.errors import Invalid

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

MAX_JSON_DEPTH = 200
"""Levels of nesting. Deeper values would overflow the stack of whoever encodes or decodes them later."""

_PAIR_OR_UNSTORABLE = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\x00\ud800-\udfff]")
_CUT_MARK = "\n[… {count} characters left out …]\n"
_MIN_CUT_LIMIT = 64

type OnNan = Literal["refuse", "null"]


class UnstorableJson(Invalid):
    """The value can't be stored as JSON."""

    def __init__(self, *, problem: str, path: str, message: str) -> None:
        error = {"path": path, "code": problem, "message": message}
        super().__init__(f"{path or '/'}: {message}", errors=[error])
        self.problem = problem
        self.path = path
        self.message = message


def json_pointer(parts: Iterable[str | int]) -> str:
    """RFC 6901: `("tools", "a/b", 0)` is `/tools/a~1b/0`, the whole document is the empty string."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def clean_text(text: str) -> str:
    """The same object where it can be stored as it is, else a copy with U+FFFD where it can't."""
    return text if _is_storable(text) else _PAIR_OR_UNSTORABLE.sub(_storable_form, text)


def clean_json(value: Any, *, on_nan: OnNan = "refuse") -> Any:
    """The same object where all of it can be stored, else a cleaned copy; the input is never changed.

    Raises `UnstorableJson` with problem `nan` (only with `on_nan="refuse"`) or `too_deep`. A value of a type
    that JSON doesn't have is a mistake of ours and a `TypeError`.
    """
    return value if _is_clean(value) else _cleaned(value, on_nan, ())


def cut_head_tail(text: str, limit: int) -> tuple[str, bool]:
    """Text of at most `limit` characters, and whether it was cut.

    Characters are code points, so none is cut in half.
    """
    if limit < _MIN_CUT_LIMIT:
        raise ValueError(f"limit must be at least {_MIN_CUT_LIMIT}: the mark needs room")
    if len(text) <= limit:
        return text, False
    # The mark is sized for the largest count it could show, so that the result can't outgrow the limit.
    kept = limit - len(_CUT_MARK.format(count=len(text)))
    head = (kept + 1) // 2
    tail = kept - head
    mark = _CUT_MARK.format(count=len(text) - kept)
    return text[:head] + mark + text[len(text) - tail :], True


def _is_storable(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()  # refuses surrogates, several times faster than a regular expression looks for them
    except UnicodeEncodeError:
        return False
    return True


def _storable_form(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) == 1:
        return REPLACEMENT
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _is_clean(value: Any) -> bool:
    """Level by level instead of recursively: quick, and a hostile depth costs no stack."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not _is_storable(item):
                    return False
            elif kind is dict:
                for key in item:
                    if type(key) is not str or not _is_storable(key):
                        return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif kind is float:
                if not math.isfinite(item):
                    return False
            elif item is not None and kind is not int and kind is not bool:
                return False
        if not below:
            return True
        level = below
    return False


def _cleaned(value: Any, on_nan: OnNan, path: tuple[str | int, ...]) -> Any:
    if len(path) > MAX_JSON_DEPTH:
        message = f"nested more than {MAX_JSON_DEPTH} levels deep"
        raise UnstorableJson(problem="too_deep", path=json_pointer(path), message=message)
    match value:
        case str():
            return clean_text(value)
        case dict():
            return _cleaned_object(value, on_nan, path)
        case list() | tuple():
            return [_cleaned(item, on_nan, (*path, index)) for index, item in enumerate(value)]
        case float() if not math.isfinite(value):
            if on_nan == "null":
                return None
            message = f"{_nan_name(value)} is not a JSON number"
            raise UnstorableJson(problem="nan", path=json_pointer(path), message=message)
        case None | bool() | int() | float():
            return value
        case _:
            raise TypeError(f"{json_pointer(path) or '/'}: {type(value).__name__} is not a JSON type")


def _cleaned_object(value: dict[Any, Any], on_nan: OnNan, path: tuple[str | int, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"{json_pointer(path) or '/'}: the key {key!r} is not a string")
        name = clean_text(key)
        # Two keys may become equal by cleaning; a longer one is better than a lost value.
        while name in result or (name is not key and name in value):
            name += REPLACEMENT
        result[name] = _cleaned(item, on_nan, (*path, name))
    return result


def _nan_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
