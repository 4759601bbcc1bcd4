"""The supervisor: keeps a cluster of loop processes running, notices every death, and stops them in order.

    boot -> turn, turn, … -> leave

It is one process with one thread that does nothing but wait on file descriptors (signals, new worker
processes, the wires to the loops) and look at the clock, so it can fork at any time, and neither a
database nor a loop can block it. In each turn it

- obeys signals: the first begins the planned stop (loops drain, are killed at the limit, what they left is
  released), a second one aborts. Handlers only note the time; whether the supervisor is leaving is looked at before
  anything dead is repaired, because a signal for the whole group reaches everybody at once;
- meets worker processes that the cluster has forked and tells each which loop to be, after the backoff of a
  seat whose loops keep dying;
- hears the end of a loop (end of file on its wire) and has its leases ended at once, by a helper (L6);
- watches: a dead sentinel means a new cluster; a loop without beats is killed; a seat that stays empty means
  that the cluster's queue is dead (a worker killed while it held the queue's lock keeps it for ever, and no
  later worker gets a task), so the healthy loops drain and the cluster is replaced.

A supervisor that is killed takes its family along (`process_tree.py`); then the sweepers end the leases.
"""

import gc
import os
import selectors
import signal
import socket
import threading
import time
import uuid
from collections import deque
from types import FrameType
from typing import Any

import structlog
from django.conf import settings

from sessions_app.hosting import cluster, loop_process, process_tree, roles
from sessions_app.hosting.cluster import LoopCluster
from sessions_app.hosting.liveness import Link, Lobby
from sessions_app.hosting.releases import Releases
from sessions_app.hosting.slots import Slot, backoff

log = structlog.get_logger(__name__)

DUPLICATE_WITHIN = 0.1
"""A signal this many seconds after the first is the same one: a terminal signals everybody, and a wrapper
(`timeout`, a process manager, a script that stops its children) passes it on as well."""

ABORT_GRACE = 1.0
"""Seconds that aborted loops get to release what they hold."""

RELEASE_LIMIT = 5.0
"""Seconds for which a leaving supervisor tries to release what its loops left; less if a drain is shorter."""

IDLE_TURN = 1.0
"""Longest time between two turns; everything that is urgent wakes it."""

CLUSTER_BACKOFF_FIRST = 0.5
CLUSTER_BACKOFF_MAX = 30.0


class Supervisor:
    """`loops` worker loops and, unless told otherwise, one sweeper, on one cluster at a time."""

    def __init__(self, *, loops: int, sweeper: bool) -> None:
        now = time.monotonic()
        self._slots = [Slot("worker", number, now) for number in range(loops)]
        if sweeper:
            self._slots.append(Slot("sweeper", 0, now))
        self._host = socket.gethostname()[:64]
        self._id = uuid.uuid4().hex[:8]
        self._starts = 0
        self._lobby = Lobby()
        self._waiting: list[Link] = []
        self._releases = Releases()
        self._selector = selectors.PollSelector()
        self._cluster: LoopCluster | None = None
        self._cluster_failures = 0
        self._next_cluster = 0.0
        self._cluster_ready = False
        self._announced = False
        self._signals: deque[float] = deque()
        self._told_at = 0.0
        self._leaving = False
        self._stop_at: float | None = None

    def run(self) -> int:
        """Work until told to stop. Returns the exit status: 1 if leases of its loops may be left, else 0."""
        self._boot()
        while not (self._leaving and self._cluster is None):
            self._turn()
        return self._leave()

    # boot

    def _boot(self) -> None:
        process_tree.found()
        process_tree.set_title("tenure:workers")
        cluster.configure(processes=len(self._slots))
        loop_process.inherit(self._lobby)
        self._listen_to_signals()
        self._selector.register(self._lobby, selectors.EVENT_READ, self._meet)
        # Imported once, here, and not again by each process that is forked.
        for role in sorted({slot.role for slot in self._slots}):
            roles.loop_of(role)
        roles.end_worker()
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if others:
            # A lock held by one of them at the moment of a fork stays locked in the child.
            log.warning("runworker.threads_before_fork", threads=others)
        # What exists now is never garbage; collecting it would only unshare its pages in every loop.
        gc.freeze()

    def _listen_to_signals(self) -> None:
        awake, wake = socket.socketpair()
        awake.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        self._selector.register(awake, selectors.EVENT_READ, lambda: _drop(awake))
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _nothing)
        self._install_signals()

    def _install_signals(self) -> None:
        for number in cluster.STOP_SIGNALS:
            signal.signal(number, self._note_signal)

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals.append(time.monotonic())

    # turn

    def _turn(self) -> None:
        # What has arrived is read before the clock is looked at: a supervisor that was itself stopped for a
        # while must not take the beats it has not read for missing ones.
        for key, _ in self._selector.select(self._pause()):
            key.data()
        self._obey_signals()
        self._look_after_cluster()
        if self._stop_at is None:
            self._seat()
            self._watch()
        elif time.monotonic() >= self._stop_at or not self._taken():
            self._end_cluster()
        self._releases.tick()
        known = {self._cluster.pid if self._cluster else None, self._releases.helper_pid}
        process_tree.reap_orphans(known={pid for pid in known if pid})

    def _pause(self) -> float:
        now = time.monotonic()
        moments = [now + IDLE_TURN]
        if self._stop_at is not None:
            moments.append(self._stop_at)
        elif self._cluster is None:
            moments.append(self._next_cluster)
        if self._waiting:
            moments += [slot.not_before for slot in self._slots if slot.link is None]
        if (look := self._releases.next_look) is not None:
            moments.append(look)
        return max(0.0, min(moments) - now)

    def _taken(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.link is not None]

    def _obey_signals(self) -> None:
        while self._signals:
            arrived = self._signals.popleft()
            loops = len(self._taken())
            if not self._leaving:
                self._leaving, self._told_at = True, arrived
                log.info("runworker.draining", limit=settings.TENURE.worker_drain_timeout, loops=loops)
                self._drain()
            elif arrived - self._told_at >= DUPLICATE_WITHIN:
                log.warning("runworker.aborting", loops=loops)
                self._abort()

    def _drain(self) -> None:
        """Tell the loops to drain, unless they have been told; the cluster ends with them or at the limit."""
        if self._cluster is None or self._stop_at is not None:
            return
        limit = settings.TENURE.worker_drain_timeout
        self._stop_at = time.monotonic() + limit
        for slot in self._taken():
            slot.draining = True
            if slot.link is not None:
                slot.link.say("drain", limit=limit)

    def _abort(self) -> None:
        if self._stop_at is None:
            return
        self._stop_at = min(self._stop_at, time.monotonic() + ABORT_GRACE)
        for slot in self._taken():
            if slot.link is not None:
                slot.link.say("abort")

    # the cluster

    def _look_after_cluster(self) -> None:
        if self._cluster is not None and not self._cluster.alive:
            if not self._leaving:
                log.error("cluster.died", pid=self._cluster.pid, loops=len(self._taken()))
            self._end_cluster()
        if self._cluster is None and not self._leaving and time.monotonic() >= self._next_cluster:
            self._start_cluster()

    def _start_cluster(self) -> None:
        self._cluster_ready = False
        self._cluster = LoopCluster(install_signals=self._install_signals)
        now = time.monotonic()
        for slot in self._slots:
            slot.free_since = now
        try:
            self._cluster.start()
        except RuntimeError:
            log.exception("cluster.start_failed")
            self._end_cluster()

    def _end_cluster(self) -> None:
        """Kill what is left of the cluster, hear of every loop's end, and set the time of the next one."""
        if self._cluster is None:
            return
        if not self._cluster.kill():
            log.error("cluster.not_gone", pid=self._cluster.pid)
        self._cluster, self._stop_at = None, None
        self._meet()
        for link in [slot.link for slot in self._slots if slot.link is not None] + self._waiting:
            self._listen(link)
            if not link.closed:
                # Killed but not yet gone: its leases must not wait for that.
                self._lose(link)
        self._cluster_failures += 1
        self._next_cluster = time.monotonic() + backoff(
            self._cluster_failures, free=1, first=CLUSTER_BACKOFF_FIRST, most=CLUSTER_BACKOFF_MAX
        )

    # the loops

    def _meet(self) -> None:
        for link in self._lobby.arrivals():
            self._waiting.append(link)
            self._selector.register(link, selectors.EVENT_READ, lambda link=link: self._listen(link))

    def _seat(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if self._waiting and slot.can_start(now=now):
                link = self._waiting.pop(0)
                self._starts += 1
                # The number keeps owners apart when the system gives a pid again.
                owner = f"{self._host}/{self._id}/{slot.name}/{link.pid}.{self._starts}"
                slot.take(link=link, owner=owner, now=now)
                link.say("start", role=slot.role, slot=slot.name, owner=owner)

    def _listen(self, link: Link) -> None:
        slot = next((slot for slot in self._slots if slot.link is link), None)
        for message in link.hear():
            if slot is not None:
                self._note(slot, message)
        if link.closed:
            self._lose(link)

    def _note(self, slot: Slot, message: dict[str, Any]) -> None:
        slot.last_beat = time.monotonic()
        match message["say"]:
            case "started":
                slot.running = True
                log.info("loop.started", loop=slot.name, owner=slot.owner)
                self._announce()
            case "draining":
                slot.draining = True
            case "ended":
                slot.ended = True

    def _announce(self) -> None:
        if self._cluster_ready or not all(slot.running for slot in self._slots):
            return
        self._cluster_ready = True
        self._cluster_failures = 0
        event = "cluster.replaced" if self._announced else "runworker.ready"
        self._announced = True
        log.info(event, pid=os.getpid(), supervisor=self._id, loops=[slot.name for slot in self._slots])

    def _lose(self, link: Link) -> None:
        """A process is gone: free its seat and have its leases ended."""
        self._selector.unregister(link)
        # Hung up is as good as dead, so make it so; of a process that is gone this is nothing.
        link.kill()
        link.close()
        if link in self._waiting:
            self._waiting.remove(link)
            return
        now = time.monotonic()
        for slot in self._slots:
            if slot.link is link:
                planned = slot.draining or slot.ended
                reason = "drain" if planned else "crash"
                self._releases.add(owner=slot.owner, reason=reason)
                lived = round(now - slot.taken_at, 3)
                pause = slot.vacate(now=now)
                write = log.info if planned else log.error
                write(
                    "loop.ended" if planned else "loop.died",
                    loop=slot.name,
                    owner=slot.owner,
                    reason=reason,
                    lived=lived,
                    clean=slot.ended,
                )
                if pause:
                    log.error(
                        "loop.keeps_dying", loop=slot.name, deaths=slot.early_deaths, next_start_in=pause
                    )
        self._releases.tick()

    def _watch(self) -> None:
        now = time.monotonic()
        beat_limit = settings.TENURE.worker_ttl
        for slot in self._taken():
            if slot.link is not None and now - slot.last_beat > beat_limit:
                log.error("loop.frozen", loop=slot.name, owner=slot.owner, seconds=beat_limit)
                slot.last_beat = now
                slot.link.kill()
        if self._cluster is None:
            return
        missing = [slot.name for slot in self._slots if slot.missing_for(now=now) > beat_limit / 2]
        if missing:
            log.error("cluster.stuck", missing=missing, seconds=beat_limit / 2)
            self._drain()

    # leave

    def _leave(self) -> int:
        until = time.monotonic() + min(RELEASE_LIMIT, settings.TENURE.worker_drain_timeout)
        while self._releases.left and time.monotonic() < until:
            for key, _ in self._selector.select(min(self._pause(), max(0.0, until - time.monotonic()))):
                key.data()
            self._releases.tick()
        self._selector.close()
        self._lobby.close()
        left = self._releases.left
        (log.error if left else log.info)("runworker.stopped", unreleased=left)
        return 1 if left else 0


def _drop(awake: socket.socket) -> None:
    """Forget which signals have arrived: their handlers have counted them."""
    try:
        while awake.recv(4096):
            pass
    except BlockingIOError:
        return


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """A handler, so that SIGCHLD wakes the supervisor."""
