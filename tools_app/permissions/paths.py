"""Whether a path lies below another, by its text. Pure.

`.`, doubled slashes and `..` are resolved as text; links are not seen, so a rule on paths is worth as much as the
folder is free of links that lead out of it. Three kinds of paths have nothing to do with each other: absolute ones,
relative ones, and those below a home (`~`, `~name`).

A path can have several readings: a tool may take a backslash for a slash, decode `%2e`, cut blanks or a `file://`
off. An allow needs that the path is clear and lies below the rule's in every reading; a deny or an ask, that one
reading may lie there. Of a relative path that is only assumed where it climbs or begins as the rule's path ends.
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import unquote

from tools_app.permissions.matching import Match

MAX_READ = 8192
"""Characters. A longer path is not read: it is never allowed by where it is, and could be anywhere."""

# Control characters, and what a shell or a tool may replace by something else; of patterns, those that can become
# `..`, as `.?` and `{..,a}` do. Other brackets are common in names.
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f-\x9f\\$`]|\{[^/]*[.,]|(?:^|/)\.[^/]*[*?\[]")
_PATTERN = re.compile(r"[*?\[{]")
_FILE_URL = re.compile(r"file:(//(localhost)?(?=/))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Place:
    root: str  # "/", "" for a relative path, or a home
    parts: tuple[str, ...]
    climbs: bool = False  # to above where it starts


def under(path: str, base: str) -> Match:
    """Whether `path` is `base` or lies below it."""
    if len(path) > MAX_READ:
        return Match.MAYBE
    place, folded = _base(base)
    certain = _certain(path)
    if certain and all(_is_below(one, place) for one in certain):
        return Match.YES
    return Match.MAYBE if any(_may_be_below(one, folded) for one in _possible(path)) else Match.NO


@lru_cache(maxsize=20_000)
def _base(path: str) -> tuple[_Place, _Place]:
    """The path of a rule, as it stands and for file systems that know no case."""
    place = _place(path)
    return place, _folded(place)


@lru_cache(maxsize=256)
def _certain(path: str) -> tuple[_Place, ...]:
    """Where a clear path is, as it stands and decoded; nothing for any other."""
    texts = (path, unquote(path))
    return tuple(_place(text) for text in texts) if all(map(_is_clear, texts)) else ()


@lru_cache(maxsize=256)
def _possible(path: str) -> tuple[_Place, ...]:
    """Where some program might find it."""
    return tuple(dict.fromkeys(_folded(_place(text)) for text in _readings(path)))


def _is_clear(path: str) -> bool:
    return not _UNCLEAR.search(path) and path == path.strip() and not _FILE_URL.match(path)


def _readings(path: str) -> list[str]:
    texts = [path, unquote(path)]
    texts += [text.strip() for text in texts]
    texts += [text.partition("\0")[0] for text in texts]
    texts += [_FILE_URL.sub("", text, count=1) for text in texts]
    texts += [text.replace("\\", "/") for text in texts]
    return list(dict.fromkeys(texts))


def _place(path: str) -> _Place:
    root = "/" if path.startswith("/") else ""
    pieces = [piece for piece in path.split("/") if piece not in {"", "."}]
    if not root and pieces and pieces[0].startswith("~"):
        root = pieces.pop(0)
    parts: list[str] = []
    climbs = False
    for piece in pieces:
        if piece != "..":
            parts.append(piece)
        elif parts:
            parts.pop()
        elif root != "/":  # there is nothing above /
            climbs = True
    return _Place(root, tuple(parts), climbs)


def _folded(place: _Place) -> _Place:
    """For file systems to which these are one name."""
    return replace(place, parts=tuple(unicodedata.normalize("NFC", part.casefold()) for part in place.parts))


def _is_below(place: _Place, base: _Place) -> bool:
    return place.root == base.root and not place.climbs and place.parts[: len(base.parts)] == base.parts


def _may_be_below(place: _Place, base: _Place) -> bool:
    if place.climbs or _is_below(place, base) or _could_stand_for(place, base):
        return True
    if place.root not in {"/", ""} and base.root != "":
        return True  # a home can be anywhere
    if place.root == "":
        return base.root != "" and _goes_on(base.parts, place.parts)
    return base.root != "/" and _holds(place.parts, base.parts)


def _could_stand_for(place: _Place, base: _Place) -> bool:
    """Whether a pattern in the path may stand for what lies there."""
    if place.root != base.root or not any(map(_PATTERN.search, place.parts)):
        return False
    if any("**" in part or "{" in part for part in place.parts[: len(base.parts)]):
        return True
    return len(place.parts) >= len(base.parts) and all(
        part == wanted or (_PATTERN.search(part) and fnmatchcase(wanted, part))
        for part, wanted in zip(place.parts, base.parts, strict=False)
    )


def _goes_on(base: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a relative path begins with the last parts of the base: it leads there from a folder above."""
    return any(parts[:length] == base[-length:] for length in range(1, len(base) + 1))


def _holds(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return any(parts[start : start + len(wanted)] == wanted for start in range(len(parts) - len(wanted) + 1))
