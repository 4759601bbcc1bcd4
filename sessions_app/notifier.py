"""Sends wake-ups: one thread and one connection per process, apart from everything that waits for a commit.

A NOTIFY inside the writing transaction makes all commits queue for one lock (measured: 364 commits a second
instead of 1,634), so whoever has committed only drops a word here. The thread sends what has gathered, each
word once, in one statement: at once when it was idle, else at most every few milliseconds. Without a
database the words wait, a bounded number of them; past that, one word for the kind says "look at everything".
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
import structlog

from sessions_app import own_connection

logger = structlog.get_logger(__name__)

WINDOW = 0.004
"""Seconds between two sends."""

PAYLOAD_LIMIT = 7_900
"""Bytes; PostgreSQL refuses payloads of 8,000 and more."""

WORDS_KEPT = 20_000
POSTS_KEPT = 500
EVERYTHING = "*"

# All channels in one statement. A notification is no data, so its commit does not wait for the disk; set for
# this one transaction, because behind a pooler the connection is shared.
_NOTIFY = """
SELECT pg_notify(channel, payload), set_config('synchronous_commit', 'off', true)
FROM unnest(%s::text[], %s::text[]) AS message (channel, payload)
"""


def channel_of(kind: str) -> str:
    """The channel of a kind of wake-up; a listener hears only the kinds it asked for."""
    return f"tenure_{kind}"


def payloads(words: Iterable[str]) -> list[str]:
    """Words of one kind, joined by commas into as few payloads as the limit allows. Words are ASCII."""
    made: list[str] = []
    room = 0
    for word in sorted(words):
        if room < len(word) + 1:
            made.append(word)
            room = PAYLOAD_LIMIT - len(word)
        else:
            made[-1] += "," + word
            room -= len(word) + 1
    return made


class Notifier:
    """Starts its thread with the first word. `ring` never blocks and never raises."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._words: dict[str, set[str]] = {}
        # Whole payloads, in order: previews, which nobody misses. Only so many wait.
        self._posts: deque[tuple[str, str]] = deque(maxlen=POSTS_KEPT)
        self._sending = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def ring(self, kind: str, words: Iterable[str]) -> None:
        """Send `words` of this kind soon; a word that already waits is sent once, and no words are nothing."""
        new = set(words)
        with self._changed:
            if self._closing or not new:
                return
            waiting = self._words.setdefault(kind, set())
            waiting |= new
            if len(waiting) > WORDS_KEPT:
                self._words[kind] = {EVERYTHING}
            self._begin()

    def post(self, kind: str, payloads: Iterable[str]) -> None:
        """Send these payloads soon, in order. They are lost where they can't be sent, or where too many wait."""
        with self._changed:
            if not self._closing:
                self._posts.extend((kind, payload) for payload in payloads)
                self._begin()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def flush(self, *, limit: float = 1.0) -> bool:
        """Wait until all is sent; False if that took longer than `limit` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._words or self._posts or self._sending), limit)

    def close(self, *, limit: float = 1.0) -> None:
        """Send what waits, within `limit` seconds, and end."""
        self.flush(limit=limit)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(limit)

    def _run(self) -> None:
        failures = 0
        while self._wait_for_words():
            words, posts = self._take()
            try:
                self._send(words, posts)
            except psycopg.Error as error:
                failures += 1
                self._give_back(words)
                self._disconnect()
                if failures == 1:
                    logger.warning("wakeups.not_sent", error=str(error).strip())
                self._pause(own_connection.backoff(failures))
            else:
                failures = 0
                with self._changed:
                    self._sending = False
                    self._changed.notify_all()
                self._pause(WINDOW)
        self._disconnect()

    def _wait_for_words(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._words or self._posts or self._closing)
            return not self._closing

    def _take(self) -> tuple[dict[str, set[str]], list[tuple[str, str]]]:
        with self._changed:
            self._sending = True
            words, self._words = self._words, {}
            posts = list(self._posts)
            self._posts.clear()
            return words, posts

    def _give_back(self, words: dict[str, set[str]]) -> None:
        with self._changed:
            self._sending = False
        for kind, some in words.items():
            self.ring(kind, some)

    def _send(self, words: dict[str, set[str]], posts: Sequence[tuple[str, str]]) -> None:
        if self._connection is None:
            self._connection = own_connection.connect(purpose="notify")
        messages = [
            (channel_of(kind), payload)
            for kind, some in sorted(words.items())
            for payload in ([EVERYTHING] if EVERYTHING in some else payloads(some))
        ]
        messages += [(channel_of(kind), payload) for kind, payload in posts]
        self._connection.execute(_NOTIFY, tuple(map(list, zip(*messages, strict=True))))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pause(self, seconds: float) -> None:
        """Let words gather; ends early when closing."""
        until = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._closing, max(0.0, until - time.monotonic()))
