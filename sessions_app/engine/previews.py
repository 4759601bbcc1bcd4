"""Previews of replies on their way to those who watch (S6): the worker's end.

A web process in which somebody watches a session says so to all workers, again and again while that is so
(`wakeups.WATCH`, the word is `<session>:<watcher>`), and at once when a worker that begins to listen asks. Here a
reply's pieces are only put on a list, as long as nobody watches its session. With a watcher the new ones go out
every 50 ms, those of all sessions together, in notifications below 8,000 bytes. They are counted from 0 for each
model call, so that a lost one is noticed. For a watcher that comes in the middle, or that lost something and so
watches under a new name, the count begins again at 0 with all that was said so far; whoever has that already takes
what is new of it (`feed.previews`).

Nothing of this is saved, and nothing waits for it.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from django.conf import settings

from sessions_app import wakeups
from sessions_app.crashpoints import crash_point
from sessions_app.providers.port import Delta, ModelRequest, OnDelta
from sessions_app.text import clean_text

WINDOW = 0.05
"""Seconds between two sends."""

WATCH_TTL = 25.0
"""Seconds that a watcher counts as one after it was heard of; web processes say it every 10."""

_TEXT_LIMIT = 1000  # characters of one item; up to 6 bytes each in JSON
_PAYLOAD_LIMIT = 7_900


class _Stream:
    """One reply on its way."""

    def __init__(self, session: str, call: str) -> None:
        self.session = session
        self.call = call
        self.pieces: list[Delta] = []
        self.sent = 0  # pieces
        self.count = 0  # items

    def restart(self) -> None:
        self.sent = self.count = 0

    def new_items(self) -> Iterator[str]:
        """What has come since the last time, each as the JSON of one item; neighbours of a block are joined."""
        pieces, self.sent = self.pieces[self.sent :], len(self.pieces)
        for (block, kind), same in groupby(pieces, key=lambda piece: (piece.block, piece.kind)):
            text = clean_text("".join(piece.text for piece in same))
            for start in range(0, len(text), _TEXT_LIMIT):
                part = text[start : start + _TEXT_LIMIT]
                item = [self.session, self.call, self.count, block, kind, part]
                yield json.dumps(item, ensure_ascii=False, separators=(",", ":"))
                self.count += 1


class Previews:
    """Of one process. `_heard` is called in the listener's thread, everything else on the loop."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[str, float]] = {}
        self._streams: dict[str, _Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self) -> Callable[[], None]:
        """Begin to hear who watches; returns the end of it."""
        self._loop = asyncio.get_running_loop()
        return wakeups.subscribe(wakeups.WATCH, self._heard)

    @contextmanager
    def of(self, request: ModelRequest) -> Iterator[OnDelta | None]:
        """What takes the pieces of this request's reply; None where nobody may see them."""
        session = request.watched_as
        if session is None:
            yield _crash if settings.TENURE.crash_at else None
            return
        stream = self._streams[session] = _Stream(session, request.call_id)
        watchers = self._watchers
        put = stream.pieces.append
        may_crash = bool(settings.TENURE.crash_at)

        def take(delta: Delta) -> None:
            put(delta)
            if session in watchers:
                self._send_soon()
            if may_crash:
                crash_point("model.streaming")

        try:
            yield take
        finally:
            if self._streams.get(session) is stream:
                del self._streams[session]

    def _send_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW, self._send)

    def _send(self) -> None:
        self._timer = None
        now = time.monotonic()
        items: list[str] = []
        for session, stream in self._streams.items():
            if stream.sent < len(stream.pieces) and self._is_watched(session, now):
                items += stream.new_items()
        if items:
            wakeups.post_deltas(payloads(items))

    def _is_watched(self, session: str, now: float) -> bool:
        watchers = self._watchers.get(session)
        if watchers is None:
            return False
        for watcher in [name for name, until in watchers.items() if until < now]:
            del watchers[watcher]
        if not watchers:
            del self._watchers[session]
        return bool(watchers)

    def _heard(self, word: str | None) -> None:
        if word is None:
            # Only now is it heard who watches, so whoever does is asked to say it again.
            wakeups.ring_watch([wakeups.WHO_WATCHES])
        elif word != wakeups.WHO_WATCHES and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watched, word)

    def _watched(self, word: str) -> None:
        session, _, watcher = word.partition(":")
        known = self._watchers.setdefault(session, {})
        is_new = watcher not in known
        known[watcher] = time.monotonic() + WATCH_TTL
        stream = self._streams.get(session)
        if is_new and stream is not None and stream.pieces:
            stream.restart()
            self._send_soon()
        if len(self._watchers) > 10_000:
            now = time.monotonic()
            for name in list(self._watchers):
                self._is_watched(name, now)


def payloads(items: Sequence[str]) -> list[str]:
    """JSON arrays of items, as few as the limit of a notification allows, in order."""
    made: list[list[str]] = []
    room = 0
    for item in items:
        size = len(item.encode()) + 1
        if size > room:
            made.append([])
            room = _PAYLOAD_LIMIT - 2
        made[-1].append(item)
        room -= size
    return [f"[{','.join(some)}]" for some in made]


def _crash(_: Delta) -> None:
    crash_point("model.streaming")


of_this_process = Previews()
"""A worker loop runs in a process of its own, and is its only one."""
