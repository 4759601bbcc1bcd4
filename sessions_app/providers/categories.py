"""From an HTTP status and a provider's error code to a failure category.

One table for every provider, and for the scripted one. Codes decide before statuses, and free text decides
nothing except for a full context, which several servers report in words only.
"""

import re

from sessions_app.providers.port import Category

# Exact machine codes (error.code or error.type). Only these make a 429 final: text alone never does (C48).
_BY_CODE = {
    "insufficient_quota": Category.QUOTA,
    "billing_error": Category.QUOTA,
    "billing_hard_limit_reached": Category.QUOTA,
    "billing_not_active": Category.QUOTA,
    "context_length_exceeded": Category.CONTEXT_TOO_LONG,
    "model_not_found": Category.MODEL_NOT_FOUND,
    "invalid_api_key": Category.AUTH,
    "authentication_error": Category.AUTH,
    "permission_error": Category.AUTH,
    "overloaded_error": Category.OVERLOADED,
    "server_is_overloaded": Category.OVERLOADED,
    "slow_down": Category.OVERLOADED,
    "rate_limit_error": Category.RATE,
    "rate_limit_exceeded": Category.RATE,
    "timeout_error": Category.TIMEOUT,
    "server_error": Category.SERVER,
    "api_error": Category.SERVER,
    "internal_error": Category.SERVER,
    "request_too_large": Category.TOO_LARGE,
    "not_found_error": Category.MODEL_NOT_FOUND,
    "invalid_request_error": Category.INVALID_REQUEST,
    "string_above_max_length": Category.INVALID_REQUEST,
    "invalid_prompt": Category.INVALID_REQUEST,
    "image_parse_error": Category.INVALID_REQUEST,
}

_BY_STATUS = {
    401: Category.AUTH,
    402: Category.QUOTA,
    403: Category.AUTH,
    404: Category.MODEL_NOT_FOUND,
    408: Category.TIMEOUT,
    409: Category.SERVER,  # a lock at the provider; its own SDKs retry it
    413: Category.TOO_LARGE,
    425: Category.SERVER,
    429: Category.RATE,
    503: Category.OVERLOADED,
    504: Category.TIMEOUT,
    529: Category.OVERLOADED,
}

# Said in words by Anthropic, Google and many compatible servers, in a 400 or 413 without a code of its own.
_CONTEXT_WORDS = re.compile(
    r"(?:prompt|input) is too long|maximum (?:context|prompt) length|context window|context[ _]length|context limit|"
    r"exceeds? the (?:maximum|available) (?:number of tokens|context)|input token count|"
    r"exceed(?:s|ed)? (?:the )?(?:model'?s )?max(?:imum)? (?:input|prompt|context)|"
    r"token count of \d+ exceeds|exceeded model token limit|prompt exceeds max length|"
    r"reduce the length of the messages|too many (?:input )?tokens",
    re.IGNORECASE,
)
# What also says "too long" and is about one field, not about the context (C58).
_FIELD_WORDS = re.compile(r"string too long|maximum length \d+, got", re.IGNORECASE)


def category_of(status: int | None, code: str | None = None, detail: str = "") -> Category:
    """The category of an error response, or of an error event inside a stream (then without a status)."""
    known = _BY_CODE.get(code or "")
    if known is not None and known is not Category.INVALID_REQUEST:
        return known
    in_request = status in {400, 413, 422} or known is Category.INVALID_REQUEST
    if in_request and _CONTEXT_WORDS.search(detail) and not _FIELD_WORDS.search(detail):
        return Category.CONTEXT_TOO_LONG
    if known is not None and status is None:
        return known
    if status is None:
        return Category.SERVER
    by_status = _BY_STATUS.get(status)
    if by_status is not None:
        return by_status
    return Category.INVALID_REQUEST if 400 <= status < 500 else Category.SERVER
