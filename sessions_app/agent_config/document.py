"""The agent config document: one immutable description of an agent, checked as a whole when it is made.

`parse` is the only way in. It expands the short forms, refuses whatever it doesn't know with the place of
every mistake, and returns frozen parts that hold the author's own texts; what is left out stays unset, so
that the canonical form (`canonical.py`) can tell it from a default. Names that only a deployment can know
(tools, secrets, machines, skills) are not checked here but in `warnings.py`.
"""

import re
from typing import Annotated, Any, Literal, Self

import rfc8785
from pydantic import Field, StrictInt, StrictStr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.json_schema import ObjectSchema
from sessions_app.agent_config.model_reference import ModelReference
from sessions_app.agent_config.permissions import Rule
from sessions_app.agent_config.script import Script
from sessions_app.agent_config.shape import InvalidConfig, Part, Problem, problems_of
from sessions_app.agent_config.tools import McpServer, Tool, ToolName
from sessions_app.agent_config.values import Count, Money, Name, PositiveDuration, Share, Text, Words
from sessions_app.text import UnstorableJson, clean_json, json_pointer

MAX_BYTES = 1 << 20
"""Of the canonical JSON."""
MAX_DEPTH = 64
SCRIPTED = "scripted"

_SAFE_INTEGER = 2**53 - 1
_SKILL = re.compile(r"(?P<name>[^@]+)(?:@(?P<version>[1-9][0-9]{0,8}))?", re.ASCII)


class Subagents(Part):
    """How far an agent may start agents of its own."""

    max_depth: Annotated[StrictInt, Field(ge=0, le=16)] | None = None
    max_children: Annotated[StrictInt, Field(ge=0, le=1000)] | None = None


class Machine(Part):
    """A machine that the agent's sessions start with."""

    machine: Name
    cwd: Words | None = None
    env: dict[Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")], Text] | None = None


class Skill(Part):
    """A package of instructions; without a version the newest when the turn starts."""

    name: Name
    version: Annotated[StrictInt, Field(ge=1, le=10**9)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        match = _SKILL.fullmatch(data)
        if match is None:
            raise PydanticCustomError("malformed", "a skill is written name or name@version, such as notes@3")
        version = match["version"]
        return {"name": match["name"]} | ({"version": int(version)} if version else {})


class Budget(Part):
    """The most that a turn or a session may use (R8)."""

    model_calls: Count | None = None
    tool_calls: Count | None = None
    tokens: Count | None = None
    cost_usd: Money | None = None
    wall_time: PositiveDuration | None = None


class Limits(Part):
    """Budgets, and whether reaching one ends the turn or asks a person to go on."""

    turn: Budget | None = None
    session: Budget | None = None
    on_limit: Literal["fail", "ask"] | None = None


class Compaction(Part):
    """At which share of the context window to compact, and which share of it to keep as it is."""

    at: Share | None = None
    keep_recent: Share | None = None

    @model_validator(mode="after")
    def _keeps_less_than_it_has(self) -> Self:
        if self.at is not None and self.keep_recent is not None and self.keep_recent >= self.at:
            raise PydanticCustomError(
                "out_of_range", "keep_recent must be below at, or nothing is ever compacted"
            )
        return self


class AgentConfigDocument(Part):
    """The document with its short forms expanded; unset parts are None."""

    version: Annotated[StrictInt, Field(ge=1, le=1)] | None = None
    instructions: Words
    model: ModelReference
    output_schema: ObjectSchema | None = None
    tools: Annotated[dict[ToolName, Tool], Field(max_length=500)] | None = None
    permissions: Annotated[list[Rule], Field(max_length=1000)] | None = None
    mcp: (
        Annotated[
            dict[Annotated[StrictStr, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,31}$")], McpServer],
            Field(max_length=50),
        ]
        | None
    ) = None
    subagents: Subagents | None = None
    machines: Annotated[list[Machine], Field(max_length=50)] | None = None
    skills: Annotated[list[Skill], Field(max_length=100)] | None = None
    limits: Limits | None = None
    compaction: Compaction | None = None
    script: Script | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        """A tool without settings (`web_fetch:` in YAML) is one with none."""
        if isinstance(data, dict) and isinstance(data.get("tools"), dict):
            tools = {name: {} if tool is None else tool for name, tool in data["tools"].items()}
            return {**data, "tools": tools}
        return data

    def canonical_form(self) -> dict[str, Any]:
        """The document as plain JSON, short forms expanded and defaults left out."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def parse(document: Any) -> AgentConfigDocument:
    """The checked document; raises `InvalidConfig` with every mistake that could be found."""
    cleaned = _storable(document)
    try:
        parsed = AgentConfigDocument.model_validate(cleaned)
    except ValidationError as error:
        raise InvalidConfig(problems_of(error)) from None
    problems = _mistakes_across_parts(parsed)
    if problems:
        raise InvalidConfig(problems)
    if len(rfc8785.dumps(parsed.canonical_form())) > MAX_BYTES:
        raise InvalidConfig([Problem(path="", code="too_large", message=f"larger than {MAX_BYTES} bytes")])
    return parsed


def _storable(document: Any) -> Any:
    if not isinstance(document, dict):
        raise InvalidConfig([Problem(path="", code="wrong_type", message="an agent config is an object")])
    try:
        cleaned = clean_json(document)
    except UnstorableJson as error:
        raise InvalidConfig([Problem(path=error.path, code=error.problem, message=error.message)]) from None
    problem = _size_problem(cleaned)
    if problem:
        raise InvalidConfig([problem])
    return cleaned


def _size_problem(document: Any) -> Problem | None:
    """Bounds that are cheap to check before anything recursive looks at the document."""
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(document, ())]
    size = 0
    while waiting:
        value, path = waiting.pop()
        size += len(value) if isinstance(value, str | dict | list) else 1
        if size > MAX_BYTES:
            return Problem(path="", code="too_large", message=f"larger than {MAX_BYTES} bytes")
        if len(path) > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep"
            return Problem(path=json_pointer(path), code="too_deep", message=message)
        if isinstance(value, int) and abs(value) > _SAFE_INTEGER:
            message = "an integer beyond 2^53, which JSON can't carry exactly"
            return Problem(path=json_pointer(path), code="out_of_range", message=message)
        if isinstance(value, dict):
            waiting.extend((item, (*path, key)) for key, item in value.items())
        elif isinstance(value, list):
            waiting.extend((item, (*path, index)) for index, item in enumerate(value))
    return None


def _mistakes_across_parts(document: AgentConfigDocument) -> list[Problem]:
    problems = []
    if document.script is not None and document.model.provider != SCRIPTED:
        message = f"only the provider {SCRIPTED} plays a script"
        problems.append(Problem(path="/script", code="not_allowed", message=message))
    for field, names in (
        ("skills", [skill.name for skill in document.skills or ()]),
        ("machines", [machine.machine for machine in document.machines or ()]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                path = json_pointer((field, index))
                problems.append(Problem(path=path, code="duplicate", message=f"{name} is named twice"))
    return problems
