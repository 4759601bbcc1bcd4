"""Hears wake-ups: one thread and one connection per process, which fans out to callbacks.

The order on every connect is LISTEN, then wake everybody once, so that each reads its tables *after* nothing
can be missed any more (C87). A callback gets the word that was rung, or None for "anything may have
happened: look". Losing a connection is nobody's business but this thread's: it reconnects, and callers have
their fallback polls meanwhile.

The thread speaks to libpq in pipeline mode. A bare Sync message is answered by the server like a ping, but
is no transaction, so a connection that is silent because nothing happens can be told from one whose other
end is gone, also behind a proxy that answers TCP keepalives itself, at no cost in `pg_stat_database`.
"""

import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psycopg
import structlog
from psycopg.pq import ExecStatus

from sessions_app import own_connection
from sessions_app.notifier import EVERYTHING, channel_of
from sessions_app.nudge import Nudge

logger = structlog.get_logger(__name__)

PING_EVERY = 4.0
ANSWER_WITHIN = 4.0
"""Seconds. Together they bound how long a half-open connection goes unnoticed."""

type Callback = Callable[[str | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    kind: str
    callback: Callback


class _Wire:
    """One connection in pipeline mode. Raises `psycopg.Error` when it is of no use any more."""

    def __init__(self) -> None:
        self._connection = own_connection.connect(purpose="listen")
        self._pgconn = self._connection.pgconn
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self.backend_pid = self._connection.info.backend_pid
        self.socket = self._pgconn.socket
        self._last_ping = time.monotonic()
        # Sync messages under way: when sent, and who is woken by the answer.
        self._unanswered: deque[tuple[float, list[_Subscription]]] = deque()

    def close(self) -> None:
        self._connection.close()

    def listen(self, new: list[_Subscription]) -> None:
        """LISTEN; the answer to the Sync behind it brings `new` back from `receive`."""
        for kind in sorted({subscription.kind for subscription in new}):
            self._pgconn.send_query_params(f"LISTEN {channel_of(kind)}".encode(), None)
        self._sync(new)

    def patience(self) -> float:
        """Seconds until `keep_alive` has to be called."""
        if self._unanswered:
            return self._unanswered[0][0] + ANSWER_WITHIN - time.monotonic()
        return self._last_ping + PING_EVERY - time.monotonic()

    def keep_alive(self) -> None:
        """Ping when it is time; give up when the last one is not answered."""
        if self.patience() > 0:
            return
        if self._unanswered:
            raise psycopg.OperationalError("the server does not answer")
        self._sync([])

    def receive(self) -> tuple[list[_Subscription], dict[str, list[str]]]:
        """What has come: subscriptions that now listen, and words by channel, each once and in order."""
        self._pgconn.consume_input()
        listening: list[_Subscription] = []
        while self._unanswered and not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                continue  # the end of one statement's results; the next one's follow
            if result.status == ExecStatus.PIPELINE_SYNC:
                listening += self._unanswered.popleft()[1]
            elif result.status != ExecStatus.COMMAND_OK:
                raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
        heard: dict[str, dict[str, None]] = {}
        while notification := self._pgconn.notifies():
            payload = notification.extra.decode()
            # A payload is a list of words, or JSON that is handed on as it is.
            words = [payload] if payload.startswith("[") else payload.split(",")
            heard.setdefault(notification.relname.decode(), {}).update(dict.fromkeys(words))
        return listening, {channel: list(words) for channel, words in heard.items()}

    def _sync(self, waking: list[_Subscription]) -> None:
        self._pgconn.pipeline_sync()
        self._last_ping = time.monotonic()
        self._unanswered.append((self._last_ping, waking))


class Listener:
    """Starts its thread with the first subscription."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: list[_Subscription] = []
        self._new: list[_Subscription] = []
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._nudge: Nudge | None = None
        self._wire: _Wire | None = None

    def subscribe(self, kind: str, callback: Callback) -> Callable[[], None]:
        """Call `callback` from this listener's thread for every word of `kind`; returns its removal.

        It is called with None once LISTEN has taken effect, and after every reconnect. It must be short and
        not raise; an error is logged and harms nobody else.
        """
        subscription = _Subscription(kind, callback)
        with self._lock:
            self._subscriptions.append(subscription)
            self._new.append(subscription)
            if self._thread is None and not self._closing.is_set():
                self._nudge = Nudge()
                self._thread = threading.Thread(
                    target=self._run, args=(self._nudge,), name="listener", daemon=True
                )
                self._thread.start()
        if self._nudge is not None:
            self._nudge.give()

        def unsubscribe() -> None:
            with self._lock:
                if subscription in self._subscriptions:
                    self._subscriptions.remove(subscription)

        return unsubscribe

    @property
    def backend_pid(self) -> int | None:
        """The server process of the connection, for operators and tests; None while there is none."""
        wire = self._wire
        return None if wire is None else wire.backend_pid

    def close(self, *, limit: float = 2.0) -> None:
        """End the thread and its connection."""
        self._closing.set()
        if self._thread is not None and self._nudge is not None:
            self._nudge.give()
            self._thread.join(limit)

    def _run(self, nudge: Nudge) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                self._wire = _Wire()
                self._announce()
                while not self._closing.is_set():
                    self._turn(self._wire, nudge)
                    failures = 0
            except psycopg.Error as error:
                failures += 1
                if failures == 1:
                    logger.warning("wakeups.connection_lost", error=str(error).strip())
            finally:
                if self._wire is not None:
                    self._wire.close()
                    self._wire = None
            self._closing.wait(own_connection.backoff(failures))
        nudge.close()

    def _announce(self) -> None:
        """On a new connection everybody is new."""
        with self._lock:
            self._new = list(self._subscriptions)

    def _turn(self, wire: _Wire, nudge: Nudge) -> None:
        """Wait for whatever comes first: words, new subscriptions, the time for a ping or for giving up."""
        wire.keep_alive()
        with self._lock:
            new, self._new = self._new, []
        if new:
            wire.listen(new)
        with selectors.DefaultSelector() as selector:
            selector.register(wire.socket, selectors.EVENT_READ)
            selector.register(nudge, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(max(0.0, wire.patience()))}
        nudge.take()
        if wire.socket in ready:
            listening, heard = wire.receive()
            for subscription in listening:
                self._call(subscription, None)
            if heard:
                self._fan_out(heard)

    def _fan_out(self, heard: dict[str, list[str]]) -> None:
        with self._lock:
            subscriptions: Iterable[_Subscription] = tuple(self._subscriptions)
        for subscription in subscriptions:
            for word in heard.get(channel_of(subscription.kind), ()):
                self._call(subscription, None if word == EVERYTHING else word)

    def _call(self, subscription: _Subscription, word: str | None) -> None:
        with self._lock:
            if subscription not in self._subscriptions:
                return
        try:
            subscription.callback(word)
        except Exception:
            # The callback's own error; the others still have to be woken.
            logger.exception("wakeups.callback_failed", kind=subscription.kind)
