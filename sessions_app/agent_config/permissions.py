"""Permission rules of an agent config: the first rule that matches a call decides; then its class default."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.patterns import InvalidPattern, compile_pattern
from sessions_app.agent_config.shape import Part
from sessions_app.agent_config.values import PositiveDuration, Words

_HOST = re.compile(
    r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)


def _check_pattern(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except InvalidPattern as error:
        raise PydanticCustomError(
            "invalid_pattern", "not a regular expression in RE2 syntax: {reason}", {"reason": str(error)}
        ) from None
    return pattern


def _check_host(host: str) -> str:
    if not _HOST.fullmatch(host) and not re.fullmatch(r"[0-9a-f:]*:[0-9a-f:.]*", host, re.ASCII):
        raise PydanticCustomError(
            "malformed", "a host is a lower-case name or address, or *. and a name for all names below it"
        )
    return host


def _check_path(path: str) -> str:
    if ".." in path.split("/"):
        raise PydanticCustomError("malformed", "the path of a rule must not go up by ..")
    return path


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_FEW = Field(min_length=1, max_length=200)
_ONE_OR_MORE = BeforeValidator(_as_list)  # a single text may stand without the list around it

Prefixes = Annotated[list[Words], _FEW, _ONE_OR_MORE]
Paths = Annotated[list[Annotated[Words, AfterValidator(_check_path)]], _FEW, _ONE_OR_MORE]
Hosts = Annotated[list[Annotated[StrictStr, AfterValidator(_check_host)]], _FEW, _ONE_OR_MORE]


class Matcher(Part):
    """What a JSON value must be like; where several conditions are given, all must hold."""

    nullable: ClassVar[frozenset[str]] = frozenset({"equals"})

    equals: Any = None
    in_: Annotated[list[Any], _FEW] | None = Field(default=None, alias="in")
    starts_with: Prefixes | None = None
    under: Paths | None = None
    host: Hosts | None = None
    matches: Annotated[Words, AfterValidator(_check_pattern)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError(
                "required", "a matcher needs one of equals, in, starts_with, under, host, matches"
            )
        return self


class Annotations(Part):
    """What an MCP server says of its tool."""

    read_only: StrictBool | None = None
    destructive: StrictBool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("required", "annotations need one of read_only, destructive")
        return self


class Rule(Part):
    """`tool` is a name in which `*` stands for any characters; all conditions must hold."""

    tool: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_*-]{1,128}$")]
    annotations: Annotations | None = None
    arguments: dict[Words, Matcher] | None = None
    then: Literal["allow", "ask", "deny"]
    expires_after: PositiveDuration | None = None
    on_expiry: Literal["deny"] | None = None

    @model_validator(mode="after")
    def _only_what_asks_expires(self) -> Self:
        if self.then != "ask" and (self.expires_after or self.on_expiry):
            raise PydanticCustomError("not_allowed", "only a rule that asks can expire")
        if self.on_expiry and not self.expires_after:
            raise PydanticCustomError("required", "on_expiry needs expires_after")
        return self
