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
_BEHIND_TIME = frozenset({"-p", "--"})
_TESTS = frozenset({"[", "[["})
_UNKNOWN_NAME = re.compile(r"[$*?\[{~`]")
_REDIRECTIONS = re.compile(r"[<>]+[&|]?|&>+")
_BEFORE_A_FILE = re.compile(r"[<>][&|]?$")

# Programs that run what they are given as arguments, or text in them.
_NAMES = """
ash bash builtin busybox chroot chrt command csh dash dbus-run-session doas docker dumb-init entr
env eval exec fakeroot faketime find fish flock function gosu ionice ksh linux32 linux64 ltrace mksh
nice nohup nsenter numactl parallel perf pkexec podman prlimit proot rbash rlwrap runuser script
setarch setpriv setsid sh source ssh ssh-agent sshpass start-stop-daemon stdbuf strace su su-exec
sudo systemd-run taskset tcsh time timeout tini tmux toybox trap unbuffer unshare valgrind watch
xargs xvfb-run yash zsh .
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
        readable = _IFS.sub(" ", reading)
        for words in (*_in_pieces(readable), *_in_tokens(readable)):
            command = _without_prefixes(words)
            if command:
                found[command] = None
    return found


def _in_pieces(text: str) -> Iterable[tuple[str, ...]]:
    """Between separators, whether or not they stand in quotes; what stands there may be for another shell."""
    pieces = _SEPARATOR.split(text)
    is_open = False
    for index in range(0, len(pieces), 2):
        before = pieces[index - 1] if index else ""
        if before == "`" and not pieces[index - 2].endswith("\\"):
            is_open = not is_open
            if is_open and _names_with(pieces[index - 2]):
                yield ("`",)
        for words in dict.fromkeys((_loose(pieces[index]), _unquoted(pieces[index]))):
            yield words
            if before in {"<", ">"} or (
                index > 2 and _BEFORE_A_FILE.search("".join(pieces[index - 3 : index]))
            ):
                yield words[1:]  # behind the name of a redirection's file


def _names_with(text: str) -> bool:
    """Whether what a substitution behind this text gives is the name of a command, or part of one."""
    words = _without_prefixes(_loose(text))
    return not words if not text or text[-1].isspace() else len(words) == 1


def _in_tokens(text: str) -> Iterable[tuple[str, ...]]:
    """As a shell reads it: what stands in quotes separates nothing, so in `A="b; c" rm` it is rm that runs."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&`()<>\n\r\v\f")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    is_file = False
    try:
        for token in lexer:
            if not token or not set(token) <= set(lexer.punctuation_chars):
                if not is_file:
                    words.append(token.translate(_QUOTES))
                is_file = False
                continue
            is_file = _BEFORE_A_FILE.search(token) is not None
            if not _REDIRECTIONS.fullmatch(token):
                yield tuple(words)
                words = []
            elif words and words[-1].isdecimal():
                words.pop()  # the number of what is redirected
    except ValueError:
        pass  # a quotation without an end: no shell runs this
    yield tuple(words)


def _unquoted(text: str) -> tuple[str, ...]:
    words = (word.translate(_QUOTES) for word in _split(text))
    return tuple(word for word in words if word)


def _loose(text: str) -> tuple[str, ...]:
    words = (word.translate(_QUOTES) for word in text.split())
    return tuple(word for word in words if word)


def _without_prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    start = 0
    while start < len(words):
        before = words[start - 1] if start else ""
        is_name = before == "coproc" and words[start + 1 : start + 2] and words[start + 1] in _KEYWORDS
        is_option = before in _BEHIND_TIME | {"time"} and words[start] in _BEHIND_TIME
        if not (words[start] in _KEYWORDS or is_name or is_option or _ASSIGNMENT.match(words[start])):
            break
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
