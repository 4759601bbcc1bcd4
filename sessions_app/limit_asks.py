"""The approval to go on at a limit (R8): `on_limit: ask`.

The step that finds a limit reached opens an approval instead of ending the turn, and lets go of the session,
which then waits for it (`Session.limit_ask`). Whoever allows it grants another budget of the same size, beyond
what is used by then: for a limit of the turn to this turn, for one of the session to the session, for one of a
tree to the whole tree. Denied, the turn ends as it would have. All here works on a session that the caller has
locked and saves.
"""

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sessions_app import entries, log, tool_port, tree_budgets
from sessions_app.engine import limits
from sessions_app.models import Session

OPEN, DENIED = "open", "denied"


def is_open(session: Session) -> bool:
    """Whether people are asked right now, and nothing else can let the turn go on."""
    return session.limit_ask is not None and session.limit_ask["state"] == OPEN


def decided(session: Session, *, approval: UUID, allowed: bool, used: Decimal, waited: timedelta) -> None:
    """People have decided, `waited` after they were asked, when `used` was used. The caller gives the session work."""
    asked: dict[str, Any] | None = session.limit_ask
    if asked is None or asked["approval"] != str(approval):
        return  # its turn is over
    if not allowed:
        session.limit_ask = {**asked, "state": DENIED}
        return
    session.limit_ask = None
    scope, _, what = asked["limit"].partition(".")
    if scope == limits.TREE and session.tree is not None:
        tree_budgets.grant(session.tree, what)
        return
    turn = str(session.turn_id)
    before: dict[str, Any] = session.limit_grants or {}
    kept = {
        limit: count
        for limit, count in before.get("limits", {}).items()
        if before.get("turn") == turn or not limit.startswith(f"{limits.TURN}.")
    }
    if what == limits.WALL_TIME:
        used += Decimal(waited.total_seconds())
    given = limits.of(session.config.document, session.limits)
    budget = given.turn if scope == limits.TURN else given.session
    times = limits.granted_anew(budget, what, used=used, before=kept.get(asked["limit"], 0))
    session.limit_grants = {"turn": turn, "limits": kept | {asked["limit"]: times}}


def drop(session: Session) -> None:
    """What was asked about may no longer be so: close it, so that the session looks again."""
    if is_open(session):
        closed = tool_port.runtime().close_limit(session.pk)
        log.append(session, *entries.of_settled(closed))
    session.limit_ask = None
