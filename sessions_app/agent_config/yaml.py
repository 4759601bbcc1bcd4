"""Reading the document a client sends, YAML or JSON, to the same JSON types.

YAML is read by the rules of its version 1.2 core schema: `no`, `on` and `2024-01-01` are text, `0o17` is 15.
Everything that makes two readers disagree or a small document large is refused with its line and column:
tags of programming languages, duplicate keys, keys that are not text, NaN and Infinity, more than one
document, recursive aliases, and aliases that multiply (each use counts as if it were written out). libyaml
only cuts the text into events; values are built here, without recursion.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import yaml
from yaml.error import MarkedYAMLError, YAMLError

from sessions_app.agent_config.document import MAX_BYTES, MAX_DEPTH
from sessions_app.errors import Invalid

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE = "tag:yaml.org,2002:"
_TAGS: dict[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("bool",),
    int: ("int", "float"),
    float: ("float",),
    str: (),
}
_MAX_DIGITS = 400
# More than the parts of a document of the largest size can weigh; only aliases get there.
_MAX_WEIGHT = 2 * MAX_BYTES
_NO_KEY = object()


class _Mark(Protocol):
    """A place in the text, of either YAML implementation; counted from 0."""

    line: int
    column: int


class UnreadableDocument(Invalid):
    """The document can't be read; `line` and `column` count from 1 and are None where they are not known."""

    code = "malformed"

    def __init__(self, problem: str, *, line: int | None = None, column: int | None = None) -> None:
        where = "" if line is None else f" (line {line}, column {column})"
        super().__init__(problem + where, line=line, column=column)
        self.problem = problem
        self.line = line
        self.column = column


def load_json(data: bytes | str) -> Any:
    """JSON with each key once and numbers that JSON has; else `UnreadableDocument`."""
    text = _decoded(data)
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite_float
        )
    except json.JSONDecodeError as error:
        raise UnreadableDocument(error.msg, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise UnreadableDocument("nested too deeply") from None
    except ValueError:  # the interpreter's own limit on the digits of an integer
        raise UnreadableDocument("a number with too many digits") from None


def load_yaml(data: bytes | str) -> Any:
    """YAML to JSON types; else `UnreadableDocument`."""
    builder = _Builder()
    try:
        for event in yaml.parse(_decoded(data), Loader=yaml.CSafeLoader):
            builder.take(event)
    except MarkedYAMLError as error:
        raise _unreadable(error.problem or "not YAML", error.problem_mark) from None
    except YAMLError as error:
        raise UnreadableDocument(str(error).splitlines()[0]) from None
    except UnicodeEncodeError as error:
        raise UnreadableDocument(f"half a surrogate pair at character {error.start}") from None
    return builder.value


def _decoded(data: bytes | str) -> str:
    if len(data) > MAX_BYTES:
        raise UnreadableDocument(f"larger than {MAX_BYTES} bytes")
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"not UTF-8 at byte {error.start}") from None


def _unreadable(problem: str, mark: _Mark | None) -> UnreadableDocument:
    if mark is None:
        return UnreadableDocument(problem)
    return UnreadableDocument(problem, line=mark.line + 1, column=mark.column + 1)


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise UnreadableDocument(f"the key {key!r} stands twice in one object")
        result[key] = value
    return result


def _refuse_constant(name: str) -> Any:
    raise UnreadableDocument(f"{name} is not a JSON number")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UnreadableDocument(f"{text[:40]} is too large for a number")
    return number


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been seen."""

    value: Any
    anchor: str | None
    weight: int
    key: Any = _NO_KEY


class _Builder:
    """Builds one value out of parser events, with the open collections on a stack of its own."""

    def __init__(self) -> None:
        self.value: Any = None
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._weight = 0

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _unreadable("more than one document", event.start_mark)
            case yaml.AliasEvent():
                self._add_alias(event)
            case yaml.ScalarEvent():
                weight = 1 + len(event.value)
                self._weigh(weight, event)
                value = _scalar(event)
                self._anchors |= {event.anchor: (value, weight)} if event.anchor else {}
                self._place(value, event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._start(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = self._open.pop()
                if done.anchor:
                    self._anchors[done.anchor] = (done.value, self._weight - done.weight)
                self._place(done.value, event)

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in {None, "!", _CORE + ("seq" if is_list else "map")}:
            raise _unreadable(f"the tag {event.tag} has no meaning in JSON", event.start_mark)
        if len(self._open) >= MAX_DEPTH:
            raise _unreadable(f"nested more than {MAX_DEPTH} levels deep", event.start_mark)
        if event.anchor:
            self._anchors.pop(event.anchor, None)  # until its end the name stands for nothing
        self._open.append(_Open([] if is_list else {}, event.anchor, self._weight))
        self._weigh(1, event)

    def _add_alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            inside = any(part.anchor == event.anchor for part in self._open)
            problem = "contains itself" if inside else "stands for nothing"
            raise _unreadable(f"the alias *{event.anchor} {problem}", event.start_mark)
        value, weight = self._anchors[event.anchor]
        self._weigh(weight, event)
        self._place(value, event)

    def _weigh(self, weight: int, event: yaml.Event) -> None:
        self._weight += weight
        if self._weight > _MAX_WEIGHT:
            raise _unreadable("too large with its aliases written out", event.start_mark)

    def _place(self, value: Any, event: yaml.Event) -> None:
        if not self._open:
            self.value = value
            return
        parent = self._open[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not _NO_KEY:
            parent.value[parent.key] = value
            parent.key = _NO_KEY
        elif not isinstance(value, str):
            raise _unreadable("a key must be text; put it in quotes", event.start_mark)
        elif value in parent.value:
            raise _unreadable(f"the key {value!r} stands twice in one mapping", event.start_mark)
        else:
            parent.key = value


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    tag = event.tag
    if tag in {"!", _CORE + "str"} or (tag is None and not event.implicit[0]):
        return text
    value = _plain(text, event)
    if tag is not None and tag.removeprefix(_CORE) not in _TAGS[type(value)]:
        raise _unreadable(f"{text[:40]!r} with the tag {tag} has no meaning in JSON", event.start_mark)
    return value


def _plain(text: str, event: yaml.ScalarEvent) -> Any:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _NOT_FINITE.fullmatch(text):
        raise _unreadable(f"{text} is not a JSON number", event.start_mark)
    if _INTEGER.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise _unreadable("a number with too many digits", event.start_mark)
        return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise _unreadable(f"{text[:40]} is too large for a number", event.start_mark)
        return number
    return text
