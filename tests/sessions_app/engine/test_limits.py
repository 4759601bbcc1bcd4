"""R8: where a turn stands with its limits, as tables."""

from decimal import Decimal
from typing import Any

import pytest

from sessions_app.engine import limits
from sessions_app.engine.limits import NONE, Budget, Limits, Meter, Near, Reached, Used, standing

FREE = Used()


@pytest.mark.parametrize(
    ("what", "most", "used", "near", "reached"),
    [
        ("model_calls", 3, 1, False, False),
        ("model_calls", 3, 2, True, False),
        ("model_calls", 3, 3, False, True),
        ("model_calls", 1, 0, False, False),
        ("model_calls", 1, 1, False, True),
        ("tool_calls", 3, 2, True, False),
        ("tool_calls", 3, 3, True, False),  # no more calls, but it may still answer
        ("tool_calls", 3, 4, False, True),  # it has asked for one more
        ("tokens", 1000, 666, False, False),
        ("tokens", 1000, 667, True, False),
        ("tokens", 1000, 1000, False, True),
        ("tokens", 1000, 5000, False, True),
        ("cost_usd", Decimal("2.00"), Decimal("1.33"), False, False),
        ("cost_usd", Decimal("3.00"), Decimal("2.00"), True, False),
        ("cost_usd", Decimal("2.00"), Decimal("2.000000001"), False, True),
        ("wall_time", 60.0, 39.9, False, False),
        ("wall_time", 60.0, 40.0, True, False),
        ("wall_time", 60.0, 60.0, False, True),
    ],
)
@pytest.mark.parametrize("scope", ["turn", "session"])
def test_two_thirds_are_near_and_the_whole_is_reached(
    scope: str, what: str, most: Any, used: Any, near: bool, reached: bool
) -> None:
    given = Limits(**{scope: Budget(**{what: most})})
    has = Used(**{what: used})
    found = standing(given, *((has, FREE) if scope == "turn" else (FREE, has)))
    assert [one.limit for one in found.near] == [f"{scope}.{what}"] * near
    assert (found.reached is not None) == reached
    if found.reached is not None:
        assert found.reached.limit == f"{scope}.{what}"


def test_the_limit_of_the_turn_is_named_before_that_of_the_session() -> None:
    given = Limits(turn=Budget(model_calls=1), session=Budget(model_calls=1, tokens=90))
    found = standing(given, Used(model_calls=1), Used(model_calls=1, tokens=70))
    assert found.reached == Reached("turn.model_calls", "1", "1")
    assert found.near == (Near("session.tokens", "70", "90"),)


def test_an_end_by_a_limit_says_which_and_how_much() -> None:
    error = Reached("turn.cost_usd", "2.01", "2.00").error
    assert error["code"] == "limit"
    assert error["detail"] == "the limit of this turn is reached: 2.01 of 2.00 USD used (turn.cost_usd)"


def test_a_price_that_is_not_known_counts_as_nothing_and_is_told() -> None:
    given = Limits(turn=Budget(cost_usd=Decimal("1.00")))
    found = standing(given, Used(cost_usd=Decimal("0.9"), unpriced=True), FREE)
    assert found.reached is None
    assert found.near == (Near("turn.cost_usd", "0.9", "1.00"), Near("turn.cost_usd", "unknown", "1.00"))


def test_without_limits_nothing_is_counted_and_nothing_stops() -> None:
    assert limits.of({"limits": {}}, None) is NONE
    assert limits.of({}, {}) is NONE
    assert standing(NONE, Used(model_calls=10**9), FREE) == limits.Standing()
    assert limits.time_left(NONE, FREE, FREE) is None


def test_a_session_replaces_single_limits_of_its_config() -> None:
    document = {
        "limits": {
            "turn": {"model_calls": 5, "cost_usd": "2.00", "wall_time": "1h"},
            "session": {"tokens": 100},
            "on_limit": "ask",
        }
    }
    assert limits.of(document, None) == Limits(
        turn=Budget(model_calls=5, cost_usd=Decimal("2.00"), wall_time=3600.0),
        session=Budget(tokens=100),
    )
    own = {"turn": {"model_calls": 9}, "session": {"model_calls": 7}, "on_limit": "fail"}
    assert limits.of(document, own) == Limits(
        turn=Budget(model_calls=9, cost_usd=Decimal("2.00"), wall_time=3600.0),
        session=Budget(tokens=100, model_calls=7),
    )


@pytest.mark.parametrize(
    ("turn", "session", "expected"),
    [
        (None, None, None),
        (5, None, (3, "turn.tool_calls")),
        (None, 5, (1, "session.tool_calls")),
        (5, 5, (1, "session.tool_calls")),
        (5, 100, (3, "turn.tool_calls")),
        (1, None, (0, "turn.tool_calls")),
    ],
)
def test_a_reply_may_make_as_many_tool_calls_as_both_limits_leave(
    turn: int | None, session: int | None, expected: tuple[int, str] | None
) -> None:
    given = Limits(turn=Budget(tool_calls=turn), session=Budget(tool_calls=session))
    assert limits.allowed_tool_calls(given, Used(tool_calls=2), Used(tool_calls=4)) == expected


def test_a_call_may_take_what_is_left_of_the_shorter_time() -> None:
    given = Limits(turn=Budget(wall_time=60.0), session=Budget(wall_time=100.0))
    assert limits.time_left(given, Used(wall_time=10.0), Used(wall_time=30.0)) == 50.0
    assert limits.time_left(given, Used(wall_time=10.0), Used(wall_time=95.0)) == 5.0
    assert limits.time_left(given, Used(wall_time=61.0), FREE) == 0.0


# --- the running totals of a held session ----------------------------------------------------------------


def test_a_meter_counts_every_attempt_for_turn_and_session() -> None:
    meter = Meter(limits=Limits(turn=Budget(model_calls=10)))
    meter.start_turn(100.0)
    meter.take_call(tokens=30, cost=Decimal("0.5"), tool_calls=2, in_turn=True)
    meter.take_call(tokens=5, cost=None, tool_calls=0, in_turn=False)  # a compaction between turns
    turn, session = meter.totals(107.0)
    assert turn == Used(model_calls=1, tool_calls=2, tokens=30, cost_usd=Decimal("0.5"), wall_time=7.0)
    assert session == Used(
        model_calls=2, tool_calls=2, tokens=35, cost_usd=Decimal("0.5"), wall_time=7.0, unpriced=True
    )
    meter.end_turn(110.0)
    meter.start_turn(200.0)
    turn, session = meter.totals(201.0)
    assert (turn.model_calls, turn.wall_time, session.wall_time) == (0, 1.0, 11.0)


def test_a_warning_is_told_once_for_each_turn_and_once_for_the_session() -> None:
    meter = Meter(limits=Limits(turn=Budget(model_calls=3), session=Budget(model_calls=6)))
    meter.start_turn(0.0)
    for _ in range(2):
        meter.take_call(tokens=1, cost=None, tool_calls=0, in_turn=True)
    (near,) = meter.standing(1.0).near
    meter.tell({"limit": near.limit, "used": near.used, "of": near.of})
    assert meter.standing(2.0).near == ()
    meter.end_turn(3.0)
    meter.start_turn(3.0)
    for _ in range(2):
        meter.take_call(tokens=1, cost=None, tool_calls=0, in_turn=True)
    assert [one.limit for one in meter.standing(4.0).near] == ["turn.model_calls", "session.model_calls"]
    meter.tell({"limit": "session.model_calls", "used": "4", "of": "6"})
    assert [one.limit for one in meter.standing(4.0).near] == ["turn.model_calls"]


def test_another_limit_is_warned_of_anew() -> None:
    """A session that goes on under a config with more room."""
    meter = Meter(limits=Limits(turn=Budget(model_calls=9)))
    meter.start_turn(0.0)
    meter.tell({"limit": "turn.model_calls", "used": "2", "of": "3"})
    for _ in range(6):
        meter.take_call(tokens=1, cost=None, tool_calls=0, in_turn=True)
    assert meter.standing(1.0).near == (Near("turn.model_calls", "6", "9"),)


def test_a_turn_that_starts_now_has_used_nothing() -> None:
    meter = Meter(limits=Limits(turn=Budget(model_calls=1), session=Budget(model_calls=2)))
    meter.start_turn(0.0)
    meter.take_call(tokens=1, cost=None, tool_calls=0, in_turn=True)
    assert meter.standing(1.0).reached is not None
    assert meter.standing_of_new_turn(1.0).reached is None
    meter.take_call(tokens=1, cost=None, tool_calls=0, in_turn=True)
    assert meter.standing_of_new_turn(1.0).reached == Reached("session.model_calls", "2", "2")


@pytest.mark.parametrize(
    ("what", "used", "before", "times"),
    [
        ("model_calls", 2, 0, 1),
        ("model_calls", 4, 1, 2),
        ("model_calls", 3, 2, 3),  # others of the tree were allowed to go on meanwhile
        ("tokens", 9_000, 0, 5),  # the last call took more than four times the limit
        ("cost_usd", Decimal("2.01"), 0, 3),
        ("wall_time", Decimal("86400.5"), 0, 1441),
        ("tool_calls", 7, 4, 5),  # no limit any more
    ],
)
def test_what_is_granted_is_a_whole_budget_beyond_what_is_used(
    what: str, used: Any, before: int, times: int
) -> None:
    """R8: else an allowance would allow nothing."""
    budget = Budget(model_calls=2, tokens=2_000, cost_usd=Decimal(1), wall_time=60.0)
    assert limits.granted_anew(budget, what, used=used, before=before) == times
    most = getattr(limits.granted(budget, {what: times}), what)
    assert most is None or most - getattr(budget, what) >= used
