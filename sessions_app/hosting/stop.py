"""The one thing a loop is told from outside: stop, and how urgently.

A loop is a function `run(owner, stop)`. While it runs it is asked at most twice to end:

1. `draining`: claim nothing new, let what runs finish. `deadline` says when the supervisor kills.
2. `aborting`: end what still runs now, release it and return. It follows a second signal, or comes shortly
   before the deadline, so that a loop that obeys it is never killed with its leases in hand.

A flag only moves forward (running, draining, aborting), and moving it twice is harmless. Exactly one thread
of a loop process moves it (never a signal handler: `threading.Event.set` may deadlock in one), so waiting on
it is ordinary thread code, and asyncio code subscribes with `on_change`:

    stop.on_change(lambda: loop.call_soon_threadsafe(changed.set))
"""

import threading
import time
from collections.abc import Callable


class StopFlag:
    """Whether and how a loop has to end; see the module's docstring."""

    def __init__(self) -> None:
        self._draining = threading.Event()
        self._aborting = threading.Event()
        self._deadline: float | None = None
        self._abort_at: float | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def draining(self) -> bool:
        """True once the loop must not take new work; stays true while aborting."""
        return self._draining.is_set()

    @property
    def aborting(self) -> bool:
        """True once what still runs has to be ended and released."""
        return self._aborting.is_set()

    @property
    def deadline(self) -> float | None:
        """`time.monotonic()` value at which the process is killed; None before draining."""
        return self._deadline

    @property
    def abort_at(self) -> float | None:
        """`time.monotonic()` value at which draining becomes aborting; None before draining."""
        return self._abort_at

    def is_set(self) -> bool:
        """Same as `draining`, so that the flag reads like a `threading.Event`."""
        return self.draining

    def wait(self, timeout: float | None = None) -> bool:
        """Block until draining begins or `timeout` seconds have passed; returns `draining`."""
        return self._draining.wait(timeout)

    def wait_abort(self, timeout: float | None = None) -> bool:
        """Block until aborting begins or `timeout` seconds have passed; returns `aborting`."""
        return self._aborting.wait(timeout)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at each move of the flag, from the thread that moves it; returns its removal.

        If draining began before, it is called at once, so that no move is missed; a move that happens at the
        same moment may call it twice.
        """
        self._callbacks.append(callback)
        if self.draining:
            callback()

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def drain(self, *, limit: float, margin: float) -> None:
        """Begin draining: killed `limit` seconds from now, aborted `margin` seconds before that (L8)."""
        if self.draining:
            return
        now = time.monotonic()
        self._deadline = now + limit
        self._abort_at = now + max(0.0, limit - margin)
        self._draining.set()
        self._tell()

    def abort(self) -> None:
        """Begin aborting (and draining, if that has not begun)."""
        if self.aborting:
            return
        self._draining.set()
        self._aborting.set()
        self._tell()

    def _tell(self) -> None:
        for callback in tuple(self._callbacks):
            callback()
