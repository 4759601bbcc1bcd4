"""What clients send about tool calls: bodies and query parameters."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.values import seconds
from sessions_app.api.fields import ActorRef, Body, SessionRef
from sessions_app.api.pagination import PageQuery
from tools_app.models import ToolCallState, ToolClass

MAX_LEASE = 86400.0
MAX_CLAIMED = 100
MAX_NAMES = 100

_BLOCK = {"type": "object", "properties": {"type": {"enum": ["text", "media", "data"]}}, "required": ["type"]}
Content = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _BLOCK}]}),
    Field(
        description="a text, or a list of blocks, perhaps empty: text, media (artifact, or data and media_type), data"
    ),
]


def _seconds(value: Any) -> Any:
    """Numbers are seconds; a duration such as "30s" is one as well."""
    if isinstance(value, str):
        try:
            return seconds(value)
        except ValueError:
            raise PydanticCustomError(
                "malformed", "must be a number of seconds, or a duration such as 30s"
            ) from None
    return value


def _between(least: float, longest: Callable[[], float]) -> Callable[[float], float]:
    def check(value: float) -> float:
        if not least <= value <= longest():  # also refuses NaN
            limits = {"least": f"{least:g}", "longest": f"{longest():g}"}
            raise PydanticCustomError("out_of_range", "must be {least} to {longest} seconds", limits)
        return value

    return check


_NUMBER_OR_DURATION = {"anyOf": [{"type": "number"}, {"type": "string", "examples": ["30s"]}]}
Lease = Annotated[
    float,
    BeforeValidator(_seconds),
    AfterValidator(_between(1, lambda: MAX_LEASE)),
    WithJsonSchema(_NUMBER_OR_DURATION),
    Field(description="seconds, or a duration; at most a day"),
]
Wait = Annotated[
    float,
    BeforeValidator(_seconds),
    AfterValidator(_between(0, lambda: settings.TENURE.wait_max)),
    WithJsonSchema(_NUMBER_OR_DURATION),
    Field(description="seconds, or a duration; at most `TENURE_WAIT_MAX` of the deployment (60 by default)"),
]
Token = Annotated[StrictStr, Field(min_length=1, max_length=200, description="of the claim")]


class SubmitResult(Body):
    """The result of a custom call. The model reads `content` either way; `failed` says that it did not work."""

    outcome: Literal["succeeded", "failed"]
    content: Content
    actor: ActorRef | None = None


class ClaimCalls(Body):
    """Take up to `limit` waiting custom calls, of the tools in `names` only where given, the oldest first.

    With `wait` the answer comes as soon as there is one, at the latest after that time, then with none.
    """

    names: (
        Annotated[
            list[Annotated[StrictStr, Field(min_length=1, max_length=200)]],
            Field(min_length=1, max_length=MAX_NAMES),
        ]
        | None
    ) = None
    limit: Annotated[StrictInt, Field(ge=1, le=MAX_CLAIMED)]
    lease_seconds: Lease
    wait: Wait = 0


class ExtendClaim(Body):
    """Count the claim for `lease_seconds` from now on."""

    token: Token
    lease_seconds: Lease


class ReleaseClaim(Body):
    token: Token


class ReportProgress(Body):
    """How far the work is, for the session's log; the model does not read it."""

    token: Token
    content: Content


class ToolCallsQuery(PageQuery):
    state: Annotated[ToolCallState, Field(description="only these")] | None = None
    class_: ToolClass | None = Field(None, alias="class", description="only these")
    name: Annotated[str, Field(max_length=200, description="of the tool")] | None = None
    session: SessionRef | None = Field(None, description="only its calls")
    claimed: (
        Annotated[bool, Field(description="only those that somebody is at right now, or only others")] | None
    ) = None
