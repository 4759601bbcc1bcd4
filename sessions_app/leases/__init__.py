"""Who may write to which session: claim, fence, and the one end of a lease.

The story of a lease. A worker process registers itself (`register_worker`) and holds a session-level
advisory lock under its number on the connection of its heartbeat. `claim` picks due sessions with SKIP
LOCKED, raises each one's `attempt` and inserts the lease row: (session, worker, attempt) is the fencing
token. Every later write locks the session row and then the lease row, in that order and in two statements,
and compares (`fence`, and `steps.commit_steps` for many at once). A join that locks both would re-check one
of them against the snapshot from before the wait, and a reaped attempt could still write.

A lease lives as long as its row. It ends in `end_lease` and nowhere else: lease row gone, running calls
settled by their class, the open model call interrupted, the reason kept, the due time computed (L7).

Lock order (L11): session rows in id order, then worker, lease and everything below. Reaping is the one
place that needs the worker first; it marks the worker dead in a transaction of its own, which holds no
session, and then ends the leases one by one.

Time is the database's: expiry is written and judged with `clock_timestamp()`, read after the locks are held.
"""

from sessions_app.leases.claiming import Claimed, claim
from sessions_app.leases.ending import (
    end_lease,
    end_lease_locked,
    end_leases_of,
    end_worker,
    force_release,
    release,
    steal,
    take_back_crashes,
)
from sessions_app.leases.fence import (
    fence,
    fence_of_many,
    lock_leases,
    lock_session,
    lock_sessions,
    lock_tree,
    lost_because,
)
from sessions_app.leases.workers import (
    HEARTBEAT,
    LOCK_CLASS,
    Beat,
    heartbeat,
    mark_dead,
    register_worker,
    start_draining,
)

__all__ = [
    "HEARTBEAT",
    "LOCK_CLASS",
    "Beat",
    "Claimed",
    "claim",
    "end_lease",
    "end_lease_locked",
    "end_leases_of",
    "end_worker",
    "fence",
    "fence_of_many",
    "force_release",
    "heartbeat",
    "lock_leases",
    "lock_session",
    "lock_sessions",
    "lock_tree",
    "lost_because",
    "mark_dead",
    "register_worker",
    "release",
    "start_draining",
    "steal",
    "take_back_crashes",
]
