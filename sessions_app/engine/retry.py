"""What follows from a failed model call. One place, pure.

Another try at a time (R2, R4), the same question at once with less in the request (a body that is too large,
reasoning that its provider can no longer read), compaction (R5), or the end of the turn (R3). What is asked
again with less is asked once: the same refusal at the same place of the log ends the turn.

The retry time is durable (`retry_scheduled`, `backing_off`), so nothing here sleeps. Delays double from 1 s
to 60 s, less up to a quarter of jitter that depends on the call alone: the same failure read twice gives the
same time, and many sessions that failed together come back apart. Retry-After is a floor, never a suggestion.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sessions_app.providers.port import Category, ModelCallFailed

LONGEST_RETRY_AFTER = 24 * 3600.0  # a longer wait is for people to decide about
_JITTER = 0.25  # of the delay, taken off
_SPREAD = 0.05  # of Retry-After, put on, so that the waiters do not return in one instant
_LONGEST_SPREAD = 5.0

# The turn's reason for each category that no retry can help (R3). All other categories are retried (R2, R4),
# unless the request can be made smaller first.
_FINAL: dict[Category, str] = {
    Category.AUTH: "auth",
    Category.QUOTA: "quota",
    Category.MODEL_NOT_FOUND: "model_not_found",
    Category.INVALID_REQUEST: "invalid_request",
    Category.TOO_LARGE: "invalid_request",
    Category.SCRIPT_EXHAUSTED: "invalid_request",
    Category.LIMIT: "limit",
    Category.REPLAY_REFUSED: "invalid_request",
}
_ASKED_AGAIN_WITH_LESS = frozenset({Category.TOO_LARGE, Category.REPLAY_REFUSED})
_NOT_THE_PROVIDERS_TO_SAY = frozenset(
    {Category.SCRIPT_EXHAUSTED, Category.LIMIT, Category.REPLAY_REFUSED, Category.TOO_LARGE}
)

# What happened, for people; what the provider or the runtime said in particular follows.
_WORDS = {
    Category.RATE: "The provider limits how often it may be asked",
    Category.OVERLOADED: "The provider is overloaded",
    Category.SERVER: "The provider had an error of its own",
    Category.TIMEOUT: "The provider took too long",
    Category.CONNECTION: "The connection to the provider failed",
    Category.CUT: "The reply broke off",
    Category.EMPTY: "The provider answered with nothing",
    Category.MALFORMED: "The provider's answer could not be read",
    Category.AUTH: "The provider does not accept the credential",
    Category.QUOTA: "The provider wants to be paid, or the quota is used up",
    Category.MODEL_NOT_FOUND: "The provider does not know the model",
    Category.INVALID_REQUEST: "The provider does not accept the request",
    Category.TOO_LARGE: "The request is larger than the provider takes",
    Category.CONTEXT_TOO_LONG: "The conversation is longer than the model can read",
    Category.REPLAY_REFUSED: "The provider can no longer read its own earlier reasoning",
    Category.PREPARATION: "The request could not be prepared",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and how soon (R2): at most `limit` retries, after `first` seconds doubling to `longest`."""

    limit: int = 8
    first: float = 1.0
    longest: float = 60.0


STANDARD = Policy()


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again in `seconds`; `retry` is the number of that retry, from 1."""

    seconds: float
    retry: int
    category: Category


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask again at once, with what `category` says left out or made smaller. No retry is used up."""

    category: Category


@dataclass(frozen=True, slots=True)
class Compact:
    """Make the conversation shorter, then ask again."""


@dataclass(frozen=True, slots=True)
class EndTurn:
    """End the turn as failed. `reason` is one of the turn's reasons, `error` its `{code, detail}`."""

    reason: str
    error: dict[str, str]


type Verdict = RetryAfter | AskAgain | Compact | EndTurn


def classify(
    failure: ModelCallFailed,
    *,
    failures_so_far: int,
    call_id: str,
    policy: Policy = STANDARD,
    already: Collection[Category] = (),
    now: datetime | None = None,
) -> Verdict:
    """Decide about `failure`, of the call `call_id`, after `failures_so_far` earlier ones of the same budget.

    Crashes and planned stops are not failures and are not counted by the caller. `already` are the refusals
    after which less was asked since the log last grew by more than failures, and those after which there is
    nothing left to take out. `now` only words the time in the error of a Retry-After that is too long.
    """
    if failure.category is Category.CONTEXT_TOO_LONG:
        return Compact()
    if failure.category in _ASKED_AGAIN_WITH_LESS and failure.category not in already:
        return AskAgain(failure.category)
    final = _FINAL.get(failure.category)
    if failure.retryable is not None and failure.category not in _NOT_THE_PROVIDERS_TO_SAY:
        # The provider's explicit word outranks our table, in both directions.
        final = None if failure.retryable else (final or "invalid_request")
    if final is not None:
        return EndTurn(reason=final, error=error_of(failure))
    asked = failure.retry_after
    if asked is not None and asked > LONGEST_RETRY_AFTER:
        until = (now or datetime.now(UTC)) + timedelta(seconds=min(asked, 10 * 365 * 86400.0))
        return EndTurn(
            reason="retry_too_late",
            error=error_of(failure, f" (the provider says to come back at {until:%Y-%m-%dT%H:%M:%SZ})"),
        )
    if failures_so_far >= policy.limit:
        said = "" if asked is None else f", the last one asking to wait {asked:g} s"
        return EndTurn(
            reason="retries_exhausted",
            error=error_of(failure, f" (failed {failures_so_far + 1} times{said})"),
        )
    return RetryAfter(
        seconds=delay(failures_so_far=failures_so_far, call_id=call_id, retry_after=asked, policy=policy),
        retry=failures_so_far + 1,
        category=failure.category,
    )


def delay(
    *, failures_so_far: int, call_id: str, retry_after: float | None = None, policy: Policy = STANDARD
) -> float:
    """Seconds until the next try."""
    share = _share(call_id, failures_so_far)
    base = min(policy.longest, policy.first * 2.0 ** min(failures_so_far, 16))
    own = base * (1 - _JITTER * share)
    if retry_after is None:
        return own
    return max(own, retry_after + share * min(_LONGEST_SPREAD, _SPREAD * retry_after))


def _share(call_id: str, failures_so_far: int) -> float:
    """A number in [0, 1) that only the call and its try decide."""
    digest = hashlib.blake2b(f"{call_id}:{failures_so_far}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def in_words(failure: ModelCallFailed) -> str:
    """What happened, as the session's history tells it."""
    said = _WORDS.get(failure.category)
    if said is None or (failure.status is None and failure.category in _FINAL):
        return failure.detail  # our own judgement, in our own words
    return f"{said}: {failure.detail}" if failure.detail else f"{said}."


def error_of(failure: ModelCallFailed, more: str = "") -> dict[str, str]:
    """The `{code, detail}` of a turn that ends with this failure."""
    return {"code": failure.code or failure.category.value, "detail": in_words(failure) + more}
