"""Everything that can come out of the library, an SDK or the HTTP client, as one `ModelCallFailed`.

What the transport saw decides before what the SDK made of it: an error event that no SDK raised, a stream
that had begun and broke. Provider codes decide before HTTP statuses (`categories`), the library's own
classes only where neither says enough.
"""

from collections.abc import Iterator

import httpx2
from pydantic_ai import exceptions as library

from sessions_app.network import LookupFailed, NetworkRefused
from sessions_app.providers.categories import category_of
from sessions_app.providers.library.correctors import StreamError
from sessions_app.providers.library.transport import StreamStalled, Watch
from sessions_app.providers.port import Category, ModelCallFailed, Usage
from sessions_app.providers.retry_after import parse_retry_after

# What parsing code raises on an answer that is not the protocol's.
PARSING = (ValueError, TypeError, KeyError, AttributeError, IndexError, AssertionError)
# Everything else that means "this call failed".
FAILURES = (library.AgentRunError, library.UserError, httpx2.HTTPError, OSError)

_BY_CLASS: tuple[tuple[type[Exception], Category], ...] = (
    (library.ModelContextWindowExceededError, Category.CONTEXT_TOO_LONG),
    (library.ModelQuotaExceededError, Category.QUOTA),
    (library.ModelAuthenticationError, Category.AUTH),
    (library.ModelNotFoundError, Category.MODEL_NOT_FOUND),
    (library.ModelRateLimitError, Category.RATE),
    (library.ModelUnavailableError, Category.OVERLOADED),
    (library.ModelServerError, Category.SERVER),
    (library.ModelRequestRejectedError, Category.INVALID_REQUEST),
)


def failure_of(error: BaseException, watch: Watch, usage: Usage | None) -> ModelCallFailed:
    """The failure that `error` means, after what `watch` saw."""
    if watch.corrector.error is not None:
        return stream_failure(watch.corrector.error, watch, usage)
    chain = list(_chain(error))
    if any(isinstance(link, StreamStalled) for link in chain):
        return _failed("the stream went quiet", Category.TIMEOUT, watch, usage)
    refused = next((link for link in chain if isinstance(link, NetworkRefused)), None)
    if refused is not None and not isinstance(refused, LookupFailed):
        return _failed(str(refused), Category.INVALID_REQUEST, watch, usage, code=refused.code)
    if isinstance(error, library.ModelHTTPError):
        return _http_failure(error, watch, usage)
    if isinstance(error, library.UserError):
        return _failed(str(error), Category.INVALID_REQUEST, watch, usage)
    if any(isinstance(link, httpx2.TransportError | OSError) for link in chain) or (
        isinstance(error, library.ModelConnectionError)
    ):
        return _transport_failure(error, chain, watch, usage)
    if isinstance(error, library.ModelAPIError):
        category = _class_category(error) or category_of(
            None, error.provider_error_code or error.provider_error_type, str(error)
        )
        return _failed(str(error), category, watch, usage, code=error.provider_error_code)
    return incomplete_failure(watch, usage) or _failed(
        f"the answer could not be read: {error}", Category.MALFORMED, watch, usage
    )


def stream_failure(error: StreamError, watch: Watch, usage: Usage | None) -> ModelCallFailed:
    """The failure for an error reported inside a stream that began with 200 (C49, C53)."""
    category = category_of(error.status, error.code, error.message)
    if error.kind is not None and category in {Category.SERVER, Category.INVALID_REQUEST}:
        category = category_of(error.status, error.kind, error.message)
    return _failed(error.message, category, watch, usage, code=error.code or error.kind, status=error.status)


def incomplete_failure(watch: Watch, usage: Usage | None) -> ModelCallFailed | None:
    """The failure for a stream that the SDK read to its end and that was no whole reply; None if it was."""
    corrector = watch.corrector
    if corrector.error is not None:
        return stream_failure(corrector.error, watch, usage)
    if corrector.malformed is not None:
        return _failed(corrector.malformed, Category.MALFORMED, watch, usage)
    if corrector.protocol != "other" and not corrector.ended:
        return _failed("the stream ended before the reply was complete", Category.CUT, watch, usage)
    return None


def _http_failure(error: library.ModelHTTPError, watch: Watch, usage: Usage | None) -> ModelCallFailed:
    code, kind = error.provider_error_code, error.provider_error_type
    detail = _message(error.body) or str(error)
    category = category_of(error.status_code, code, detail)
    if kind is not None and category is category_of(error.status_code, None, detail):
        category = category_of(error.status_code, kind, detail)
    if category is Category.INVALID_REQUEST:
        # Providers that say in words what others say in codes; the library knows theirs.
        refined = _class_category(error)
        if refined in {Category.QUOTA, Category.AUTH}:
            category = refined
    elif isinstance(error, library.ModelQuotaExceededError):
        category = Category.QUOTA
    wait = parse_retry_after(watch.headers)
    return _failed(
        detail,
        category,
        watch,
        usage,
        code=code or kind,
        status=error.status_code,
        retry_after=error.retry_after if wait is None else wait,
        retryable=error.provider_retry_hint,
    )


def _transport_failure(
    error: BaseException, chain: list[BaseException], watch: Watch, usage: Usage | None
) -> ModelCallFailed:
    if watch.streaming:
        return _failed("the connection broke in the middle of the reply", Category.CUT, watch, usage)
    timed_out = isinstance(error, library.ModelTimeoutError) or any(
        isinstance(link, TimeoutError | httpx2.TimeoutException) for link in chain
    )
    unsent = any(
        isinstance(link, NetworkRefused | httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        for link in chain
    )
    detail = str(chain[-1]) or type(chain[-1]).__name__
    return ModelCallFailed(
        f"the provider could not be reached: {detail}",
        category=Category.TIMEOUT if timed_out else Category.CONNECTION,
        usage=usage,
        may_be_billed=not unsent,
    )


def _class_category(error: BaseException) -> Category | None:
    return next((category for kind, category in _BY_CLASS if isinstance(error, kind)), None)


def _failed(
    detail: str,
    category: Category,
    watch: Watch,
    usage: Usage | None,
    *,
    code: str | None = None,
    status: int | None = None,
    retry_after: float | None = None,
    retryable: bool | None = None,
) -> ModelCallFailed:
    return ModelCallFailed(
        detail,
        category=category,
        status=status,
        code=code,
        retry_after=retry_after,
        retryable=retryable,
        usage=usage,
        may_be_billed=watch.streaming,
        time_to_first_token=watch.time_to_first_token,
        provider_details={"body_bytes": watch.body_bytes} if category is Category.TOO_LARGE else None,
    )


def _message(body: object) -> str | None:
    """The sentence in an error body, wherever the provider put it."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    inner = error.get("message") if isinstance(error, dict) else None
    message = inner or body.get("message") or (error if isinstance(error, str) else None)
    return str(message) if message else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
