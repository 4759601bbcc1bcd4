"""Limits on what a turn and a session may use (R8). Pure.

Five things are counted, for the turn and for the session: model calls, tool calls, tokens, cost and time. They
are looked at before each model call, when everything used so far is known and saved: `standing` says which
limits are near (two thirds) and which are reached. What a single call uses is known only afterwards, so tokens
and cost can go over their limit by one call; calls and time can't.

Tool calls are refused one by one (`allowed_tool_calls`): the first ones of a reply run, those beyond the limit
get a result that says so. The refused ones are counted too, so a turn that may make no more calls can still
answer, and ends when the model has asked for one more than it had. Time is counted from the start of the turn,
waits included; for a session it is the sum of its turns.

A price that is not known counts as nothing, and is told once.

A session that has subagents, or is one, also counts what its whole tree uses (`tree_budgets`), against the
session limits of the session at the top, time apart. There calls under way count as well.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from sessions_app.agent_config.values import seconds

NEAR = Decimal(2) / 3
UNKNOWN = "unknown"

TURN, SESSION, TREE = "turn", "session", "tree"
MODEL_CALLS, TOOL_CALLS, TOKENS, COST, WALL_TIME = (
    "model_calls",
    "tool_calls",
    "tokens",
    "cost_usd",
    "wall_time",
)
_WORDS = {
    MODEL_CALLS: "model calls",
    TOOL_CALLS: "tool calls",
    TOKENS: "tokens",
    COST: "USD",
    WALL_TIME: "seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that may be used; None is without a limit. Time in seconds, cost in USD."""

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost_usd: Decimal | None = None
    wall_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    turn: Budget = Budget()
    session: Budget = Budget()

    @property
    def costs(self) -> bool:
        """Whether anything depends on what calls cost."""
        return self.turn.cost_usd is not None or self.session.cost_usd is not None


NONE = Limits()


@dataclass(slots=True, kw_only=True)
class Used:
    """What has been used. `unpriced`: there are calls whose cost nobody knows."""

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    wall_time: float = 0.0
    unpriced: bool = False


@dataclass(frozen=True, slots=True)
class Near:
    """Two thirds of a limit are used, or part of what it counts is not known (`used` is "unknown")."""

    limit: str  # such as turn.model_calls
    used: str
    of: str


@dataclass(frozen=True, slots=True)
class Reached:
    limit: str
    used: str
    of: str

    @property
    def error(self) -> dict[str, str]:
        """The `{code, detail}` of a turn that ends with it."""
        scope, _, what = self.limit.partition(".")
        whose = "tree of sessions" if scope == TREE else scope
        detail = f"the limit of this {whose} is reached: {self.used} of {self.of} {_WORDS[what]} used ({self.limit})"
        return {"code": "limit", "detail": detail}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a turn stands: what to warn of, and the first limit that lets it make no further call."""

    near: tuple[Near, ...] = ()
    reached: Reached | None = None


def of(document: Mapping[str, Any], override: Mapping[str, Any] | None) -> Limits:
    """The limits of a config document, each one replaced where the session has its own."""
    given = document.get("limits") or {}
    own = override or {}
    if not given and not own:
        return NONE
    budgets = {}
    for scope in (TURN, SESSION):
        values = (given.get(scope) or {}) | (own.get(scope) or {})
        if COST in values:
            values = values | {COST: Decimal(values[COST])}
        if WALL_TIME in values:
            values = values | {WALL_TIME: seconds(values[WALL_TIME])}
        budgets[scope] = Budget(**values)
    return Limits(**budgets)


def of_tree(document: Mapping[str, Any], override: Mapping[str, Any] | None) -> Budget:
    """What the session at the top of a tree, with this config and these limits, lets all of it use."""
    return replace(of(document, override).session, wall_time=None)


def granted(budget: Budget, grants: Mapping[str, int]) -> Budget:
    """A budget of which people have granted parts again, so many times each."""
    more = {
        what: getattr(budget, what) * (1 + times)
        for what, times in grants.items()
        if getattr(budget, what, None) is not None
    }
    return replace(budget, **more) if more else budget


def granted_anew(budget: Budget, what: str, *, used: Any, before: int) -> int:
    """How many times a limit is granted from now on, that was `before`: once more, and a whole one beyond `used`.

    Waiting takes time, and the last call may have taken many tokens: with less an allowance would allow nothing.
    """
    one = getattr(budget, what, None)
    return max(before + 1, math.ceil(Decimal(used) / Decimal(one)) if one else 0)


def with_grants(limits: Limits, grants: Mapping[str, Any] | None, turn: str | None) -> Limits:
    """The limits with what people granted (`Session.limit_grants`); to a turn only where it is this one."""
    if not grants:
        return limits
    scopes: dict[str, dict[str, int]] = {TURN: {}, SESSION: {}}
    for limit, times in grants["limits"].items():
        scope, _, what = limit.partition(".")
        if scope == SESSION or grants["turn"] == turn:
            scopes[scope][what] = times
    return Limits(turn=granted(limits.turn, scopes[TURN]), session=granted(limits.session, scopes[SESSION]))


def asks(document: Mapping[str, Any], override: Mapping[str, Any] | None) -> bool:
    """Whether people are asked at a limit, instead of ending the turn."""
    given = document.get("limits") or {}
    return bool((override or {}).get("on_limit", given.get("on_limit")) == "ask")


def standing(limits: Limits, turn: Used, session: Used) -> Standing:
    """What is near and what is reached, before the next model call; limits of the turn come first."""
    if limits is NONE:
        return Standing()
    return _standing((TURN, limits.turn, turn), (SESSION, limits.session, session))


def standing_of_tree(most: Budget, used: Used) -> Standing:
    """The same for what a tree of sessions shares."""
    return _standing((TREE, most, used))


def _standing(*scopes: tuple[str, Budget, Used]) -> Standing:
    near: list[Near] = []
    reached: Reached | None = None
    for scope, budget, used in scopes:
        for what, have, most in _counted(budget, used):
            name = f"{scope}.{what}"
            if have > most or (have == most and what != TOOL_CALLS):
                reached = reached or Reached(name, _text(have), _text(most))
            elif Decimal(have) >= Decimal(most) * NEAR:
                near.append(Near(name, _text(have), _text(most)))
        if budget.cost_usd is not None and used.unpriced:
            near.append(Near(f"{scope}.{COST}", UNKNOWN, _text(budget.cost_usd)))
    return Standing(tuple(near), reached)


def _counted(budget: Budget, used: Used) -> Iterator[tuple[str, Any, Any]]:
    for what in (MODEL_CALLS, TOOL_CALLS, TOKENS, COST, WALL_TIME):
        most = getattr(budget, what)
        if most is not None:
            yield what, getattr(used, what), most


def allowed_tool_calls(
    limits: Limits, turn: Used, session: Used, shared: "Shared | None" = None
) -> tuple[int, str] | None:
    """How many calls the next reply may make, and the limit that says so; None where there is none."""
    scopes = [(TURN, limits.turn, turn), (SESSION, limits.session, session)]
    if shared is not None:
        scopes.append((TREE, shared.most, shared.used))
    left = [
        (max(0, budget.tool_calls - used.tool_calls), f"{scope}.{TOOL_CALLS}")
        for scope, budget, used in scopes
        if budget.tool_calls is not None
    ]
    return min(left) if left else None


def time_left(limits: Limits, turn: Used, session: Used) -> float | None:
    """Seconds that a call may take; None where no limit counts time."""
    left = [
        budget.wall_time - used.wall_time
        for budget, used in ((limits.turn, turn), (limits.session, session))
        if budget.wall_time is not None
    ]
    return max(0.0, min(left)) if left else None


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


# --- what a held session knows of itself -----------------------------------------------------------------


@dataclass(slots=True)
class Shared:
    """What the tree of a session may use, and what of it is used or set aside by others."""

    most: Budget
    used: Used
    ask: bool = False  # whether people are asked at a limit


@dataclass(slots=True)
class Meter:
    """The running totals of a held session: loaded at the claim, moved by what this attempt saves.

    `now` in its methods is a monotonic clock; it only carries on from the times that the database gave.
    """

    limits: Limits = NONE
    turn: Used = field(default_factory=Used)
    session: Used = field(default_factory=Used)
    told: set[tuple[str, str, bool]] = field(default_factory=set)  # warnings that are in the log
    began: float | None = None  # when the open turn did
    shared: Shared | None = None  # where it stands in a tree of sessions
    ask: bool = False  # whether people are asked at a limit of the turn or the session
    later_turns: Budget | None = None  # what a turn may use to which nobody has granted more

    def start_turn(self, now: float) -> None:
        self.turn = Used()
        self._forget_grants()
        self.began = now
        self.told = {key for key in self.told if not key[0].startswith(f"{TURN}.")}

    def end_turn(self, now: float) -> None:
        if self.began is not None:
            self.session.wall_time += max(0.0, now - self.began)
        self.turn = Used()
        self._forget_grants()
        self.began = None

    def _forget_grants(self) -> None:
        if self.later_turns is not None and self.limits.turn != self.later_turns:
            self.limits = replace(self.limits, turn=self.later_turns)

    def asks_about(self, reached: Reached) -> bool:
        """Whether people are asked to go on at this limit."""
        if self.shared is not None and reached.limit.startswith(f"{TREE}."):
            return self.shared.ask
        return self.ask

    def take_call(self, *, tokens: int, cost: Decimal | None, tool_calls: int, in_turn: bool) -> None:
        """A model call ended, with a reply or without, and its reply made so many tool calls."""
        counted = [self.session]
        if in_turn:
            counted.append(self.turn)
        if self.shared is not None:
            counted.append(self.shared.used)
        for used in counted:
            used.model_calls += 1
            used.tool_calls += tool_calls
            used.tokens += tokens
            used.cost_usd += cost or Decimal(0)
            used.unpriced = used.unpriced or cost is None

    def tell(self, data: Mapping[str, Any]) -> None:
        """A warning is in the log."""
        self.told.add(_key(data["limit"], data["used"], data["of"]))

    def standing(self, now: float) -> Standing:
        """Where things stand, without what is told already."""
        if self.limits is NONE and self.shared is None:
            return Standing()
        found = self._with_tree(standing(self.limits, *self.totals(now)))
        return Standing(
            tuple(near for near in found.near if _key(near.limit, near.used, near.of) not in self.told),
            found.reached,
        )

    def standing_of_new_turn(self, now: float) -> Standing:
        """Where a turn would stand that starts now, after the one that is open."""
        if self.limits is NONE and self.shared is None:
            return Standing()
        return self._with_tree(standing(self.limits, Used(), self.totals(now)[1]))

    def _with_tree(self, own: Standing) -> Standing:
        if self.shared is None:
            return own
        found = standing_of_tree(self.shared.most, self.shared.used)
        return Standing((*own.near, *found.near), own.reached or found.reached)

    def allowed_tool_calls(self) -> tuple[int, str] | None:
        return allowed_tool_calls(self.limits, self.turn, self.session, self.shared)

    def time_left(self, now: float) -> float | None:
        return None if self.limits is NONE else time_left(self.limits, *self.totals(now))

    def totals(self, now: float) -> tuple[Used, Used]:
        """What the turn and the session have used, with the time of the open turn in both."""
        running = 0.0 if self.began is None else max(0.0, now - self.began)
        turn, session = self.turn, self.session
        return (
            Used(
                model_calls=turn.model_calls,
                tool_calls=turn.tool_calls,
                tokens=turn.tokens,
                cost_usd=turn.cost_usd,
                wall_time=running,
                unpriced=turn.unpriced,
            ),
            Used(
                model_calls=session.model_calls,
                tool_calls=session.tool_calls,
                tokens=session.tokens,
                cost_usd=session.cost_usd,
                wall_time=session.wall_time + running,
                unpriced=session.unpriced,
            ),
        )


def _key(limit: str, used: str, most: str) -> tuple[str, str, bool]:
    return limit, most, used == UNKNOWN
