"""Which entries of a project's feed a reader wants. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sessions_app import ids
from sessions_app.entry_kinds import KINDS
from sessions_app.errors import Invalid

MAX_TERMS = 50


@dataclass(frozen=True, slots=True)
class Filter:
    """All that is given must hold: one of the kinds, one of the sessions, each of the labels as they are now."""

    kinds: frozenset[str] = frozenset()
    sessions: frozenset[UUID] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)

    def wants(self, kind: str, session: UUID, labels: Mapping[str, Any]) -> bool:
        return (
            (not self.kinds or kind in self.kinds)
            and (not self.sessions or session in self.sessions)
            and all(labels.get(name) == value for name, value in self.labels.items())
        )


EVERYTHING = Filter()


def parse(*, kinds: Iterable[str], sessions: Iterable[str], labels: Iterable[str]) -> Filter:
    """From parameters: kinds and sessions each repeated or with commas, labels `key:value`. Raises `Invalid`."""
    found_kinds = frozenset(_split("kinds", kinds))
    for kind in found_kinds:
        if kind not in KINDS:
            raise _invalid("kinds", "not_allowed", f"{kind[:40]!r} is no kind of entry")
    found_sessions = set()
    for text in _split("session", sessions):
        try:
            found_sessions.add(ids.decode("ses", text))
        except ids.InvalidId as error:
            raise _invalid("session", "malformed", str(error)) from None
    found_labels: dict[str, str] = {}
    for text in labels:
        name, colon, value = text.partition(":")
        if not colon:
            raise _invalid("label", "malformed", "must be key:value")
        if found_labels.setdefault(name, value) != value:
            raise _invalid("label", "contradiction", f"{name[:40]!r} can't have two values")
    if len(found_labels) > MAX_TERMS:
        raise _invalid("label", "too_long", f"at most {MAX_TERMS}")
    return Filter(found_kinds, frozenset(found_sessions), found_labels)


def _split(name: str, texts: Iterable[str]) -> list[str]:
    found = [word for text in texts for word in text.split(",") if word]
    if len(found) > MAX_TERMS:
        raise _invalid(name, "too_long", f"at most {MAX_TERMS}")
    return found


def _invalid(name: str, code: str, message: str) -> Invalid:
    return Invalid(f"{name}: {message}", errors=[{"path": f"/{name}", "code": code, "message": message}])
