"""Control of a session from outside its turns: cancel, archive, restore (I6), config (I7), compaction (R5).

Each is one transaction under the session's lock, whether or not a worker holds the session. What a worker still
brings afterwards fails at the fence (the lease is gone) or is planned again (`work_rev` moved).

Cancel and archive reach the session's subagents and theirs, all in the one transaction (T8); restore does not.
"""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import structlog
from django.db import connection, transaction

from sessions_app import (
    children,
    entries,
    entry_kinds,
    ids,
    inputs,
    leases,
    limit_asks,
    log,
    scheduling,
    tool_port,
    wakeups,
)
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict, NotFound, SessionArchived
from sessions_app.models import AgentConfig, EndReason, Session, TurnReason, TurnStatus
from sessions_app.models.fields import ClockTimestamp
from sessions_app.turns import drop_compaction_locked, end_turn_locked

logger = structlog.get_logger(__name__)


class ConfigMoved(Conflict):
    """Somebody else changed the session's config: it is not `expected_config`. `current` shows the session."""

    code = "config_moved"


type Releaser = Callable[[Session], Sequence[log.NewEntry]]

_releasers: list[Releaser] = []


def register_release(release: Releaser) -> None:
    """Called once by an app that lends things to sessions: how an archived session gives them back.

    It runs inside the transaction, under the session's lock, and returns what the log should say.
    """
    _releasers.append(release)


def cancel(*, session: UUID, actor: Actor) -> Session:
    """End the current turn now, whoever works on it and whatever it waits for; one transaction.

    Nothing is left pending: the lease is gone, so what its worker still brings fails at the fence. Input that
    waits then starts the next turn. Repeated, or without a turn, it writes nothing to the log. A turn that
    finishes at the same moment ends once: as finished if its step came first, else as cancelled. What the
    session's subagents work on ends with it, whether or not it waits for them.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        rows = leases.lock_tree(session)
        row = _usable(rows.get(session))
        cancel_locked(rows, session, actor=actor)
    return row


def cancel_locked(
    rows: Mapping[UUID, Session], session: UUID, *, actor: Actor, drop_from: str | None = None
) -> bool:
    """The same for a session whose tree this transaction has locked; False if there was nothing to end.

    `rows` are those of `leases.lock_tree`, or more. What a parent has said to the subagents below and they have
    not seen yet is dropped too; with `drop_from` also what this actor has said to the session itself.
    """
    changed = False
    for key in _from_top(session):
        row = rows[key]
        if row.archived_at is not None:
            continue
        said_by = drop_from
        if key != session and row.parent_id is not None:
            said_by = ids.encode("ses", row.parent_id)
        dropped = said_by is not None and inputs.drop_waiting_locked(
            row, actor=actor, reason="cancelled", of_actor=said_by
        )
        if _end_turn(row, reason=TurnReason.CANCELLED, actor=actor) or dropped:
            scheduling.reschedule(row)
            row.save()
            wakeups.after_commit(row)
            changed = True
    return changed


def _from_top(session: UUID) -> list[UUID]:
    """A locked tree, each before what is below it; its leases are locked then, all before the tree's budget (L11).

    Ending one lease after the other would take the budget with the first, and a shared commit that waits for the
    budget may hold the lease of a session that it had to pass over.
    """
    keys = [session, *children.descendants(session)]
    if len(keys) > 1:
        leases.lock_leases(keys)
    return keys


def archive(*, session: UUID, actor: Actor) -> Session:
    """Cancel, drop the waiting input and give machines back; from then on the session can only be read.

    All in one transaction, so nobody sees half of it. Repeating it changes nothing. The session's subagents are
    archived with it.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        rows = leases.lock_tree(session)
        row = _usable(rows.get(session), archived=True)
        if row.archived_at is not None:
            return row
        for key in _from_top(session):
            if rows[key].archived_at is None:
                _archive_locked(rows[key], actor=actor)
    return row


def _archive_locked(row: Session, *, actor: Actor) -> None:
    _end_turn(row, reason=TurnReason.ARCHIVED, actor=actor)
    inputs.drop_waiting_locked(row, actor=actor, reason="archived")
    for release in _releasers:
        log.append(row, *release(row))
    log.append(row, log.NewEntry(kind="archived", data=entry_kinds.Archived(), actor=actor))
    row.archived_at = ClockTimestamp()
    row.crash_count = 0
    scheduling.reschedule(row)
    row.save()
    wakeups.after_commit(row)
    logger.info("session.archived", session=str(row.id))


def restore(*, session: UUID, actor: Actor) -> Session:
    """Make an archived session usable again; it is idle. What archiving dropped stays dropped."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _locked(session, archived=True)
        if row.archived_at is None:
            return row
        log.append(row, log.NewEntry(kind="restored", data=entry_kinds.Restored(), actor=actor))
        row.archived_at = None
        scheduling.reschedule(row)
        row.save()
        wakeups.after_commit(row)
        logger.info("session.restored", session=str(row.id))
    return row


def change_config(
    *, session: UUID, config: UUID, actor: Actor, expected_config: UUID | None = None
) -> Session:
    """Run under another config from the next model call on.

    A call that was sent already keeps the old one, also for the tools that its reply calls; a retry keeps its
    time and uses the new one; an idle session stays idle. The config it has already is no change.

    Raises `NotFound` (also for a config that is not the project's), `SessionArchived`, or `ConfigMoved`.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _locked(session)
        if not AgentConfig.objects.filter(pk=config, project_id=row.project_id).exists():
            raise NotFound("no such config")
        if expected_config is not None and row.config_id != expected_config:
            raise ConfigMoved(current=row)
        if row.config_id != config:
            data = entry_kinds.ConfigChanged(
                config=ids.encode("cfg", config), previous=ids.encode("cfg", row.config_id)
            )
            log.append(row, log.NewEntry(kind="config_changed", data=data, actor=actor))
            row.config_id = config
            limit_asks.drop(row)
            scheduling.give_work(row)
            row.save()
            wakeups.after_commit(row)
    return row


def request_compaction(*, session: UUID, actor: Actor) -> Session:
    """Have the older part of the context summarized as soon as it can be; whatever checkpoint comes next counts.

    An idle session is due for it at once and needs no turn, one that works compacts before its next model call.
    Asking again while it is still to come changes nothing. Raises `NotFound` or `SessionArchived`.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _locked(session)
        if not row.compact_requested:
            row.compact_requested = True
            data = entry_kinds.SessionUpdated(changes={"compaction": "requested"})
            entry = log.NewEntry(kind="session_updated", data=data, actor=actor, turn=row.turn_id)
            log.append(row, entry)
            scheduling.give_work(row)
            row.save()
            wakeups.after_commit(row)
            logger.info("compaction.requested", session=str(row.id))
    return row


def _locked(session: UUID, *, archived: bool = False) -> Session:
    """The locked row; refuses an archived one unless `archived` says that it may be."""
    return _usable(leases.lock_session(session), archived=archived)


def _usable(row: Session | None, *, archived: bool = False) -> Session:
    if row is None:
        raise NotFound("no such session")
    if row.archived_at is not None and not archived:
        raise SessionArchived(current=row)
    return row


def _end_turn(row: Session, *, reason: TurnReason, actor: Actor) -> bool:
    """End the lease and the open turn of a locked session, and a compaction; False if it had none of them.

    The caller reschedules and saves it.
    """
    turn = row.turn_id
    dropped = drop_compaction_locked(row, because=str(reason))
    released = leases.end_lease_locked(row, reason=EndReason.CANCELLED)
    if turn is not None:
        closed = tool_port.runtime().close(row.id, reason=reason)
        log.append(row, *entries.of_settled(closed))
        end_turn_locked(row, status=TurnStatus.CANCELLED, reason=reason, actor=actor)
        logger.info("turn.cancelled", session=str(row.id), turn=str(turn), reason=str(reason))
    return released or turn is not None or dropped
