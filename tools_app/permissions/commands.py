"""What a command line runs, as far as its text tells. Pure.

`simple_words` are the words of a command that a shell reads in one way only: nothing but words and quotes. Only
such a command can match an allow. For a deny or an ask, `could_begin` looks for the words wherever a command could
begin: behind a separator (also inside quotes, which may be a command for another shell), an assignment, a
redirection, or a program that runs other programs. What it runs by a name that only the shell will know (`$X`, a
pattern) could be anything.

This finds commands that are written down. A command that is computed, or that a script or an interpreter holds, is
not in the text: a list of what is denied is no sandbox.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

MAX_READ = 1 << 16
"""Characters. A longer command is not read: it is never allowed by its words, and could be anything."""

MAX_PARTS = 1000
"""Texts between separators that a regular expression is tried on."""

# Whatever makes a shell do more than run one program, wherever it stands, and what no command needs.
_COMPOUND = re.compile(r"[;|&$`()<>\x00-\x08\x0a-\x1f\x7f]")
_SEPARATOR = re.compile(r"([;|&`()<>\x00-\x08\x0a-\x1f])")
_IFS = re.compile(r"\$IFS(?![A-Za-z0-9_])|\$\{IFS[^}]*\}")
_QUOTES = str.maketrans("", "", "'\"\\")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS = frozenset({"!", "{", "if", "then", "else", "elif", "do", "while", "until", "time", "coproc"})
_TESTS = frozenset({"[", "[["})
_UNKNOWN_NAME = re.compile(r"[$*?\[{~]")

# Programs that run what they are given as arguments, or text in them.
_NAMES = """
ash bash builtin busybox chroot chrt command csh dash doas docker env eval exec find fish flock function
ionice ksh nice nohup nsenter parallel pkexec podman runuser script setsid sh source ssh stdbuf strace su sudo
systemd-run taskset tcsh time timeout tmux trap unshare watch xargs zsh .
"""
_RUNNERS = frozenset(_NAMES.split())


def is_compound(command: str) -> bool:
    """Whether it may do more than run one program with the words that stand there."""
    return simple_words(command) is None


@lru_cache(maxsize=32)
def simple_words(command: str) -> tuple[str, ...] | None:
    """The words of a command that can be read in one way only; None for any other."""
    if len(command) > MAX_READ or _COMPOUND.search(command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return tuple(words) or None


def begins(command: str, words: Sequence[str]) -> bool:
    """Whether a simple command begins with these words."""
    found = simple_words(command)
    return found is not None and bool(words) and found[: len(words)] == tuple(words)


@lru_cache(maxsize=20_000)
def words_of(text: str) -> tuple[str, ...]:
    """The words of a rule."""
    return _split(text)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def could_begin(command: str, words: Sequence[str]) -> bool:
    """Whether something that this runs may begin with these words."""
    name, wanted = _sought(tuple(words))
    reading = _read(command)
    if reading.unknown or not wanted:
        return True
    starts = reading.starts.get(name, ())
    return any(_goes_on(found, at, wanted) for found, at in starts)


@lru_cache(maxsize=20_000)
def _sought(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The words of a rule as they are looked for, and the name of their program."""
    wanted = _loose(" ".join(words))
    return (_name(wanted[0]) if wanted else ""), wanted


def could_be(command: str, words: Sequence[str]) -> bool:
    """Whether something that this runs may be just these words."""
    reading = _read(command)
    return reading.unread or tuple(words) in reading.wholes


def parts(command: str) -> Sequence[str | None]:
    """The texts between separators; None for more than anybody reads."""
    reading = _read(command)
    return [None] if reading.unread or len(reading.parts) > MAX_PARTS else reading.parts


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a text could run: `starts` has, by name, each place where a command may begin."""

    unread: bool = False  # too long
    unknown: bool = False  # something in it, or all of it, could be anything
    parts: Sequence[str] = ()
    wholes: frozenset[tuple[str, ...]] = frozenset()
    starts: Mapping[str, Sequence[tuple[tuple[str, ...], int]]] = field(default_factory=dict)


@lru_cache(maxsize=32)
def _read(text: str) -> _Reading:
    if len(text) > MAX_READ:
        return _Reading(unread=True, unknown=True)
    parts = dict.fromkeys(part.strip() for part in _SEPARATOR.split(text)[::2])
    starts: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    unknown = False
    for words in _commands(text):
        if _UNKNOWN_NAME.search(words[0]) and words[0] not in _TESTS:
            unknown = True
        starts.setdefault(_name(words[0]), []).append((words, 0))
        if _name(words[0]) in _RUNNERS:
            for at in range(1, len(words)):
                unknown = unknown or "$" in words[at]
                starts.setdefault(_name(words[at]), []).append((words, at))
    return _Reading(
        unknown=unknown,
        parts=tuple(parts),
        wholes=frozenset(_split(part) for part in (text, *parts)),
        starts=starts,
    )


def _commands(text: str) -> Iterable[tuple[str, ...]]:
    """The words of everything that could be a command of its own, without quotes."""
    found: dict[tuple[str, ...], None] = {}
    for reading in dict.fromkeys((text, text.replace("\\\n", ""))):
        pieces = _SEPARATOR.split(_IFS.sub(" ", reading))
        for index in range(0, len(pieces), 2):
            words = _loose(pieces[index])
            starts = [words]
            if index and pieces[index - 1] in "<>":
                starts.append(words[1:])  # behind the name of a redirection's file
            for start in starts:
                command = _without_prefixes(start)
                if command:
                    found[command] = None
    return found


def _loose(text: str) -> tuple[str, ...]:
    words = (word.translate(_QUOTES) for word in text.split())
    return tuple(word for word in words if word)


def _without_prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    start = 0
    while start < len(words) and (words[start] in _KEYWORDS or _ASSIGNMENT.match(words[start])):
        start += 1
    return words[start:]


def _goes_on(words: Sequence[str], at: int, wanted: Sequence[str]) -> bool:
    """Whether the command that begins at a word has the wanted ones, with options and their values between them."""
    at += 1
    for word in wanted[1:]:
        start = at
        while at < len(words) and words[at] != word:
            if not (words[at].startswith("-") or (at > start and words[at - 1].startswith("-"))):
                return False
            at += 1
        if at == len(words):
            return False
        at += 1
    return True


def _name(program: str) -> str:
    """Without its folder, in the letters of file systems that know no case."""
    return program.rstrip("/").rpartition("/")[2].casefold()
