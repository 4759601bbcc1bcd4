"""From a function marked with `@tool` to the tool that a model is offered.

The annotations become a pydantic model, whose JSON Schema is what the model of the agent reads. The same
pydantic model reads what was written: JSON has no dates and no enums, so a text can fit the schema and still be
no date; such arguments are refused like those that don't fit the schema, before the call is accepted (T3). A
function thus gets every value that was not refused, as the type that it asks for, and its own defaults for what
was left out.

Whatever keeps a function from being a tool is said at start, with its name and what to do.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import ModuleType
from typing import Annotated, Any, cast, get_type_hints

import docstring_parser
import jsonschema.exceptions
import structlog
from docstring_parser.common import DocstringParam
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

from sessions_app.models import Session
from sessions_app.tool_port import ToolContext
from tools_app.arguments import Validator, validator_for_schema
from tools_app.definitions import InvalidTool, ToolDefinition
from tools_app.models import ToolClass
from tools_app.results import ToolFailed
from tools_app.tool import Mark, mark_of

logger = structlog.get_logger(__name__)

_MAX_PROBLEMS = 5
# Both are given by the engine; neither is anything that a model could write.
_GIVEN = ((ToolContext, "context"), (Session, "session"))
_BY_NAME = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


@dataclass(frozen=True, kw_only=True)
class TypedTool(ToolDefinition):
    """A tool whose arguments are also held against the types of its function."""

    accepts: type[BaseModel] = field(repr=False)

    @cached_property
    def validator(self) -> Validator:
        return cast("Validator", _Validator(self.accepts, validator_for_schema(self.input_schema)))


def tools_in(module: ModuleType) -> Sequence[ToolDefinition]:
    """The tools of every marked function that the module holds, its own and imported ones."""
    return [tool_of(value) for value in vars(module).values() if mark_of(value) is not None]


@cache
def tool_of(function: Any) -> ToolDefinition:
    """The same definition each time; raises `InvalidTool`."""
    mark = mark_of(function)
    if mark is None:
        raise InvalidTool(f"{function!r} is not marked with @tool")
    name = mark.name or function.__name__
    try:
        return _Reading(function, mark, name).tool()
    except _Unusable as error:
        place = f"{function.__module__}.{function.__qualname__}"
        raise InvalidTool(f"tool {name!r} ({place}): {error}") from error.__cause__


class _Unusable(ValueError):
    """The function can't be a tool; the message says why and what to do."""


class _Reading:
    """One function, read once."""

    def __init__(self, function: Callable[..., Any], mark: Mark, name: str) -> None:
        self.function = function
        self.mark = mark
        self.name = name

    def tool(self) -> ToolDefinition:
        function = self.function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _Unusable("it yields: return the whole result instead")
        description, told = _docstring(function)
        if not description:
            raise _Unusable("the model needs a description: begin the docstring with what the tool does")
        parameters = inspect.signature(function).parameters
        unknown = sorted(set(told) - set(parameters))
        if unknown:
            raise _Unusable(f"the docstring describes {unknown[0]!r}, which is no parameter")
        given: dict[str, str] = {}
        fields: dict[str, tuple[str, inspect.Parameter]] = {}
        types: dict[str, Any] = {}
        hints = self._hints()
        for parameter in parameters.values():
            what = self._given(hints.get(parameter.name))
            if what is not None:
                given[parameter.name] = what
                continue
            inner = f"argument_{len(fields)}"  # no name of a parameter may be in the way of pydantic's own
            types[inner] = self._field(parameter, hints, told)
            fields[inner] = (parameter.name, parameter)
        accepts = self._model(types)
        return TypedTool(
            name=self.name,
            description=description,
            input_schema=self._schema(accepts, fields),
            run=_runner(function, _Binding(accepts, fields, given), internal=self._is_internal),
            tool_class=self.mark.cls,
            rerun_safe=self.mark.rerun_safe,
            time_limit=self.mark.time_limit,
            permission=self.mark.permission,
            accepts=accepts,
        )

    @property
    def _is_internal(self) -> bool:
        return self.mark.cls == ToolClass.INTERNAL

    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function, include_extras=True)
        except (NameError, TypeError, SyntaxError, AttributeError) as error:
            raise _Unusable(
                f"its annotations can't be read: {error}; use names that the module has when it is imported"
            ) from error

    def _given(self, hint: Any) -> str | None:
        """What the engine gives to a parameter of this type."""
        if hint is Session and not self._is_internal:
            raise _Unusable(
                'only internal tools get the session: use cls="internal", or context.session for its id'
            )
        return next((what for kind, what in _GIVEN if hint is kind), None)

    def _field(
        self, parameter: inspect.Parameter, hints: Mapping[str, Any], told: Mapping[str, str]
    ) -> tuple[Any, Any]:
        name = parameter.name
        if parameter.kind not in _BY_NAME:
            raise _Unusable(f"a model gives arguments by name: replace {parameter} by parameters of its own")
        if name not in hints:
            raise _Unusable(f"parameter {name!r} has no type: annotate it, such as {name}: str")
        kind = hints[name]
        ours: dict[str, Any] = {"alias": name}
        if name in told and FieldInfo.from_annotation(kind).description is None:
            ours["description"] = told[name]
        default = ... if parameter.default is parameter.empty else parameter.default
        if isinstance(default, FieldInfo):
            return Annotated[kind, default, Field(**ours)], ...
        return Annotated[kind, Field(**ours)], default

    def _model(self, types: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
        fields: dict[str, Any] = {
            inner: kind if default is ... else (kind, default) for inner, (kind, default) in types.items()
        }
        try:
            made: type[BaseModel] = create_model(
                self.name, __config__=ConfigDict(extra="forbid"), __module__=__name__, **fields
            )
        except (PydanticUserError, SchemaError, TypeError, ValueError) as error:
            raise _Unusable(f"its annotations don't make a schema: {_first_line(error)}") from error
        return made

    def _schema(
        self, accepts: type[BaseModel], fields: Mapping[str, tuple[str, inspect.Parameter]]
    ) -> dict[str, Any]:
        try:
            schema = accepts.model_json_schema(schema_generator=_JsonSchema)
        except PydanticInvalidForJsonSchema as error:
            named = [parameter.name for _, parameter in fields.values()]
            raise _Unusable(
                f"a parameter of {', '.join(named)} has a type that JSON can't hold; "
                f"use types that it can, or a pydantic model ({_first_line(error)})"
            ) from error
        return {key: value for key, value in schema.items() if key not in {"title", "description"}}


class _JsonSchema(GenerateJsonSchema):
    """Without titles, which only repeat names; a default that JSON can't hold is left out."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


@dataclass(frozen=True, slots=True)
class _Binding:
    """Which argument goes to which parameter."""

    accepts: type[BaseModel]
    fields: Mapping[str, tuple[str, inspect.Parameter]]
    given: Mapping[str, str]

    def keywords(self, arguments: Any, **given: Any) -> dict[str, Any]:
        """What to call the function with; raises `ToolFailed` for arguments that it can't take."""
        try:
            read = _read(self.accepts, arguments)
        except ValidationError as error:
            # They fit when the call was accepted; the deployment has changed since.
            told = "; ".join(str(problem) for problem in _problems(error))
            raise ToolFailed(f"The tool was not called: the arguments do not fit: {told}.") from error
        keywords = {parameter: given[what] for parameter, what in self.given.items()}
        for inner, (name, parameter) in self.fields.items():
            has_own = parameter.default is not parameter.empty and not isinstance(
                parameter.default, FieldInfo
            )
            if inner in read.model_fields_set or not has_own:
                keywords[name] = getattr(read, inner)
        return keywords


def _runner(function: Callable[..., Any], binding: _Binding, *, internal: bool) -> Callable[..., Any]:
    """`function` with the parameters that the runtime calls tools with."""
    if inspect.iscoroutinefunction(function):
        if internal:
            raise _Unusable("an internal tool works inside a transaction: write it without async")

        async def run_async(arguments: Any, context: ToolContext) -> Any:
            return await function(**binding.keywords(arguments, context=context))

        return run_async
    if internal:

        def run_internal(arguments: Any, context: ToolContext, session: Session) -> Any:
            return function(**binding.keywords(arguments, context=context, session=session))

        return run_internal

    def run(arguments: Any, context: ToolContext) -> Any:
        return function(**binding.keywords(arguments, context=context))

    return run


@dataclass(frozen=True, slots=True)
class _Validator:
    """The part of a JSON Schema validator that arguments are held against, and then the types."""

    accepts: type[BaseModel]
    schema: Validator

    def check_schema(self, schema: dict[str, Any]) -> None:
        self.schema.check_schema(schema)

    def iter_errors(self, value: Any) -> Iterator[jsonschema.exceptions.ValidationError]:
        fits = True
        for error in self.schema.iter_errors(value):
            fits = False
            yield error
        if fits:
            yield from self._of_types(value)

    def _of_types(self, value: Any) -> Iterator[jsonschema.exceptions.ValidationError]:
        try:
            _read(self.accepts, value)
        except ValidationError as error:
            yield from _problems(error)
        except Exception as error:
            # A validator of the tool's own types is foreign code, and this is no place to die of it.
            logger.warning("tool.validator_failed", tool=self.accepts.__name__, exc_info=True)
            yield jsonschema.exceptions.ValidationError(f"{type(error).__name__}: {_first_line(error)}")


def _read(accepts: type[BaseModel], arguments: Any) -> BaseModel:
    """As JSON: a list is a tuple's only form there, and nobody gets a part of the stored arguments to change."""
    return accepts.model_validate_json(json.dumps(arguments))


def _problems(error: ValidationError) -> Iterator[jsonschema.exceptions.ValidationError]:
    for detail in error.errors(include_url=False, include_input=False)[:_MAX_PROBLEMS]:
        yield jsonschema.exceptions.ValidationError(detail["msg"], path=detail["loc"])


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first paragraph on one line, and what is said of each parameter, in whatever style."""
    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    before = re.split(r"\n\s*\n", parsed.description or "", maxsplit=1)[0]
    told = {
        part.arg_name.lstrip("*"): " ".join((part.description or "").split())
        for part in parsed.meta
        if isinstance(part, DocstringParam) and part.args[0] != "attribute"
    }
    return " ".join(before.split()), told


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
