"""The script of the scripted provider: what a deterministic agent answers, reply by reply."""

from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.shape import Part
from sessions_app.agent_config.values import Text, Words, seconds


def _check_wait(value: Any) -> Any:
    """Seconds as a number, or a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("wrong_type", "a number of seconds or a duration, such as 500ms, 2s, 1m")
    try:
        length = seconds(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PydanticCustomError("malformed", "{reason}", {"reason": str(error)}) from None
    if not 0 <= length <= 86400:
        raise PydanticCustomError("out_of_range", "between nothing and a day")
    return value


def _check_retry_after(value: Any) -> Any:
    # Any text: a script may well play a provider that sends junk.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("wrong_type", "a number of seconds, or the text of a Retry-After header")
    return value


Wait = Annotated[Any, AfterValidator(_check_wait)]


class ScriptedCall(Part):
    """A tool call; without an `id` it gets one that is the same each time the script is played."""

    name: Words
    arguments: dict[StrictStr, Any] | None = None
    id: Words | None = None


class ScriptedError(Part):
    """The call fails with this HTTP status."""

    status: Annotated[StrictInt, Field(ge=400, le=599)]
    retry_after: Annotated[Any, BeforeValidator(_check_retry_after)] = None
    code: Words | None = None
    message: Text | None = None


class When(Part):
    """The reply is passed over unless the last message's text holds this."""

    contains: Text


class ScriptedReply(Part):
    """One step of the script."""

    text: Text | None = None
    reasoning: Text | None = None
    tool_calls: list[ScriptedCall] | None = None
    delay: Wait = None
    tokens_per_second: Annotated[StrictFloat, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    error: ScriptedError | None = None
    cut: StrictBool | None = None
    when: When | None = None

    @model_validator(mode="after")
    def _an_error_says_nothing_else(self) -> Self:
        if self.error and (self.text or self.reasoning or self.tool_calls or self.cut):
            raise PydanticCustomError("not_allowed", "a reply with an error has no content and is not cut")
        return self


class Script(Part):
    """Replies in order; with `loop` from the start again after the last."""

    replies: Annotated[list[ScriptedReply], Field(max_length=10_000)]
    loop: StrictBool = False
