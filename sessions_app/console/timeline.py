"""The timeline: entries as a page shows them. Every entry has an element; what others show is folded away in it.

Both a whole page and the entries that have just come are made here and in one set of templates, so there is one
place in which something that a model said becomes HTML.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sessions_app import branches
from sessions_app.console import blocks, cards, lines
from sessions_app.console.blocks import Shown
from sessions_app.console.cards import Card
from sessions_app.console.lines import Line
from sessions_app.models import Entry, Session

PAGE = 80
"""Entries of one page of history."""

MOST_AT_ONCE = 200
"""Entries of one look at what has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry. `shape` is message, line, card, or quiet: in the log, but shown by something else."""

    entry: Entry
    shape: Literal["message", "line", "card", "quiet"]
    who: str = ""
    is_agent: bool = False
    model: str = ""
    detail: str = ""
    problem: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    content: Sequence[Shown] = ()
    line: Line | None = None
    card: Card | None = None
    is_left: bool = False  # a rewind left it behind
    is_inherited: bool = False  # of the session that this one was forked from

    @property
    def kind(self) -> str:
        return self.entry.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Items in order. `loose` are cards that changed and whose place is in an earlier entry."""

    items: list[Item]
    loose: list[Card]
    first: int
    last: int
    has_earlier: bool
    has_more: bool
    left: list[tuple[int, int]]
    is_inherited: bool = False  # first and last are then places on the branch, not seqs

    @property
    def before_first(self) -> int:
        return self.first - 1

    @property
    def left_text(self) -> str:
        """Such as `3-9,14-20`."""
        return ",".join(f"{first}-{last}" for first, last in self.left)


def newest(session: Session, *, before: int | None = None) -> Timeline:
    """The last page of history, or the one in front of an entry."""
    rows = Entry.objects.filter(session_id=session.pk)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[:PAGE])
    found.reverse()
    return _timeline(session, found, after=0)


def inherited(session: Session, *, until: int | None = None) -> Timeline:
    """The last page of what a fork took over, or what ends at a place of its branch. To be read, not acted on."""
    segments = [part for part in branches.of_session(session.pk) if part.session != session.pk]
    last = branches.length(segments)
    if until is not None:
        last = min(last, until)
    rows = branches.between(segments, last - PAGE, last) if last > 0 else []
    files = blocks.files_in((content_of(row) for _, row in rows), project=session.project_id)
    items = [replace(_item(row, {}, files, (), set()), is_inherited=True) for _, row in rows]
    first = rows[0][0] if rows else 1
    return Timeline(
        items=items,
        loose=[],
        first=first,
        last=last,
        has_earlier=first > 1,
        has_more=False,
        left=[],
        is_inherited=True,
    )


def since(session: Session, *, after: int) -> Timeline:
    """What has come behind an entry."""
    rows = Entry.objects.filter(session_id=session.pk, seq__gt=after).order_by("seq")
    return _timeline(session, list(rows[: MOST_AT_ONCE + 1]), after=after, most=MOST_AT_ONCE)


def _timeline(session: Session, rows: list[Entry], *, after: int, most: int | None = None) -> Timeline:
    has_more = most is not None and len(rows) > most
    rows = rows[:most]
    found = cards.of_entries(session, rows)
    files = blocks.files_in((content_of(row) for row in rows), project=session.project_id)
    left = left_behind(session)
    placed: set[str] = set()
    items = [_item(row, found, files, left, placed) for row in rows]
    return Timeline(
        items=items,
        loose=[card for key, card in found.items() if key not in placed],
        first=rows[0].seq if rows else after + 1,
        last=rows[-1].seq if rows else after,
        has_earlier=bool(rows) and rows[0].seq > 1,
        has_more=has_more,
        left=left,
    )


def content_of(entry: Entry) -> list[dict[str, Any]]:
    """The blocks of an entry: its content, and the structured answer beside it."""
    data = entry.data or {}
    content = data.get("content") or []
    return [*content, *(data.get("output") or [])]


def left_behind(session: Session) -> list[tuple[int, int]]:
    """The session's own entries that are not on its branch, as ranges of seqs. No query unless it was rewound."""
    if not session.rewound:
        return []
    segments = branches.of_session(session.pk, head_seq=session.head_seq)
    left = []
    at = 1
    for part in segments:
        if part.session != session.pk:
            continue
        if part.first > at:
            left.append((at, part.first - 1))
        at = part.last + 1
    return left


def _item(
    entry: Entry,
    found: Mapping[str, Card],
    files: Mapping[str, blocks.File],
    left: Sequence[tuple[int, int]],
    placed: set[str],
) -> Item:
    data = entry.data or {}
    is_left = any(first <= entry.seq <= last for first, last in left)
    match entry.kind:
        case "user_message":
            return Item(
                entry=entry,
                shape="message",
                who=(entry.actor or {}).get("name") or "Somebody",
                detail="steered" if data.get("delivery") == "steering" else "",
                content=blocks.shown(content_of(entry), files),
                is_left=is_left,
            )
        case "assistant_message":
            return _reply(entry, found, files, placed, is_left=is_left)
        case "tool_result" if data.get("tool_call") not in found:
            line = Line(words=f"{data.get('name')}: {data.get('outcome')}", icon="tool")
            content = blocks.shown(content_of(entry), files)
            return Item(entry=entry, shape="line", line=line, content=content, is_left=is_left)
        case "tool_call_updated":
            line = Line(words=str(data.get("update") or "Progress"), icon="tool", detail=_name(data, found))
            content = blocks.shown(content_of(entry), files)
            return Item(entry=entry, shape="line", line=line, content=content, is_left=is_left)
        case "approval_requested" if data.get("approval") in found:
            key = str(data["approval"])
            placed.add(key)
            return Item(entry=entry, shape="card", card=found[key], is_left=is_left)
    known = lines.line_of(entry)
    if known is not None:
        return Item(entry=entry, shape="line", line=known, is_left=is_left)
    return Item(entry=entry, shape="quiet", is_left=is_left)


def _reply(
    entry: Entry,
    found: Mapping[str, Card],
    files: Mapping[str, blocks.File],
    placed: set[str],
    *,
    is_left: bool,
) -> Item:
    data = entry.data
    content: list[Shown] = []
    for block in data.get("content") or []:
        if block.get("type") != "tool_call":
            content += blocks.shown([block], files)
            continue
        key = str(block.get("tool_call") or "")
        card = found.get(key)
        if card is not None:
            placed.add(key)
        content.append(
            Shown(kind="call", card=card, text=str(block.get("name", "")), value=block.get("arguments"))
        )
    content += blocks.shown(data.get("output") or [], files)
    stop = str(data.get("stop", ""))
    problem = str(data.get("invalid_output") or "")
    if not problem and stop not in {"done", "tool_calls", ""}:
        problem = {
            "length": "Cut off at the length limit.",
            "filtered": "Stopped by a content filter.",
            "paused": "The provider paused the reply.",
        }.get(stop, f"Stopped: {data.get('raw_stop') or stop}.")
    return Item(
        entry=entry,
        shape="message",
        who="Agent",
        is_agent=True,
        model=str(data.get("model") or ""),
        usage=data.get("usage") or {},
        problem=problem,
        content=content,
        is_left=is_left,
    )


def _name(data: Mapping[str, Any], found: Mapping[str, Card]) -> str:
    card = found.get(str(data.get("tool_call")))
    return str(card.context.get("name", "")) if card is not None else ""
