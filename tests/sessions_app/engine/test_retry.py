"""What follows from a failed model call."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.engine.retry import STANDARD, EndTurn, RetryAfter, classify, delay
from sessions_app.providers.categories import category_of
from sessions_app.providers.port import Category, ModelCallFailed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def failed(category: Category, **fields) -> ModelCallFailed:
    return ModelCallFailed("it failed", category=category, **fields)


def decide(failure: ModelCallFailed, failures_so_far: int = 0) -> RetryAfter | EndTurn:
    return classify(failure, failures_so_far=failures_so_far, call_id="mcl_01", now=NOON)


@pytest.mark.parametrize(
    ("category", "reason"),
    [
        (Category.RATE, None),
        (Category.OVERLOADED, None),
        (Category.SERVER, None),
        (Category.TIMEOUT, None),
        (Category.CONNECTION, None),
        (Category.CUT, None),
        (Category.EMPTY, None),
        (Category.MALFORMED, None),
        (Category.AUTH, "auth"),
        (Category.QUOTA, "quota"),
        (Category.MODEL_NOT_FOUND, "model_not_found"),
        (Category.INVALID_REQUEST, "invalid_request"),
        (Category.TOO_LARGE, "invalid_request"),
        (Category.SCRIPT_EXHAUSTED, "invalid_request"),
        (Category.CONTEXT_TOO_LONG, "context_too_long"),
    ],
)
def test_each_category_is_retried_or_ends_the_turn(category, reason):
    """R2, R3, R4."""
    decided = decide(failed(category))
    assert (decided.reason if isinstance(decided, EndTurn) else None) == reason
    if isinstance(decided, EndTurn):
        assert decided.error == {"code": category.value, "detail": "it failed"}


def test_the_table_knows_every_category():
    tested = test_each_category_is_retried_or_ends_the_turn.pytestmark[0].args[1]
    assert {category for category, _ in tested} == set(Category)


@pytest.mark.parametrize(("category", "retryable"), [(Category.AUTH, True), (Category.SERVER, False)])
def test_the_providers_explicit_word_is_obeyed(category, retryable):
    """A36."""
    assert isinstance(decide(failed(category, retryable=retryable)), RetryAfter) is retryable


def test_the_eighth_failure_is_retried_and_the_ninth_ends_the_turn():
    """A35, R2: with what the provider asked for kept in the error."""
    failure = failed(Category.RATE, retry_after=7.0, code="slow_down")
    eighth = decide(failure, 7)
    assert isinstance(eighth, RetryAfter)
    assert eighth.retry == STANDARD.limit
    ninth = decide(failure, 8)
    assert isinstance(ninth, EndTurn)
    assert ninth.reason == "retries_exhausted"
    assert ninth.error["code"] == "slow_down"
    assert "7 s" in ninth.error["detail"]


def test_delays_double_up_to_a_minute():
    """R2."""
    delays = [delay(failures_so_far=number, call_id="mcl_01") for number in range(8)]
    for number, seconds in enumerate(delays):
        longest = min(60, 2**number)
        assert longest * 0.75 <= seconds <= longest


@given(failures=st.integers(0, 7), call=st.text(), asked=st.none() | st.floats(0, 86_400))
def test_a_delay_is_the_same_each_time_and_never_before_retry_after(failures, call, asked):
    """R2: jitter is deterministic per call."""
    first = delay(failures_so_far=failures, call_id=call, retry_after=asked)
    assert first == delay(failures_so_far=failures, call_id=call, retry_after=asked)
    assert first >= (asked or 0)
    assert first <= max(60, (asked or 0) + 5)


def test_calls_that_fail_together_come_back_apart():
    delays = {delay(failures_so_far=6, call_id=f"mcl_{number}", retry_after=60) for number in range(100)}
    assert len(delays) == 100


@pytest.mark.parametrize(("asked", "shortest", "longest"), [(120.0, 120, 130), (0.0, 0.1, 1)])
def test_a_date_that_was_parsed_gives_its_wait(asked, shortest, longest):
    """C43."""
    decided = decide(failed(Category.RATE, retry_after=asked))
    assert isinstance(decided, RetryAfter)
    assert shortest <= decided.seconds <= longest


def test_more_than_a_day_ends_the_turn_and_says_when():
    """R2."""
    assert isinstance(decide(failed(Category.RATE, retry_after=86_400.0)), RetryAfter)
    decided = decide(failed(Category.RATE, retry_after=90_000.0))
    assert isinstance(decided, EndTurn)
    assert decided.reason == "retry_too_late"
    assert "2026-01-02T13:00:00Z" in decided.error["detail"]


@pytest.mark.parametrize(
    ("status", "code", "detail", "category"),
    [
        (429, None, "You have used up your quota", Category.RATE),
        (429, "insufficient_quota", "", Category.QUOTA),
        (400, "invalid_request_error", "prompt is too long: 9 > 8", Category.CONTEXT_TOO_LONG),
        (400, None, "string too long: maximum length 40, got 41", Category.INVALID_REQUEST),
        (400, None, "the value is too long", Category.INVALID_REQUEST),
        (413, None, "", Category.TOO_LARGE),
        (422, None, "", Category.INVALID_REQUEST),
        (418, None, "", Category.INVALID_REQUEST),
        (599, None, "", Category.SERVER),
        (None, "overloaded_error", "", Category.OVERLOADED),
        (None, "never heard of", "", Category.SERVER),
        (200, None, "", Category.SERVER),
    ],
)
def test_statuses_and_codes(status, code, detail, category):
    """C48, C58, R3, R5."""
    assert category_of(status, code, detail) is category
