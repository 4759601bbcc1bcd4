"""Whether a JSON value is as a matcher of the config says (`agent_config.permissions.Matcher`). Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sessions_app.agent_config.patterns import compile_pattern
from tools_app.permissions import commands
from tools_app.permissions.digests import same
from tools_app.permissions.hosts import on_host
from tools_app.permissions.matching import Match
from tools_app.permissions.paths import under

_MAX_TEXTS = 200
_COMMAND_NAMES = frozenset({"command", "cmd"})


def holds(matcher: Mapping[str, Any], value: Any, *, is_command: bool) -> Match:
    """All conditions of the matcher on one argument that is there."""
    answer = min(_CONDITIONS[name](value, wanted, is_command) for name, wanted in matcher.items())
    if answer is Match.YES and is_command and isinstance(value, str) and commands.is_compound(value):
        return Match.MAYBE  # it does more than the condition has looked at
    return answer


def is_command(argument: str) -> bool:
    """Whether an argument of any tool is a command line."""
    return argument in _COMMAND_NAMES


def _equals(value: Any, wanted: Any, is_command: bool) -> Match:  # noqa: FBT001 - one row of a table
    if same(value, wanted):
        return Match.YES
    if is_command and isinstance(value, str) and isinstance(wanted, str):
        return _maybe(commands.could_be(value, commands.words_of(wanted)))
    return Match.NO


def _in(value: Any, wanted: Sequence[Any], is_command: bool) -> Match:  # noqa: FBT001
    return max(_equals(value, item, is_command) for item in wanted)


def _starts_with(value: Any, prefixes: Sequence[str], is_command: bool) -> Match:  # noqa: FBT001
    if not is_command:
        return _of_text(value, lambda text: _sure(text.startswith(tuple(prefixes))))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        # An argument vector knows no shell, but what it is given to may.
        value = " ".join(value)
        return _maybe(any(commands.could_begin(value, commands.words_of(prefix)) for prefix in prefixes))
    return _of_text(value, lambda text: max(_command_begins(text, prefix) for prefix in prefixes))


def _command_begins(command: str, prefix: str) -> Match:
    words = commands.words_of(prefix)
    if commands.begins(command, words) and not commands.is_compound(prefix):
        return Match.YES
    return _maybe(commands.could_begin(command, words))


def _under(value: Any, bases: Sequence[str], is_command: bool) -> Match:  # noqa: FBT001
    return _of_text(value, lambda text: max(under(text, base) for base in bases))


def _host(value: Any, hosts: Sequence[str], is_command: bool) -> Match:  # noqa: FBT001
    return _of_text(value, lambda text: on_host(text, hosts))


def _matches(value: Any, pattern: str, is_command: bool) -> Match:  # noqa: FBT001
    compiled = compile_pattern(pattern)

    def of(text: str) -> Match:
        if compiled.fullmatch(text):
            return Match.YES
        parts = commands.parts(text) if is_command else ()
        return _maybe(any(part is None or compiled.fullmatch(part) for part in parts))

    return _of_text(value, of)


def _of_text(value: Any, condition: Callable[[str], Match]) -> Match:
    """A condition on a text. Of a list, an ask and a deny look at each text in it; an allow looks at none."""
    if isinstance(value, str):
        return condition(value)
    texts = _texts(value)
    return _maybe(len(texts) > _MAX_TEXTS or any(condition(text) for text in texts))


def _texts(value: Any) -> list[str]:
    """Those in a list and the lists in it, as far as anybody looks."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting and len(found) <= _MAX_TEXTS:
        item = waiting.pop()
        if isinstance(item, str):
            found[item] = None
        elif isinstance(item, list):
            waiting += item
    return list(found)


def _sure(answer: object) -> Match:
    return Match.YES if answer else Match.NO


def _maybe(answer: object) -> Match:
    return Match.MAYBE if answer else Match.NO


_CONDITIONS: dict[str, Callable[[Any, Any, bool], Match]] = {
    "equals": _equals,
    "in": _in,
    "starts_with": _starts_with,
    "under": _under,
    "host": _host,
    "matches": _matches,
}
