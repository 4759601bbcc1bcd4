"""Previews of replies on their way: the web process's end (S6).

Says to all workers which sessions are watched here, puts together what their notifications bring, and gives each
follower its own frames, counted from 0 without gaps for each model call and beginning with the beginning of the
reply, also where it came in the middle of it. What a follower does not take is dropped with its numbers, so that
its client sees a gap and drops the preview.

A worker counts its items too. Where one is missing this end asks for all of it again, by watching under a new name;
what comes then is compared with what was there, and only the rest is passed on. When the reply is saved, or its
call is over in another way, the entry says so and the preview is forgotten.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sessions_app import wakeups
from sessions_app.feed.reading import Batch, dumps

if TYPE_CHECKING:
    from sessions_app.feed.follower import Follower

SAY_EVERY = 10.0
"""Seconds; workers forget a watcher after 25."""

WAITING_LIMIT = 100
"""Frames that wait for a follower; then they are dropped."""

_FRAME_TEXT = 4000

_ENDS = frozenset(
    {"assistant_message", "model_call_failed", "turn_ended", "session_resumed", "retry_scheduled"}
)


class Preview:
    """What one follower has of the reply on its way."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self._call: str | None = None
        self._next = 0

    def put(self, call: str, block: int, kind: str, text: str) -> None:
        if call != self._call:
            self._call, self._next = call, 0
            self.waiting.clear()
        for start in range(0, len(text), _FRAME_TEXT):
            frame = {"type": "delta", "model_call": call, "n": self._next, "block": block, "kind": kind}
            self._next += 1
            self.waiting.append(dumps({**frame, "text": text[start : start + _FRAME_TEXT]}))
        if len(self.waiting) > WAITING_LIMIT:
            self.waiting.clear()  # their numbers are gone with them

    def take(self) -> list[str]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def forget(self) -> None:
        """The reply is saved: what waits is older than its entry."""
        self.waiting.clear()


class _Reply:
    """What is known of the reply on its way to one session."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.is_broken = False
        self._following = 0
        self._blocks: dict[int, tuple[str, str]] = {}
        self._told: dict[int, int] = {}

    def take(self, count: int, block: int, kind: str, text: str) -> str:
        """What is new in an item. After a missing one nothing is, until it all begins again."""
        if count == 0:
            self._blocks.clear()
            self.is_broken = False
        elif count != self._following:
            self.is_broken = True
        if self.is_broken:
            return ""
        self._following = count + 1
        known = self._blocks.get(block, (kind, ""))[1] + text
        self._blocks[block] = (kind, known)
        told = self._told.get(block, 0)
        self._told[block] = max(told, len(known))
        return known[told:]

    def so_far(self) -> Iterator[tuple[int, str, str]]:
        for block, (kind, text) in self._blocks.items():
            yield block, kind, text


class Previews:
    """Of one hub. `_heard` is called in the listener's thread, everything else on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: dict[UUID, set[Follower]] = {}
        self._replies: dict[UUID, _Reply] = {}
        self._name = uuid4().hex
        self._renamed = 0
        self._unsubscribe: list[Callable[[], None]] = []
        self._saying: asyncio.TimerHandle | None = None

    def add(self, session: UUID, follower: "Follower") -> None:
        watchers = self._watchers.setdefault(session, set())
        watchers.add(follower)
        if not self._unsubscribe:
            self._unsubscribe = [
                wakeups.subscribe(wakeups.DELTAS, self._heard),
                wakeups.subscribe(wakeups.WATCH, self._asked),
            ]
            self._saying = self._loop.call_later(SAY_EVERY, self._say)
        if len(watchers) == 1:
            wakeups.ring_watch([self._word(session)])
        elif session in self._replies:
            reply = self._replies[session]
            for block, kind, text in reply.so_far():
                follower.preview.put(reply.call, block, kind, text)
            follower.wake()

    def remove(self, session: UUID, follower: "Follower") -> None:
        watchers = self._watchers.get(session, set())
        watchers.discard(follower)
        if session in self._watchers and not watchers:
            del self._watchers[session]
            self._replies.pop(session, None)
        if not self._watchers and self._saying is not None:
            for end in self._unsubscribe:
                end()
            self._unsubscribe = []
            self._saying.cancel()
            self._saying = None

    def entries_came(self, batch: Batch[Any]) -> None:
        """Of a channel: the reply that was on its way may have arrived."""
        for frame in batch.frames:
            if frame.kind in _ENDS and self._replies.pop(frame.session, None) is not None:
                for follower in self._watchers.get(frame.session, ()):
                    follower.preview.forget()

    def _word(self, session: UUID) -> str:
        return f"{session}:{self._name}.{self._renamed}"

    def _asked(self, word: str | None) -> None:
        """In the listener's thread. A worker begins to listen."""
        if word == wakeups.WHO_WATCHES and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._say_now)

    def _say_now(self) -> None:
        wakeups.ring_watch([self._word(session) for session in self._watchers])

    def _say(self) -> None:
        self._say_now()
        self._saying = self._loop.call_later(SAY_EVERY, self._say)

    def _heard(self, payload: str | None) -> None:
        if self._loop.is_closed():
            return
        if payload is None:
            # The listener has a new connection. Whatever was under way is asked for again.
            self._loop.call_soon_threadsafe(self._ask_again)
        else:
            self._loop.call_soon_threadsafe(self._take, json.loads(payload))

    def _ask_again(self) -> None:
        self._renamed += 1
        self._say_now()

    def _take(self, items: list[list[Any]]) -> None:
        missed = False
        for text_session, call, count, block, kind, text in items:
            session = UUID(text_session)
            watchers = self._watchers.get(session)
            if not watchers:
                continue
            reply = self._replies.get(session)
            if reply is None or reply.call != call:
                if count != 0:
                    continue  # it is over already, or its beginning is still to come
                reply = self._replies[session] = _Reply(call)
            was_broken = reply.is_broken
            new = reply.take(count, block, kind, text)
            missed = missed or (reply.is_broken and not was_broken)
            if new:
                for follower in watchers:
                    follower.preview.put(call, block, kind, new)
                    follower.wake()
        if missed:
            self._ask_again()
