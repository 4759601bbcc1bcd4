"""Cards: how apps above show, inside a session's timeline, what its entries speak of.

This app knows that a reply calls tools, but not their rows. Whoever has them registers a source when it is ready;
a page asks it for the cards of the entries that it shows or that have just come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sessions_app.models import Entry, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """`key` is the TypeID of what it shows; the element of its template has `id="card-{key}"` and `data-card`."""

    key: str
    template: str
    context: Mapping[str, Any]


class Source(Protocol):
    def __call__(self, session: Session, entries: Sequence[Entry]) -> Mapping[str, Card]:
        """The cards of what these entries name or change, by key, as things are now."""


_sources: list[Source] = []


def register(source: Source) -> None:
    """Called once, by the app that has the rows."""
    if source not in _sources:
        _sources.append(source)


def of_entries(session: Session, entries: Sequence[Entry]) -> dict[str, Card]:
    """From all sources."""
    found: dict[str, Card] = {}
    for source in _sources:
        found.update(source(session, entries))
    return found
