"""The three answers of a matcher. Pure."""

from enum import IntEnum


class Match(IntEnum):
    """Several that must all hold are as good as their least, several of which one must hold as their greatest."""

    NO = 0
    MAYBE = 1  # under a reading that the tool may have and an allow must not rely on
    YES = 2
