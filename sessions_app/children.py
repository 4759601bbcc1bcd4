"""Subagents: sessions that another session started (T8). The only writer of `Child`.

A child works as long as it has an open turn or input that will start one; then it rests, and can be spoken to
again. Coming to rest is told to the parent in the transaction that brings it about (`scheduling.tell_parent`):
`Child.working` goes off, `child_ended` is written to the parent's log, and what the parent waited for gets its
result. So whoever may bring a child to rest has locked its parent's row too, both in id order (L11):
`leases.lock_session(…, with_parent=True)`, `leases.lock_tree`, and the step commit for a step that ends a turn.
A parent that looks whether its children work needs its own row only: none of them can come to rest meanwhile.

`working` comes on again under the child's lock alone, when somebody says something to it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F, Q

from sessions_app import entry_kinds, ids, log, tree_budgets
from sessions_app.entry_kinds import Actor, Blocks
from sessions_app.models import AgentConfig, Child, Entry, Session, Turn

# A session's own row may be locked by another transaction; these read what cannot change, or what their callers
# read again under the locks. The OFFSET leaves the planner no choice but to look up each one's children by index.
_DESCENDANTS = """
WITH RECURSIVE below (id, depth) AS (
    SELECT id, 1 FROM sessions_app_session WHERE parent_id = %s
    UNION ALL
    SELECT s.id, below.depth + 1 FROM below CROSS JOIN LATERAL (
        SELECT id FROM sessions_app_session WHERE parent_id = below.id OFFSET 0) s
)
SELECT id FROM below ORDER BY depth, id
"""
_ANCESTORS = """
WITH RECURSIVE above (id, parent_id, config_id, distance) AS (
    SELECT id, parent_id, config_id, 1 FROM sessions_app_session WHERE id = %s
    UNION ALL
    SELECT s.id, s.parent_id, s.config_id, above.distance + 1
    FROM above JOIN sessions_app_session s ON s.id = above.parent_id
)
SELECT config_id, distance FROM above ORDER BY distance
"""


_PARENT = Session._meta.get_field("parent")  # noqa: SLF001 - Django's documented model API


class SubagentLimit(Exception):
    """The session may have no further subagent; the message says by which limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a child has to show. `status`, `reason` and `error` are those of a turn, None while it works.

    `answer` is the text of its last message, `output` the blocks of a structured answer.
    """

    session: UUID
    name: str
    working: bool
    status: str | None
    reason: str | None
    error: Mapping[str, Any] | None
    answer: str
    output: Blocks


def adopt(child: Session, *, parent: Session, tool_call: UUID) -> None:
    """Store that the locked `parent` started `child`, which is new, with this call of its open turn.

    The caller saves the parent. The first child of a tree brings the budget that the tree shares from here on.
    """
    if parent.turn_id is None:
        raise RuntimeError("only an open turn can start a subagent")
    if parent.tree is None:
        parent.tree = parent.pk
        tree_budgets.begin(parent)
        parent.work_rev += 1  # whoever holds it has yet to learn that it shares a budget
    child.parent = parent
    child.tree = parent.tree
    Child.objects.create(session=child, parent=parent, tool_call=tool_call, turn=parent.turn_id)
    data = entry_kinds.ChildStarted(
        child=ids.encode("ses", child.pk), tool_call=ids.encode("tcl", tool_call), name=child.name
    )
    log.append(parent, log.NewEntry(kind="child_started", data=data, turn=parent.turn_id))


def begins(session: Session) -> None:
    """A locked child has something to do (again)."""
    Child.objects.filter(pk=session.pk, working=False).update(
        working=True,
        seen=False,
        turns_before=session.turn_count,
        status=None,
        reason=None,
        error=None,
    )


def ends(session: Session) -> Child | None:
    """A child has come to rest, both rows locked; None where its parent knows already."""
    child = Child.objects.filter(pk=session.pk, working=True).first()
    if child is None:
        return None
    child.working = False
    # Without a turn since: what it was to do was taken back, or was too much for its workers.
    child.status, child.reason = ("failed", "crash_limit") if session.crash_count else ("cancelled",) * 2
    if session.turn_count > child.turns_before and session.last_turn_id is not None:
        turn = Turn.objects.get(pk=session.last_turn_id)
        child.status, child.reason, child.error = turn.status, turn.reason, turn.error
    child.save(update_fields=["working", "status", "reason", "error"])
    return child


def locked_parent(session: Session) -> Session:
    """The parent of a locked child, which this transaction has locked as well."""
    if not _PARENT.is_cached(session) or session.parent is None:
        raise RuntimeError(f"session {session.pk} comes to rest, but its parent is not locked")
    return session.parent


def descendants(session: UUID) -> list[UUID]:
    """All that the session and its children have started, those nearer to it first."""
    with connection.cursor() as cursor:
        cursor.execute(_DESCENDANTS, [session])
        return [row[0] for row in cursor.fetchall()]


def check_room(parent: Session, *, beside: UUID | None = None) -> None:
    """Raises `SubagentLimit` where the locked parent may have no further child at work.

    It counts the children that work and those that the open turn started; `beside` is a child of its own that
    is to work again, which needs a place but no further level.
    """
    document = AgentConfig.objects.values_list("document", flat=True).get(pk=parent.config_id)
    most = _limit(document, "max_children", settings.TENURE.subagent_max_children)
    mine = Child.objects.filter(parent=parent).filter(Q(working=True) | Q(turn=parent.turn_id))
    if mine.exclude(pk=beside).count() >= most:
        raise SubagentLimit(
            f"the limit on subagents is reached: at most {most} may work at once, those that this turn started "
            "included (max_children)"
        )
    if beside is not None:
        return
    with connection.cursor() as cursor:
        cursor.execute(_ANCESTORS, [parent.pk])
        above = cursor.fetchall()
    documents = dict(
        AgentConfig.objects.filter(pk__in={config for config, _ in above}).values_list("pk", "document")
    )
    for config, distance in above:
        levels = _limit(documents[config], "max_depth", settings.TENURE.subagent_max_depth)
        if distance > levels:
            where = "this session" if distance == 1 else f"the session {distance - 1} above this one"
            raise SubagentLimit(
                f"the limit on the depth of subagents is reached: below {where} there may be {levels} levels "
                "(max_depth)"
            )


def _limit(document: Mapping[str, Any], name: str, default: int) -> int:
    own = (document.get("subagents") or {}).get(name)
    return default if own is None else int(own)


def actor_of(parent: Session) -> Actor:
    """The parent as the one who says something to a child."""
    return {
        "kind": "system",
        "id": ids.encode("ses", parent.pk),
        "name": parent.name or "the agent that started it",
    }


def of(parent: UUID, *, only_open: bool = False, archived: bool = False) -> list[UUID]:
    """The children of a session, without archived ones unless wanted, in the order in which they were started.

    With `only_open` those that work, or whose end the parent's model has not seen yet.
    """
    rows = Child.objects.filter(parent=parent)
    if not archived:
        rows = rows.filter(session__archived_at=None)
    if only_open:
        rows = rows.filter(Q(working=True) | Q(seen=False))
    return list(rows.order_by("created_at", "pk").values_list("pk", flat=True))


def see(sessions: Collection[UUID]) -> None:
    """The parent, which is locked, shows its model these children as they are now."""
    Child.objects.filter(pk__in=sessions, working=False).update(seen=True)


def at_work(sessions: Collection[UUID]) -> set[UUID]:
    """Those of these children that work."""
    if not sessions:
        return set()
    return set(Child.objects.filter(pk__in=sessions, working=True).values_list("pk", flat=True))


def reports(sessions: Iterable[UUID]) -> list[Report]:
    """What these children have to show, in the given order; those that are nobody's children are left out."""
    wanted = list(sessions)
    rows = Child.objects.filter(pk__in=wanted).annotate(
        name=F("session__name"),
        output_seq=F("session__last_turn__output_seq"),
        turns=F("session__turn_count"),
    )
    found = {row.pk: row for row in rows}
    said: dict[UUID, Mapping[str, Any]] = {}
    for row in found.values():
        if not row.working and row.output_seq is not None and row.turns > row.turns_before:
            message = Entry.objects.filter(session_id=row.pk, seq=row.output_seq).only("data").first()
            said[row.pk] = message.data if message is not None else {}
    return [_report(found[pk], said.get(pk, {})) for pk in wanted if pk in found]


def _report(row: Any, said: Mapping[str, Any]) -> Report:
    texts = [block["text"] for block in said.get("content", ()) if block.get("type") == "text"]
    return Report(
        session=row.pk,
        name=row.name,
        working=row.working,
        status=row.status,
        reason=row.reason,
        error=row.error,
        answer="\n".join(texts),
        output=said.get("output", []),
    )
