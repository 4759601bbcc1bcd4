"""What follows from a failed model call."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.engine.retry import (
    STANDARD,
    AskAgain,
    Compact,
    EndTurn,
    RetryAfter,
    Verdict,
    classify,
    delay,
    in_words,
)
from sessions_app.providers.categories import category_of
from sessions_app.providers.port import Category, ModelCallFailed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def failed(category: Category, **fields) -> ModelCallFailed:
    return ModelCallFailed("it failed", category=category, **fields)


def decide(failure: ModelCallFailed, failures_so_far: int = 0, already=()) -> Verdict:
    return classify(failure, failures_so_far=failures_so_far, call_id="mcl_01", already=already, now=NOON)


@pytest.mark.parametrize(
    ("category", "follows"),
    [
        (Category.RATE, "retry"),
        (Category.OVERLOADED, "retry"),
        (Category.SERVER, "retry"),
        (Category.TIMEOUT, "retry"),
        (Category.CONNECTION, "retry"),
        (Category.CUT, "retry"),
        (Category.EMPTY, "retry"),
        (Category.MALFORMED, "retry"),
        (Category.PREPARATION, "retry"),
        (Category.AUTH, "auth"),
        (Category.QUOTA, "quota"),
        (Category.MODEL_NOT_FOUND, "model_not_found"),
        (Category.INVALID_REQUEST, "invalid_request"),
        (Category.SCRIPT_EXHAUSTED, "invalid_request"),
        (Category.LIMIT, "limit"),
        (Category.TOO_LARGE, "ask again"),
        (Category.REPLAY_REFUSED, "ask again"),
        (Category.CONTEXT_TOO_LONG, "compact"),
    ],
)
def test_what_follows_from_each_category(category, follows):
    """R2, R3, R4, R5, R8, A36, A39."""
    match decide(failed(category)):
        case EndTurn(reason=reason, error=error):
            assert reason == follows
            assert error == {"code": category.value, "detail": "it failed"}
        case RetryAfter():
            assert follows == "retry"
        case AskAgain(category=without):
            assert (follows, without) == ("ask again", category)
        case Compact():
            assert follows == "compact"


def test_the_table_knows_every_category():
    tested = test_what_follows_from_each_category.pytestmark[0].args[1]
    assert {category for category, _ in tested} == set(Category)


@pytest.mark.parametrize("category", [Category.TOO_LARGE, Category.REPLAY_REFUSED])
@pytest.mark.parametrize("retryable", [None, True, False])
def test_what_was_asked_again_with_less_is_not_asked_a_third_time(category, retryable):
    """A38: again at the same place of the log: stop."""
    assert decide(failed(category, retryable=retryable)) == AskAgain(category)
    assert decide(failed(category), already={category}) == EndTurn(
        "invalid_request", {"code": category.value, "detail": "it failed"}
    )


@pytest.mark.parametrize("category", Category)
def test_every_failure_is_told_in_words(category):
    """R2, R3: what the provider said stands behind what it means."""
    told = in_words(failed(category, status=400))
    assert told.endswith("it failed")
    # Our own words already: nobody else's stand behind them.
    assert (told == "it failed") is (category in {Category.SCRIPT_EXHAUSTED, Category.LIMIT})
    assert "_" not in told


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
        (413, None, "<h1>413 Request Entity Too Large</h1>", Category.TOO_LARGE),
        (413, "request_too_large", "Request exceeds the maximum size", Category.TOO_LARGE),
        (413, "rate_limit_exceeded", "Request too large on tokens per minute", Category.RATE),
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


@pytest.mark.parametrize(
    "said",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 20000 > 200000",
        "Your input exceeds the context window of this model",
        "This model's maximum context length is 8192 tokens",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        "Please reduce the length of the messages or completion",
        "Input is too long for requested model.",
        "the request exceeds the available context size",
        "prompt token count of 200000 exceeds the limit of 128000",
        "Your request exceeded model token limit: 262144 (requested: 300000)",
        "Prompt exceeds max length",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_full_context_is_recognised_in_the_words_of_each_family(said, status):
    """R5: where there is no code for it."""
    assert category_of(status, None, said) is Category.CONTEXT_TOO_LONG
    assert category_of(429, None, said) is Category.RATE
