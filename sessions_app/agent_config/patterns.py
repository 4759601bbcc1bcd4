"""Regular expressions of permission rules: RE2 syntax, matched by RE2.

A rule's pattern is written by one person and runs on text that a model made up, so it must never take more
than linear time. RE2 guarantees that, at the price of back-references and look-around, which are refused;
Python's own `re` takes them and can hang on `(a+)+$`.
"""

from functools import lru_cache
from typing import Protocol

import re2  # type: ignore[import-untyped]

MAX_PATTERN = 1000
"""Characters."""

_MAX_MEMORY = 1 << 20


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """Something true where the whole text matches."""

    def search(self, text: str) -> object | None:
        """Something true where any part of the text matches."""


class InvalidPattern(ValueError):
    """Not a regular expression that RE2 takes."""


@lru_cache(maxsize=1000)
def compile_pattern(pattern: str) -> Pattern:
    """The pattern, to be used with `fullmatch` (rules are anchored at both ends); or `InvalidPattern`."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidPattern(f"a pattern has at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        raise InvalidPattern(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
    return compiled
