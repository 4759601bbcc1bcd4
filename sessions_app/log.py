"""The log, and the only module that inserts entries (S1).

Sequence numbers are given under the session's row lock in the transaction that writes, so commit order is
seq order and there are no gaps. Services append with `append`; the step commit, which writes for many
sessions at once, with `insert_rows`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection

from sessions_app.database import Cursor, dumps, hot_cursor
from sessions_app.entry_kinds import KINDS, SYSTEM, Actor
from sessions_app.ids import new_id
from sessions_app.models import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry before it has its place. The id is made beforehand, so that a write can be looked for (S10)."""

    kind: str
    data: Any
    actor: Actor = field(default_factory=lambda: SYSTEM)
    turn: UUID | None = None
    id: UUID = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry with its place in the log of a session."""

    entry: NewEntry
    session: UUID
    project: UUID
    seq: int
    parent_seq: int
    attempt: int | None


_INSERT = """
INSERT INTO sessions_app_entry (id, session_id, project_id, seq, parent_seq, kind, turn_id, attempt, actor, data)
SELECT id, session_id, project_id, seq, parent_seq, kind, turn_id, attempt, actor, data
FROM jsonb_to_recordset(%s::jsonb) AS row (
    id uuid, session_id uuid, project_id uuid, seq bigint, parent_seq bigint, kind text, turn_id uuid,
    attempt int, actor jsonb, data jsonb)
"""


def place(
    entries: Sequence[NewEntry],
    *,
    session: UUID,
    project: UUID,
    next_seq: int,
    head_seq: int,
    attempt: int | None = None,
) -> list[Placed]:
    """Give entries their numbers; each follows the one before, the first follows `head_seq`."""
    placed = []
    for entry in entries:
        if entry.kind not in KINDS:
            raise ValueError(f"unknown entry kind {entry.kind!r}")
        placed.append(Placed(entry, session, project, next_seq, head_seq, attempt))
        head_seq = next_seq
        next_seq += 1
    return placed


def insert_rows(cursor: Cursor, rows: Sequence[Placed]) -> None:
    """One statement for any number of entries, of any number of locked sessions."""
    if not rows:
        return
    document = [
        {
            "id": str(row.entry.id),
            "session_id": str(row.session),
            "project_id": str(row.project),
            "seq": row.seq,
            "parent_seq": row.parent_seq,
            "kind": row.entry.kind,
            "turn_id": str(row.entry.turn) if row.entry.turn else None,
            "attempt": row.attempt,
            "actor": row.entry.actor,
            "data": row.entry.data,
        }
        for row in rows
    ]
    cursor.execute(_INSERT, (dumps(document),))


def append(session: Session, *entries: NewEntry, attempt: int | None = None) -> list[Placed]:
    """Append to a session whose row this transaction has locked; moves `next_seq` and `head_seq` on the object.

    The caller saves the session, in the same transaction.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("log.append needs the transaction that holds the session's lock")
    rows = place(
        entries,
        session=session.id,
        project=session.project_id,
        next_seq=session.next_seq,
        head_seq=session.head_seq,
        attempt=attempt,
    )
    with hot_cursor() as cursor:
        insert_rows(cursor, rows)
    session.next_seq += len(rows)
    session.head_seq = session.next_seq - 1
    return rows
