"""The one transaction that commits steps, and what happens when its answer gets lost."""

from collections.abc import Sequence
from uuid import UUID

import psycopg
import structlog
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction

from sessions_app import leases, scheduling, tree_budgets, wakeups
from sessions_app.crashpoints import crash_point
from sessions_app.database import is_transient, outcome_is_unknown, raw_connection
from sessions_app.errors import Conflict
from sessions_app.models import Session
from sessions_app.steps.batch import Batch, locked_row
from sessions_app.steps.values import Busy, Lost, Refused, Saved, StepResult, StepWrite, Then
from sessions_app.tool_port import Call

logger = structlog.get_logger(__name__)

# Both in id order (L11). The second statement has a snapshot of its own, taken when the first holds its locks.
LOCK_SESSIONS = """
SELECT id, project_id, work_rev, next_seq, head_seq, turn_id, last_turn_id, turn_count, output_seq, crash_count,
    ended_attempt, ended_reason, tree, lease_end
FROM sessions_app_session WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
LOCK_SESSION = LOCK_SESSIONS.replace(" SKIP LOCKED", "")
LOCK_LEASE = """
SELECT session_id, attempt FROM sessions_app_lease WHERE session_id = ANY(%s) AND worker_id = %s
ORDER BY session_id FOR UPDATE
"""
# It asks for all leases before it is known which sessions are busy, so it must not wait for those either.
LOCK_LEASES = LOCK_LEASE.replace("FOR UPDATE", "FOR UPDATE SKIP LOCKED")
_READ_BACK_ENTRIES = "SELECT id, seq FROM sessions_app_entry WHERE id = ANY(%s)"
_READ_BACK_MODEL_CALLS = "SELECT id FROM sessions_app_modelcall WHERE id = ANY(%s)"

_REFUSALS = (psycopg.DataError, psycopg.IntegrityError, DataError, IntegrityError, Conflict)


def commit_steps(worker: int, steps: Sequence[StepWrite]) -> list[StepResult | Busy]:
    """Save `steps`, at most one per session, as far as `worker` still holds them. Results in their order.

    Raises `psycopg.OperationalError` and the like when the database is away; the same call may be repeated,
    what was saved all the same is found by its ids.
    """
    results = _commit_all(worker, steps)
    _ring(steps, results)
    return results


def _commit_all(worker: int, steps: Sequence[StepWrite]) -> list[StepResult | Busy]:
    alone = len(steps) == 1
    if not alone and any(step.parent is not None for step in steps):
        # Each of those needs a second session's row, which may be that of another step here.
        shared = [step for step in steps if step.parent is None]
        saved = dict(zip((step.id for step in shared), _commit_all(worker, shared), strict=True))
        return [saved.get(step.id) or _commit_all(worker, [step])[0] for step in steps]
    try:
        results = _commit(worker, steps, skip_busy=not alone)
        if alone and isinstance(results[0], Lost):
            # Perhaps lost by itself: a try whose outcome could not be looked up before has released it.
            results = [_find(worker, steps)[0] or results[0]]
    except (psycopg.Error, DatabaseError, Conflict) as error:
        if outcome_is_unknown(error):
            connection.close()
            return _look_up(worker, steps)
        if isinstance(error, psycopg.errors.UniqueViolation) and alone:
            # Perhaps our own ids, from a try whose outcome could not be looked up before.
            found = _find(worker, steps)[0]
            if found is not None:
                return [found]
        if not alone:
            results = [None] * len(steps)
        elif isinstance(error, _REFUSALS):
            logger.exception("step.refused", session=str(steps[0].session))
            return [Refused(error)]
        elif is_transient(error) and not raw_connection().closed:
            logger.warning("step.busy", session=str(steps[0].session), error=str(error).strip())
            return [Busy(error)]
        else:
            raise
    # Busy ones, and after a refusal all of them, each alone.
    return [
        result if result is not None else _commit_all(worker, [step])[0]
        for step, result in zip(steps, results, strict=True)
    ]


def _ring(steps: Sequence[StepWrite], results: Sequence[StepResult | Busy]) -> None:
    grown = []
    waited_for: set[UUID] = set()
    due = False
    for step, result in zip(steps, results, strict=True):
        if isinstance(result, Saved):
            grown.append(step.session)
            release = step.then.release
            due = due or (release is not None and not result.moved and release.wake == "now")
            if result.project is not None and any(_waits_for_backend(call) for call in step.calls):
                waited_for.add(result.project)
    wakeups.ring_entries(grown)
    wakeups.ring_calls(waited_for)
    if due:
        wakeups.ring_due()


def _waits_for_backend(call: Call) -> bool:
    return call.state == "waiting" and call.tool_class == "custom"


def _look_up(worker: int, steps: Sequence[StepWrite]) -> list[StepResult | Busy]:
    """The answer to COMMIT got lost: find what was saved, repeat what was not (S10)."""
    return [
        found if found is not None else _commit_all(worker, [step])[0]
        for step, found in zip(steps, _find(worker, steps), strict=True)
    ]


def _find(worker: int, steps: Sequence[StepWrite]) -> list[Saved | None]:
    """How far each step is saved already, by the ids that were made before the first try."""
    sessions = [step.session for step in steps]
    entries = [entry.id for step in steps for entry in (*step.entries, *step.then.entries)]
    model_calls = [step.then.model_call.id for step in steps if step.then.model_call is not None]
    raw = raw_connection()
    with raw.transaction(), psycopg.Cursor(raw) as cursor:
        # Waits for the lost transaction, should its backend still be at it.
        cursor.execute(LOCK_SESSION, (sessions,))
        locked = {row[0]: locked_row(row) for row in cursor}
        cursor.execute(LOCK_LEASE, (sessions, worker))
        held = dict(cursor.fetchall())
        cursor.execute(_READ_BACK_ENTRIES, (entries,))
        seqs = dict(cursor.fetchall())
        cursor.execute(_READ_BACK_MODEL_CALLS, (model_calls,))
        calls = {row[0] for row in cursor}
    found: list[Saved | None] = []
    for step in steps:
        then = step.then
        own = [entry.id for entry in (*step.entries, *then.entries)]
        mine = [seqs[entry] for entry in own if entry in seqs]
        followed = (
            any(entry.id in seqs for entry in then.entries)
            or (then.model_call is not None and then.model_call.id in calls)
            # A lease that is gone tells of this step only where nothing of the step is missing.
            or (then.release is not None and held.get(step.session) != step.attempt and len(mine) == len(own))
        )
        if not mine and not followed:
            found.append(None)
        else:
            row = locked[step.session]
            moved = not followed and then != Then()
            first_seq = min(mine, default=row.next_seq)
            found.append(Saved(moved=moved, first_seq=first_seq, work_rev=row.work_rev, project=row.project))
    return found


def _commit(worker: int, steps: Sequence[StepWrite], *, skip_busy: bool) -> list[StepResult | None]:
    """One transaction. None for a session, or a lease, that somebody else may have locked."""
    if not steps:
        return []
    if steps[0].parent is not None:
        results = [_write_and_tell(worker, steps[0])]
    else:
        results = _write(worker, steps, skip_busy=skip_busy)
    crash_point("step.committed")
    return results


def _write_and_tell(worker: int, step: StepWrite) -> StepResult | None:
    """The same for a step that may bring a subagent to rest: its parent is told in the same transaction (T8)."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        before = leases.lock_session(step.session, with_parent=True)
        (result,) = _write(worker, [step], skip_busy=False)
        if before is not None and isinstance(result, Saved) and not result.moved:
            session = Session.objects.get(pk=step.session)
            session.parent = before.parent
            scheduling.tell_parent(session)
            crash_point("parent.told")
    return result


def _write(worker: int, steps: Sequence[StepWrite], *, skip_busy: bool) -> list[StepResult | None]:
    session_ids = [step.session for step in steps]
    raw = raw_connection()
    with (
        raw.pipeline() as pipeline,
        raw.transaction(),
        psycopg.Cursor(raw) as cursor,
        psycopg.Cursor(raw) as lease_cursor,
    ):
        cursor.execute(LOCK_SESSIONS if skip_busy else LOCK_SESSION, (session_ids,))
        lease_cursor.execute(LOCK_LEASES if skip_busy else LOCK_LEASE, (session_ids, worker))
        # Only behind a sync does the server watch for a client that falls silent with its locks held (L11).
        pipeline.sync()
        locked = {row[0]: locked_row(row) for row in cursor}
        held = dict(lease_cursor.fetchall())
        crash_point("step.locked")
        trees = {row.tree for row in locked.values() if row.tree is not None}
        batch = Batch(tree_budgets.lock(cursor, trees) if trees else None)
        results: list[StepResult | None] = []
        for step in steps:
            row = locked.get(step.session)
            if row is None:
                results.append(None)
            elif held.get(step.session) != step.attempt and skip_busy:
                results.append(None)  # lost or locked: that is found out alone
            elif held.get(step.session) != step.attempt:
                results.append(Lost(row.ended_reason if row.ended_attempt == step.attempt else None))
            else:
                results.append(batch.add(step, row))
        batch.write(cursor)
        crash_point("step.written")
    return results
