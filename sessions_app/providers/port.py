"""The port between the engine and model providers: one request in, one reply or one failure out.

A provider streams one reply for a list of messages. It keeps nothing, retries nothing and decides nothing:
retries are durable and belong to the engine (`sessions_app.engine.retry`), so a provider must turn everything
that is not a whole reply into `ModelCallFailed` with a category. That includes what SDKs let pass as success:
a stream without its protocol's end event, an error event inside a 200 stream, a reply without content.

This module imports nothing heavy. Provider SDKs are imported by the adapters, on first use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from sessions_app.text import clean_text, cut_head_tail

DETAIL_LIMIT = 2000  # characters of a failure's detail; some servers answer with a whole page


class Stop(StrEnum):
    """Why a reply ended, over all providers."""

    DONE = "done"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"  # the output limit; unfinished calls are not run
    FILTERED = "filtered"  # a content filter or a refusal; its calls are not run
    PAUSED = "paused"  # the provider wants the same content sent back to go on
    UNKNOWN = "unknown"  # a reason this code does not know: never taken for success


class Category(StrEnum):
    """What kind of failure a model call met. `sessions_app.engine.retry` says what follows from each."""

    RATE = "rate"
    OVERLOADED = "overloaded"
    SERVER = "server"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    CUT = "cut"  # the stream ended before the protocol's end event or finish reason
    EMPTY = "empty"  # a whole reply that holds nothing
    MALFORMED = "malformed"  # an answer that is not the protocol's
    AUTH = "auth"
    QUOTA = "quota"  # billing, or a quota that is used up
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    TOO_LARGE = "too_large"  # 413: the body, not the context
    CONTEXT_TOO_LONG = "context_too_long"
    REPLAY_REFUSED = "replay_refused"  # reasoning of its own that the provider can no longer read
    PREPARATION = "preparation"  # nothing was sent: something that the request needs could not be read
    SCRIPT_EXHAUSTED = "script_exhausted"
    LIMIT = "limit"  # our own: the time that the turn may take was over


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `input_schema` is a JSON Schema of an object."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything one model call needs.

    `messages` are the message dicts of resume.md, repaired but not yet `to_request`ed: the adapter maps them
    for its own protocol. Media blocks in them hold their bytes (`data` base64 and `media_type`). `script` and
    `script_position` are read by the scripted provider only. A stream without an event for `quiet_limit`
    seconds has failed. `body_budget` is the largest body, bytes, where the provider has refused a larger one;
    `cache_key` is the same for all requests that share a beginning. `watched_as` is the session whose followers may
    see the reply on its way; None where nobody may.
    """

    provider: str
    model: str
    base_url: str | None
    api_key: str | None
    settings: Mapping[str, Any]
    instructions: str
    messages: Sequence[dict[str, Any]]
    tools: Sequence[ToolSpec]
    output_schema: dict[str, Any] | None
    call_id: str
    script: dict[str, Any] | None = None
    script_position: int = 0
    allowed_networks: Sequence[str] = ()
    quiet_limit: float = 60.0
    body_budget: int | None = None
    cache_key: str | None = None
    watched_as: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one attempt. `input_tokens` includes the cached ones, `output_tokens` the reasoning ones.

    `cached_tokens` were read from the provider's cache; `cache_write_tokens`, put into it, only matter for the
    price.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole reply. Everything in it can be stored (S8).

    `content` is a list of entry blocks: `{type: text, text}`, `{type: reasoning, text, provider, signature?,
    details?}`, `{type: tool_call, id, name, arguments, arguments_raw?, details?}`; `arguments_raw` only where
    the model's arguments are no JSON object (`arguments` is `{}` then), `details` are provider data that has
    to go back unchanged. Stop `length` or `filtered` may come with calls: the engine must not run them.
    `time_to_first_token` is in seconds from the sending.
    """

    content: list[dict[str, Any]]
    stop: Stop
    raw_stop: str | None
    usage: Usage
    time_to_first_token: float | None = None
    provider_details: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply on its way. `block` is the index the block will have in `Reply.content`."""

    block: int
    kind: Literal["text", "reasoning", "arguments"]
    text: str


OnDelta = Callable[[Delta], None]


class ModelCallFailed(Exception):
    """The model call failed.

    `code` is the provider's machine-readable code where it gave one, `detail` a sentence for people,
    `retry_after` seconds the provider asked to wait (every header form already parsed), `retryable` the
    provider's explicit word where it gave one (`x-should-retry`), `may_be_billed` whether the provider may
    have charged for what it had produced.
    """

    def __init__(
        self,
        detail: str,
        *,
        category: Category,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
        usage: Usage | None = None,
        may_be_billed: bool = False,
        time_to_first_token: float | None = None,
        provider_details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail, _ = cut_head_tail(clean_text(detail), DETAIL_LIMIT)
        self.category = category
        self.status = status
        self.code = None if code is None else clean_text(code)[:100]
        self.retry_after = retry_after
        self.retryable = retryable
        self.usage = usage
        self.may_be_billed = may_be_billed
        self.time_to_first_token = time_to_first_token
        self.provider_details = provider_details or {}


@runtime_checkable
class Provider(Protocol):
    """Streams one reply."""

    async def reply(self, request: ModelRequest, on_delta: OnDelta | None = None) -> Reply:
        """Return the whole reply, or raise `ModelCallFailed`. Deltas are a preview and may be dropped.

        Cancelling the task aborts the request.
        """
        ...
