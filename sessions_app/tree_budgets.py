"""What the sessions of one tree use together, for the limits of the session at its top (R8).

A session and all that it started, and they in turn, share one `TreeBudget` row, locked after everything else
(L11). The step commit moves it: in the transaction that makes a model call due, the call is reserved there, with
the tokens that its request has at least, and in the one that ends it what was really used takes the place of
that. So sessions that ask at the same moment see each other's calls. A call that finds no more room is not made
due: its step counts as planned on what is no longer so, and the worker plans again with the figures of now.

A reservation whose lease ended is given back there. Sessions without a parent or a child have no such row and
pay nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import F

from sessions_app.database import Cursor, dumps
from sessions_app.engine import limits
from sessions_app.engine.limits import Budget, Shared, Used
from sessions_app.models import ModelCall, ModelCallState, Session, TreeBudget

_LOCK = """
SELECT session_id, model_calls, tool_calls, tokens, cost, unpriced, reserved_model_calls, reserved_tokens
FROM sessions_app_treebudget WHERE session_id = ANY(%s) ORDER BY session_id FOR NO KEY UPDATE
"""
_UPDATE = """
UPDATE sessions_app_treebudget t SET
    model_calls = r.model_calls, tool_calls = r.tool_calls, tokens = r.tokens, cost = r.cost,
    unpriced = r.unpriced, reserved_model_calls = r.reserved_model_calls, reserved_tokens = r.reserved_tokens
FROM jsonb_to_recordset(%s::jsonb) AS r (session_id uuid, model_calls int, tool_calls int, tokens bigint,
    cost numeric, unpriced boolean, reserved_model_calls int, reserved_tokens bigint)
WHERE t.session_id = r.session_id
"""


@dataclass(slots=True)
class Locked:
    """The row of one tree, locked by this transaction, with what the transaction adds to it."""

    session: UUID
    model_calls: int
    tool_calls: int
    tokens: int
    cost: Decimal
    unpriced: bool
    reserved_model_calls: int
    reserved_tokens: int
    changed: bool = False

    def settle(self, *, tokens: int, cost: Decimal | None, tool_calls: int, reserved: int | None) -> None:
        """A model call has ended."""
        self.changed = True
        self.model_calls += 1
        self.tool_calls += tool_calls
        self.tokens += tokens
        self.cost += cost or Decimal(0)
        self.unpriced = self.unpriced or cost is None
        if reserved is not None:
            self.reserved_model_calls -= 1
            self.reserved_tokens -= reserved

    def reserve(self, tokens: int) -> None:
        """A model call becomes due."""
        self.changed = True
        self.reserved_model_calls += 1
        self.reserved_tokens += tokens

    def has_room(self, most: Budget | None) -> bool:
        return most is None or limits.standing_of_tree(most, self.used()).reached is None

    def used(self, *, without: int | None = None) -> Used:
        """What counts: used, or reserved; `without` a reservation of so many tokens, which is the asker's own."""
        own = 0 if without is None else 1
        return Used(
            model_calls=self.model_calls + self.reserved_model_calls - own,
            tool_calls=self.tool_calls,
            tokens=self.tokens + self.reserved_tokens - (without or 0),
            cost_usd=self.cost,
            unpriced=self.unpriced,
        )


def lock(cursor: Cursor, trees: Iterable[UUID]) -> dict[UUID, Locked]:
    """Lock the rows of these trees; the sessions are locked already."""
    cursor.execute(_LOCK, (list(trees),))
    return {row[0]: Locked(*row) for row in cursor}


def write(cursor: Cursor, rows: Iterable[Locked]) -> None:
    document = [
        {
            "session_id": str(row.session),
            "model_calls": row.model_calls,
            "tool_calls": row.tool_calls,
            "tokens": row.tokens,
            "cost": f"{row.cost:f}",
            "unpriced": row.unpriced,
            "reserved_model_calls": row.reserved_model_calls,
            "reserved_tokens": row.reserved_tokens,
        }
        for row in rows
        if row.changed
    ]
    if document:
        cursor.execute(_UPDATE, (dumps(document),))


def begin(session: Session) -> None:
    """A locked session gets its first subagent: what it has used so far counts, and what it was granted holds."""
    grants: Mapping[str, int] = (session.limit_grants or {}).get("limits", {})
    own = f"{limits.SESSION}."
    TreeBudget.objects.create(
        session=session,
        model_calls=session.model_calls,
        tool_calls=session.tool_calls,
        tokens=session.input_tokens + session.output_tokens,
        cost=session.cost or 0,
        unpriced=session.model_calls > 0 and session.cost is None,
        granted={limit.removeprefix(own): n for limit, n in grants.items() if limit.startswith(own)},
    )


def grant(tree: UUID, what: str) -> None:
    """People let the tree go on at its limit on `what`: it may use as much again, beyond what is used by now."""
    top: Mapping[str, Any] = Session.objects.values("limits", "config__document").get(pk=tree)
    row = TreeBudget.objects.select_for_update().get(pk=tree)
    used = Locked(tree, *(getattr(row, name) for name in _COUNTED)).used()
    times = limits.granted_anew(
        limits.of_tree(top["config__document"], top["limits"]),
        what,
        used=getattr(used, what),
        before=row.granted.get(what, 0),
    )
    row.granted = {**row.granted, what: times}
    row.save(update_fields=["granted"])


def give_back(session: Session) -> None:
    """The lease of a locked session ends in the middle of a model call: what that had reserved is free again."""
    if session.tree is None:
        return
    open_calls = ModelCall.objects.filter(
        session=session, state=ModelCallState.STARTED, reserved__isnull=False
    )
    reserved = list(open_calls.values_list("reserved", flat=True))
    if reserved:
        TreeBudget.objects.filter(pk=session.tree).update(
            reserved_model_calls=F("reserved_model_calls") - len(reserved),
            reserved_tokens=F("reserved_tokens") - sum(map(int, filter(None, reserved))),
        )


def read(tree: UUID) -> Shared:
    """The limits that a tree has, and what counts towards them now."""
    row: Mapping[str, Any] = Session.objects.values(
        "limits",
        "config__document",
        "tree_budget__granted",
        *(f"tree_budget__{name}" for name in _COUNTED),
    ).get(pk=tree)
    used = Locked(tree, *(row[f"tree_budget__{name}"] for name in _COUNTED)).used()
    document, own = row["config__document"], row["limits"]
    most = limits.granted(limits.of_tree(document, own), row["tree_budget__granted"])
    return Shared(most, used, ask=limits.asks(document, own))


_COUNTED = (
    "model_calls",
    "tool_calls",
    "tokens",
    "cost",
    "unpriced",
    "reserved_model_calls",
    "reserved_tokens",
)
