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
from collections.abc import Iterator, Sequence
from functools import lru_cache

MAX_SIMPLE = 1 << 16
"""Characters; a longer command is never allowed by its words."""

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
ash bash builtin busybox chroot chrt command csh dash doas docker env eval exec find fish flock ionice ksh nice nohup
nsenter parallel pkexec podman runuser script setsid sh source ssh stdbuf strace su sudo systemd-run taskset tcsh time
timeout tmux trap unshare watch xargs zsh .
"""
_RUNNERS = frozenset(_NAMES.split())


def is_compound(command: str) -> bool:
    """Whether it may do more than run one program with the words that stand there."""
    return simple_words(command) is None


@lru_cache(maxsize=32)
def simple_words(command: str) -> tuple[str, ...] | None:
    """The words of a command that can be read in one way only; None for any other."""
    if len(command) > MAX_SIMPLE or _COMPOUND.search(command):
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


@lru_cache(maxsize=2048)
def words_of(text: str) -> tuple[str, ...]:
    """The words of a rule."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def could_begin(command: str, words: Sequence[str]) -> bool:
    """Whether something that this runs may begin with these words."""
    wanted = _loose(" ".join(words))
    if not wanted:
        return True
    for found in _commands(command):
        if _UNKNOWN_NAME.search(found[0]) and found[0] not in _TESTS:
            return True
        if _begins_loosely(found, wanted):
            return True
        if _name(found[0]) in _RUNNERS:
            rest = found[1:]
            if any("$" in word for word in rest):
                return True
            if any(_begins_loosely(rest[index:], wanted) for index in range(len(rest))):
                return True
    return False


def parts(command: str) -> Iterator[str]:
    """The whole, and each text between separators."""
    yield command
    for part in _SEPARATOR.split(command)[::2]:
        yield part.strip()


@lru_cache(maxsize=32)
def _commands(text: str) -> tuple[tuple[str, ...], ...]:
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
    return tuple(found)


def _loose(text: str) -> tuple[str, ...]:
    words = (word.translate(_QUOTES) for word in text.split())
    return tuple(word for word in words if word)


def _without_prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    start = 0
    while start < len(words) and (words[start] in _KEYWORDS or _ASSIGNMENT.match(words[start])):
        start += 1
    return words[start:]


def _begins_loosely(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Also by the program's path, and with options (and their values) between the words."""
    if _name(words[0]) != _name(wanted[0]):
        return False
    at = 1
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
    return program.rstrip("/").rpartition("/")[2].casefold()
