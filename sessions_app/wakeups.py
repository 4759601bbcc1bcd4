"""Wake-ups between processes: hints to look again, never data (see DESIGN: notifications wake, tables tell).

Four kinds of doorbell. Whoever committed rings them, afterwards and outside the transaction:

- `WORK`: some session became due; workers try to claim. No word.
- `LEASE`: a lease ended under the worker whose number is the word; its heart beats at once and learns which.
- `ENTRIES`: the log of the session whose id is the word grew; feeds read on.
- `CALLS`: in the project whose id is the word a call began to wait for a backend; those who claim calls look.

Beside them, for previews of replies on their way: `WATCH` says that somebody watches a session, `DELTAS` carries
pieces. Only these are data, and only because nobody misses them.

Services call `after_commit` and `on_lease_end` inside their transaction; the step commit, which runs many
sessions at once in a worker's threads, calls the `ring_…` functions after its commit. `subscribe` is the
other side. A lost wake-up costs at most one fallback poll, so nothing here blocks or raises.
"""

import atexit
import os
from collections.abc import Callable, Iterable
from uuid import UUID

from django.db import transaction

from sessions_app.listener import Callback, Listener
from sessions_app.models import Session, SessionStatus
from sessions_app.notifier import Notifier

WORK = "work"
LEASE = "lease"
ENTRIES = "entries"
WATCH = "watch"
DELTAS = "deltas"
CALLS = "calls"

WHO_WATCHES = "?"  # asks those who watch to say so
_LOOK = "!"  # the word of a doorbell that has nothing more to say


class _Process:
    """What this process has: at most one notifier and one listener, each idle until it is first used."""

    def __init__(self) -> None:
        self.notifier = Notifier()
        self.listener = Listener()


_process = _Process()
# A forked child has neither the threads nor a right to the connections of its parent. The parent's objects
# are kept, because closing them here would say goodbye on the parent's sockets.
_inherited: list[_Process] = []


def _after_fork_in_child() -> None:
    global _process  # noqa: PLW0603 - one per process
    _inherited.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork_in_child)


def after_commit(session: Session) -> None:
    """Inside a transaction that wrote to the log or the due time of `session`: ring when committed."""

    def ring() -> None:
        if session.status == SessionStatus.QUEUED:
            ring_due()
        ring_entries([session.pk])

    transaction.on_commit(ring, robust=True)


def on_lease_end(*, worker: int, session: UUID) -> None:
    """Inside the transaction that ends the lease of `session`: tell its worker, when committed."""
    del session  # its heart reads back which leases are left
    transaction.on_commit(lambda: ring_lease_end(worker), robust=True)


def ring_due() -> None:
    """Some session is due now."""
    _process.notifier.ring(WORK, [_LOOK])


def ring_lease_end(worker: int) -> None:
    """A lease of `worker` ended, and it was not `worker` that ended it."""
    _process.notifier.ring(LEASE, [str(worker)])


def ring_entries(session_ids: Iterable[UUID]) -> None:
    """The logs of these sessions grew."""
    _process.notifier.ring(ENTRIES, [str(session_id) for session_id in session_ids])


def ring_calls(project_ids: Iterable[UUID]) -> None:
    """In these projects there are calls that a backend can take."""
    _process.notifier.ring(CALLS, [str(project_id) for project_id in project_ids])


def ring_watch(words: Iterable[str]) -> None:
    """Somebody watches replies on their way; a word is `<session>:<watcher>`."""
    _process.notifier.ring(WATCH, words)


def post_deltas(payloads: Iterable[str]) -> None:
    """Pieces of replies for those who watch: JSON arrays, carried in order and as they are, or lost."""
    _process.notifier.post(DELTAS, payloads)


def subscribe(kind: str, callback: Callback) -> Callable[[], None]:
    """Call `callback(word)` from the listener's thread when a bell of `kind` rings; returns its removal.

    The word is None for "look at everything": once when listening has begun, and after every reconnect. For
    `LEASE` it is the worker's number, for `ENTRIES` the session's id, for `CALLS` the project's, all as text.
    """
    return _process.listener.subscribe(kind, callback)


def flush(*, limit: float = 1.0) -> bool:
    """Wait until what was rung is sent, at most `limit` seconds; for processes that end by `os._exit`."""
    return _process.notifier.flush(limit=limit)


def close(*, limit: float = 1.0) -> None:
    """Send what waits and give both connections back. A later ring or subscription starts afresh."""
    global _process
    ending, _process = _process, _Process()
    ending.notifier.close(limit=limit)
    ending.listener.close(limit=limit)


atexit.register(lambda: _process.notifier.close(limit=0.5))
