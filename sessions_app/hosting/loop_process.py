"""What a worker process of the cluster does: announce itself, wait to be told which loop it is, and be it.

    enter the lobby -> wait for `start` -> run(owner, stop) -> say `ended` -> exit

The process never goes back to django-q2: it exits from inside its task, so that no result is stored and no
second task is taken, and the cluster forks a new worker in its place. A worker that is never told to start
(during a planned stop) just waits and is killed with its group.

One thread, started here after the fork, listens for the supervisor and for signals and moves the stop
flag. It also enforces the deadline, so that a loop told to stop by a signal of its own ends in time as
well.
"""

import os
import selectors
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import structlog
from django.conf import settings

from sessions_app.hosting import process_tree, roles
from sessions_app.hosting.liveness import Link, Lobby
from sessions_app.hosting.stop import StopFlag

log = structlog.get_logger(__name__)


class _Inherited:
    """What every process of the family gets by being forked."""

    lobby: Lobby


def inherit(lobby: Lobby) -> None:
    """In the supervisor, before it forks: where new processes announce themselves."""
    _Inherited.lobby = lobby


def run_loop() -> None:
    """The cluster's one task. Never returns."""
    status = 1
    try:
        status = _be_a_loop(_Inherited.lobby.enter())
    except Exception:
        # The outermost frame of the process: what is not reported here is never seen.
        log.exception("loop.failed", pid=os.getpid())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _be_a_loop(link: Link) -> int:
    start, rest = _wait_for_start(link)
    role, owner = start["role"], start["owner"]
    process_tree.leave()
    process_tree.set_title(f"tenure:{start['slot']}")
    stop = StopFlag()
    watcher = _Watcher(link, stop, rest)
    watcher.catch_signals()
    watcher.start()
    structlog.contextvars.bind_contextvars(loop=start["slot"])
    run = roles.loop_of(role)
    link.say("started")
    run(owner, stop)
    if not stop.draining:
        log.error("loop.returned", owner=owner, detail="a loop must run until it is told to stop")
        return 1
    link.say("ended")
    return 0


def _wait_for_start(link: Link) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The `start` message, and what came right behind it."""
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        while True:
            selector.select()
            messages = link.hear()
            if messages:
                return messages[0], messages[1:]
            if link.closed:
                die_with_the_supervisor()


def die_with_the_supervisor() -> None:
    """The supervisor is gone: take the whole cluster along, where the kernel has not done so already."""
    process_tree.kill_group(os.getpgrp())
    os._exit(1)


class _Watcher(threading.Thread):
    """Moves the stop flag: the only thread of the process that does."""

    def __init__(self, link: Link, stop: StopFlag, messages: list[dict[str, Any]]) -> None:
        super().__init__(name="stop-watcher", daemon=True)
        self._link, self._stop_flag, self._messages = link, stop, messages
        self._signalled, self._signal = os.pipe()
        os.set_blocking(self._signal, False)

    def catch_signals(self) -> None:
        """In the main thread: SIGTERM and SIGINT begin to drain, however often they come.

        Only the supervisor counts signals: a terminal or systemd sends each to both, and a loop that counted
        the supervisor's word as a second signal would abort at the first.
        """
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        try:
            os.write(self._signal, b"!")
        except BlockingIOError:
            return

    def run(self) -> None:
        """Listen until the process ends."""
        stop = self._stop_flag
        for message in self._messages:
            self._obey(message)
        next_beat = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self._link, selectors.EVENT_READ)
            selector.register(self._signalled, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                if now >= next_beat:
                    self._link.say("beat")
                    next_beat = now + settings.TENURE.heartbeat_interval
                if stop.abort_at is not None and now >= stop.abort_at:
                    stop.abort()
                if stop.deadline is not None and now >= stop.deadline:
                    log.error("loop.past_deadline", pid=os.getpid())
                    os._exit(1)
                for key, _ in selector.select(self._until_next_look(next_beat) - now):
                    if key.fileobj == self._signalled:
                        os.read(self._signalled, 4096)
                        self._drain_alone()
                for message in self._link.hear():
                    self._obey(message)
                if self._link.closed:
                    die_with_the_supervisor()

    def _until_next_look(self, next_beat: float) -> float:
        stop = self._stop_flag
        moments = [next_beat]
        if stop.abort_at is not None and not stop.aborting:
            moments.append(stop.abort_at)
        if stop.deadline is not None:
            moments.append(stop.deadline)
        return min(moments)

    def _obey(self, message: dict[str, Any]) -> None:
        if message["say"] == "drain":
            self._stop_flag.drain(limit=message["limit"], margin=settings.TENURE.worker_drain_margin)
        elif message["say"] == "abort":
            self._stop_flag.abort()

    def _drain_alone(self) -> None:
        # Said before the flag moves, so that whatever follows counts as planned, also a kill at the deadline.
        self._link.say("draining")
        self._stop_flag.drain(
            limit=settings.TENURE.worker_drain_timeout, margin=settings.TENURE.worker_drain_margin
        )
