"""The tools of an agent config: built-in ones by name, the team's own by class.

Without a `class` a name means a tool of this deployment, with the few settings that all of those take.
`class: custom` waits for the team's backend to post the result; `class: outside` is an HTTP call that Tenure
makes itself.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, StrictBool, StrictStr, Tag, model_validator
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.json_schema import ObjectSchema
from sessions_app.agent_config.shape import UNKNOWN_CLASS, Part
from sessions_app.agent_config.values import Name, PositiveDuration, Text, Url, Words, check_url

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
# What the transport sets itself, or what would let a config speak for somebody else.
_RESERVED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "idempotency-key",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def placeholders(url: str) -> list[str]:
    """The argument names that a URL template takes, in order."""
    return _PLACEHOLDER.findall(url)


def _check_url_template(template: str) -> str:
    if "{" in _PLACEHOLDER.sub("", template) or "}" in _PLACEHOLDER.sub("", template):
        raise PydanticCustomError("malformed", "braces hold the name of an argument, such as {sku}")
    scheme, _, rest = template.partition("://")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    if _PLACEHOLDER.search(scheme) or _PLACEHOLDER.search(authority):
        raise PydanticCustomError(
            "malformed", "arguments stand in the path and query only, never in the host"
        )
    check_url(_PLACEHOLDER.sub("x", template))
    return template


def _check_header_value(value: str) -> str:
    if not _HEADER_VALUE.fullmatch(value):
        raise PydanticCustomError("malformed", "a header holds visible ASCII characters only")
    return value


def _check_header_name(name: str) -> str:
    if name.lower() in _RESERVED_HEADERS:
        raise PydanticCustomError("not_allowed", "this header is set by Tenure")
    return name


def _check_tool_name(name: str) -> str:
    if name.startswith("mcp__"):
        raise PydanticCustomError("not_allowed", "names that start with mcp__ belong to MCP servers")
    return name


class SecretHeader(Part):
    """A header whose value is a secret."""

    secret: Name


class Auth(Part):
    """How a request proves who it is from: `Authorization: Bearer` with the value of a secret."""

    bearer: Name


def _header_tag(value: Any) -> str:
    return "<plain>" if isinstance(value, str) else "<secret>"


Headers = dict[
    Annotated[
        StrictStr,
        Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"),
        AfterValidator(_check_header_name),
    ],
    Annotated[
        Annotated[Text, AfterValidator(_check_header_value), Tag("<plain>")]
        | Annotated[SecretHeader, Tag("<secret>")],
        Discriminator(_header_tag),
    ],
]


class BuiltInTool(Part):
    """A tool of this deployment; `{}` takes its defaults."""

    time_limit: PositiveDuration | None = None


class CustomTool(Part):
    """A call waits in the database until the team's backend posts its result (T6)."""

    class_: Literal["custom"] = Field(alias="class")
    description: Words
    input_schema: ObjectSchema
    deadline: PositiveDuration | None = None
    on_deadline: Literal["fail", "keep_waiting"] | None = None

    @model_validator(mode="after")
    def _what_happens_needs_a_deadline(self) -> Self:
        if self.on_deadline and not self.deadline:
            raise PydanticCustomError("required", "on_deadline needs a deadline")
        return self


class HttpTool(Part):
    """An HTTP call: arguments named in the URL go there, the others into the query or the JSON body."""

    class_: Literal["outside"] = Field(alias="class")
    description: Words | None = None
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    url: Annotated[StrictStr, AfterValidator(_check_url_template)]
    headers: Headers | None = None
    auth: Auth | None = None
    input_schema: ObjectSchema | None = None
    rerun_safe: StrictBool = False
    time_limit: PositiveDuration | None = None

    @model_validator(mode="after")
    def _the_schema_knows_the_arguments_of_the_url(self) -> Self:
        if self.input_schema is not None:
            known = self.input_schema.get("properties", {})
            missing = [name for name in placeholders(self.url) if name not in known]
            if missing:
                raise PydanticCustomError(
                    "required", "the url takes {name}, which input_schema does not have", {"name": missing[0]}
                )
        return self


_TAGS = {"custom": "<custom>", "outside": "<http>"}


def _tool_tag(value: Any) -> str | None:
    if isinstance(value, CustomTool):
        return "<custom>"
    if isinstance(value, HttpTool):
        return "<http>"
    if not isinstance(value, dict) or value.get("class") is None:
        return "<built-in>"
    kind = value["class"]
    return _TAGS.get(kind) if isinstance(kind, str) else None


Tool = Annotated[
    Annotated[BuiltInTool, Tag("<built-in>")]
    | Annotated[CustomTool, Tag("<custom>")]
    | Annotated[HttpTool, Tag("<http>")],
    Discriminator(
        _tool_tag,
        custom_error_type=UNKNOWN_CLASS,
        custom_error_message="class is custom or outside; a built-in tool has none",
    ),
]
ToolName = Annotated[
    StrictStr, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"), AfterValidator(_check_tool_name)
]


class McpAuth(Part):
    """How an MCP server is told whose requests these are: a token in a secret, or an OAuth token in one.

    The secret of `oauth` holds a JSON object; where it says how, Tenure renews the token and stores the new one.
    """

    bearer: Name | None = None
    oauth: Name | None = None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if (self.bearer is None) == (self.oauth is None):
            raise PydanticCustomError("required", "auth needs either bearer or oauth")
        return self


_OF_PROGRAMS = ("command", "args", "env", "cwd")


class McpServer(Part):
    """An MCP server over HTTP; its tools are called `mcp__<server>__<tool>`, all of them unless some are named."""

    url: Url
    auth: McpAuth | None = None
    headers: Headers | None = None
    tools: list[Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_./-]{1,128}$")]] | None = None
    time_limit: PositiveDuration | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_no_program(cls, data: Any) -> Any:
        if isinstance(data, dict):
            told = str(data.get("type") or data.get("transport") or "").lower()
            if told == "stdio" or ("url" not in data and any(name in data for name in _OF_PROGRAMS)):
                raise PydanticCustomError(
                    "not_allowed",
                    "a server that is started as a program (stdio) is not supported; give the url of one that "
                    "speaks streamable HTTP",
                )
        return data
