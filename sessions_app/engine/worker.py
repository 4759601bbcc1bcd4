"""A worker loop: many sessions at once on one event loop, the database in a few threads.

`run` is what the hosting starts in a process of its own. It gives the process a heart (its own thread and
connection, see `heartbeat`), then claims sessions as long as it has room: woken by the doorbell, or by the
fallback poll. Each claimed session is a `Run`; their steps meet in the `Committer`.

The heart decides whether this process may still believe what it holds. A session that is missing from a
beat's answer, and was held when the beat was sent, is lost: its run is aborted and writes nothing more (L4).
When the database is lost for 2/3 of the time to live, all runs are aborted; if the worker is still this one
when it is back, it goes on and hands back what it held, as planned (a lost database is no crash, R9). A worker
that was declared dead starts over as a new one (L5).

On a planned stop it claims nothing more, lets running steps finish and releases each session at its next step;
what still runs when the time is up is aborted and settled (L8).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection

from sessions_app import leases, steps, wakeups
from sessions_app.crashpoints import crash_point
from sessions_app.database import is_transient
from sessions_app.engine import previews
from sessions_app.engine import state as states
from sessions_app.engine.committer import Committer
from sessions_app.engine.runner import Run
from sessions_app.heartbeat import DECLARED_DEAD, HEART_FAILED, Heart
from sessions_app.hosting.stop import StopFlag
from sessions_app.models import EndReason
from sessions_app.providers import registry

logger = structlog.get_logger(__name__)

_PAUSE_BETWEEN_LIVES = 1.0  # seconds; whatever ended one life should not end a hundred in a second


def run(owner: str, stop: StopFlag) -> None:
    """Work until `stop` says otherwise; start over under a new name when this worker was given up on."""
    life = 0
    former: int | None = None
    while not stop.is_set():
        worker = Worker(owner if life == 0 else f"{owner}#{life}", stop, former=former)
        asyncio.run(worker.run())
        former = worker.worker_id or worker.former
        life += 1
        stop.wait(_PAUSE_BETWEEN_LIVES)


class Worker:
    """One life of a worker: one row in the table of workers. `former` is the number of its life before."""

    def __init__(self, owner: str, stop: StopFlag, *, former: int | None = None) -> None:
        self.owner = owner
        self.stop = stop
        self.former = former
        self.capacity = settings.TENURE.worker_capacity
        self.worker_id = 0
        self.draining = False
        self._runs: dict[UUID, tuple[Run, asyncio.Task[None]]] = {}
        self._connections: list[Any] = []  # of the database threads, which end without a word
        self._replaced: set[asyncio.Task[None]] = set()  # aborted runs whose session has a new one here
        self._claimed_at: dict[UUID, float] = {}
        self._claimed_attempt: dict[UUID, int] = {}
        self._limited: set[UUID] = set()  # held sessions that take a place of a project with a limit
        self._ended_at: dict[UUID, float] = {}  # runs that ended since the last beat was sent
        self._aborted: dict[UUID, int] = {}  # attempts aborted with the database away, to be handed back
        self._given_up: str | None = None
        self._more_due = False
        self._claiming = False
        self._claim_ended = 0.0

    # --- life ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(
            settings.TENURE.worker_threads,
            thread_name_prefix="database",
            initializer=_prepare_thread,
            initargs=(self._connections,),
        )
        self._committer = Committer(self._commit_steps)
        self._heart = Heart(
            owner=self.owner, capacity=self.capacity, on_beat=self._on_beat, on_abort=self._on_abort
        )
        self.worker_id = await asyncio.to_thread(self._register)
        undo = [
            self.stop.on_change(partial(self._call_soon, self._wake.set)),
            wakeups.subscribe(wakeups.WORK, lambda _: self._call_soon(self._wake.set)),
            wakeups.subscribe(wakeups.LEASE, self._on_lease_bell),
            previews.of_this_process.listen(),
        ]
        try:
            await self._claim_until_stopped()
            await self._end()
        finally:
            for remove in undo:
                remove()
            await registry.close()
            await asyncio.to_thread(self._heart.stop)
            await asyncio.to_thread(self._close_pool)
            await asyncio.to_thread(wakeups.flush)  # the process may end without saying goodbye

    def _register(self) -> int:
        """Start the heart; it may have to wait for the database, and gives up when told to stop."""
        self._heart.start()
        while not self.stop.is_set():
            worker_id = self._heart.wait_registered(timeout=0.2)
            if worker_id is not None:
                return worker_id
            if self._heart.over:
                break
        self._given_up = self._given_up or "not registered"
        return 0

    async def _claim_until_stopped(self) -> None:
        pause = 0.0
        while not self.stop.is_set() and self._given_up is None:
            self._wake.clear()
            try:
                if self.former is not None:
                    await self._prove_alive(self.former)
                full = self._heart.live and await self._claim()
                pause = 0.0
            except Exception as error:
                if not is_transient(error):
                    raise
                # The database is away; the heart decides what that means for what runs.
                logger.warning("claim.failed", worker=self.worker_id, error=str(error).strip())
                full, pause = False, min(2.0, max(0.1, pause * 2))
            if full:
                continue
            timeout = pause or settings.TENURE.worker_poll_interval
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _prove_alive(self, former: int) -> None:
        """This process was given up on under that number, and has not died: no session crashed (R9)."""
        await self.in_database(partial(leases.take_back_crashes, worker=former))
        self.former = None

    async def _end(self) -> None:
        if self._given_up is not None:
            logger.warning(
                "worker.given_up", worker=self.worker_id, reason=self._given_up, runs=len(self._runs)
            )
            self._abort_all(lost=True)
            await self._gather()
            return
        # Committed before a run acts on it: a run that dies while it lets go was stopped as planned (L8).
        await asyncio.to_thread(self._heart.drain)
        self.draining = True
        logger.info("worker.drains", worker=self.worker_id, runs=len(self._runs))
        while self._runs and not self.stop.aborting and self._given_up is None:
            self._wake.clear()
            await self._wake.wait()
        if self._runs:
            logger.warning("worker.aborts", worker=self.worker_id, runs=len(self._runs))
            self._abort_all(lost=self._given_up is not None)
            await self._gather()

    def _abort_all(self, *, lost: bool) -> None:
        for session in list(self._runs):
            self._abort(session, lost=lost)

    def _abort(self, session: UUID, *, lost: bool) -> None:
        run, task = self._runs[session]
        run.lost = run.lost or lost
        task.cancel()

    async def _gather(self) -> None:
        tasks = [task for _, task in self._runs.values()]
        await asyncio.gather(*tasks, *self._replaced, return_exceptions=True)

    def _close_pool(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for opened in self._connections:
            opened.close()

    # --- claiming ------------------------------------------------------------------------------------

    async def _claim(self) -> bool:
        """Fill the free places; returns whether there may be more to claim at once."""
        room = self.capacity - len(self._runs)
        if room <= 0:
            self._more_due = True
            return False
        crash_point("claim.before")
        self._claiming = True
        try:
            claimed = await self.in_database(partial(leases.claim, worker=self.worker_id, limit=room))
        finally:
            self._claiming = False
            self._claim_ended = time.monotonic()
        self._more_due = len(claimed) == room
        if not claimed:
            return False
        now = time.monotonic()
        for item in claimed:
            self._claimed_at[item.session] = now
            self._claimed_attempt[item.session] = item.attempt
            if item.limited:
                self._limited.add(item.session)
        crash_point("claim.committed")
        logger.info("lease.claimed", worker=self.worker_id, sessions=len(claimed))
        await self._load_and_start(claimed)
        return len(claimed) == room

    async def _load_and_start(self, claimed: Sequence[leases.Claimed]) -> None:
        """Read the claimed sessions together; where that fails, each alone, so that a bad one fails alone."""
        try:
            loaded = await self.in_database(states.load, {item.session: item.attempt for item in claimed})
        except Exception as error:
            if is_transient(error):
                for item in claimed:
                    self._claimed_at.pop(item.session, None)  # strays now: the next beat releases them
                raise
            if len(claimed) > 1:
                for item in claimed:
                    await self._load_and_start([item])
                return
            (item,) = claimed
            logger.exception("session.unreadable", session=str(item.session), worker=self.worker_id)
            await self.in_database(
                partial(
                    leases.end_lease,
                    item.session,
                    reason=EndReason.CRASH,
                    worker=self.worker_id,
                    attempt=item.attempt,
                )
            )
            self._claimed_at.pop(item.session, None)
            return
        crash_point("load.done")
        for session, state in loaded.items():
            self._start(session, Run(self, state))

    def _start(self, session: UUID, run: Run) -> None:
        if session in self._runs:
            # Taken from this worker and claimed by it again, before a beat could tell (L4): two never go on.
            logger.info("lease.lost", session=str(session), worker=self.worker_id)
            self._abort(session, lost=True)
            self._replaced.add(self._runs[session][1])
        task = asyncio.create_task(run.run(), name=f"session {session}")
        self._runs[session] = (run, task)
        task.add_done_callback(partial(self._ended, session))

    def _ended(self, session: UUID, task: asyncio.Task[None]) -> None:
        self._replaced.discard(task)
        if session in self._runs and self._runs[session][1] is task:
            run, _ = self._runs.pop(session)
            # The session may be claimed again already and its new run not here yet: that claim is no stray.
            if self._claimed_attempt.get(session) == run.state.attempt:
                del self._claimed_attempt[session]
                self._claimed_at.pop(session, None)
        self._ended_at[session] = time.monotonic()
        if not task.cancelled() and task.exception() is not None:
            logger.error("run.fault", session=str(session), worker=self.worker_id, exc_info=task.exception())
        if session in self._limited and session not in self._runs:
            self._limited.discard(session)
            wakeups.ring_due()  # the place is free for another session of its project, on whichever worker
        self._wake.set()

    # --- what runs need ------------------------------------------------------------------------------

    async def commit(self, step: steps.StepWrite) -> steps.StepResult:
        return await self._committer.commit(step)

    async def _commit_steps(self, batch: Sequence[steps.StepWrite]) -> list[steps.StepResult | steps.Busy]:
        return await self.in_database(steps.commit_steps, self.worker_id, batch)

    async def in_database[T](self, function: Callable[..., T], *args: Any) -> T:
        """Run a short synchronous piece of database work in one of the few threads that have a connection."""
        return await self._loop.run_in_executor(self._pool, partial(_with_connection, function, *args))

    def gives_way(self, held_since: float) -> bool:
        """Others wait, and this session had its share (the claim's fairness budget)."""
        return self._more_due and self._loop.time() - held_since > settings.TENURE.claim_budget

    # --- what the heart says (from its thread) ---------------------------------------------------------

    def _call_soon(self, function: Callable[..., Any], *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def _on_lease_bell(self, worker: str | None) -> None:
        if worker is None or worker == str(self.worker_id):
            self._heart.beat_now()

    def _on_beat(self, beat: leases.Beat, sent_at: float) -> None:
        self._call_soon(self._compare, beat, sent_at)

    def _on_abort(self, reason: str) -> None:
        self._call_soon(self._give_up, reason)

    def _give_up(self, reason: str) -> None:
        # At once: from here on nothing this process believes about its leases counts.
        logger.warning("runs.aborted", worker=self.worker_id, reason=reason, runs=len(self._runs))
        self._aborted |= {session: run.state.attempt for session, (run, _) in self._runs.items()}
        self._abort_all(lost=True)
        if reason in {DECLARED_DEAD, HEART_FAILED}:
            # Not `heart.over`: the heart says so before it is over, and then there is no second word.
            self._given_up = reason
        self._wake.set()

    def _compare(self, beat: leases.Beat, sent_at: float) -> None:
        """L4: runs whose lease was gone when the beat was answered are lost; leases without a run are released."""
        held = dict(beat.leases)
        for session, (run, _) in list(self._runs.items()):
            if held.get(session) != run.state.attempt and self._claimed_at.get(session, sent_at) < sent_at:
                logger.info(
                    "lease.lost", session=str(session), attempt=run.state.attempt, worker=self.worker_id
                )
                self._abort(session, lost=True)
        self._ended_at = {session: at for session, at in self._ended_at.items() if at >= sent_at}
        if self._claiming or self._claim_ended >= sent_at:
            return  # a claim's leases may be in the answer before its runs are here
        for session, attempt in held.items():
            if session not in self._claimed_at and session not in self._ended_at:
                self._loop.create_task(self._release_stray(session, attempt))

    async def _release_stray(self, session: UUID, attempt: int) -> None:
        """A lease that no run of this process stands behind, and that no claim of it is bringing."""
        if session in self._claimed_at:
            return
        aborted = self._aborted.pop(session, None) == attempt
        reason = EndReason.DRAIN if aborted else EndReason.RELEASED
        logger.warning("lease.stray", session=str(session), attempt=attempt, worker=self.worker_id)
        end = partial(leases.end_lease, session, reason=reason, worker=self.worker_id, attempt=attempt)
        try:
            await self.in_database(end)
        except Exception as error:
            if not is_transient(error):
                raise
            logger.warning("lease.release_failed", session=str(session), error=str(error).strip())


_thread_state = threading.local()  # the connection whose limits are set


def _prepare_thread(opened: list[Any]) -> None:
    """Each database thread keeps one connection, with the limits that a fence needs (L11)."""
    _thread_state.limited = None
    _thread_state.opened = opened


def _with_connection[T](function: Callable[..., T], *args: Any) -> T:
    try:
        connection.ensure_connection()
        if _thread_state.limited is not connection.connection:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SET lock_timeout = '2s'; SET statement_timeout = '5s';"
                    "SET idle_in_transaction_session_timeout = '5s'"
                )
            _thread_state.limited = connection.connection
            _thread_state.opened.append(connection.connection)
        return function(*args)
    except Exception:
        if connection.connection is not None and connection.connection.closed:
            connection.close()  # opened anew next time, whatever broke it
        raise
