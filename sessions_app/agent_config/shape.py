"""The base of every part of an agent config, and how what is wrong with one is told.

A part refuses fields it doesn't know. A null for an optional field says the same as leaving the field out
and is treated so; that keeps the two documents one config.
"""

from typing import Any, ClassVar, TypedDict

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from sessions_app.errors import Invalid
from sessions_app.text import json_pointer


class Problem(TypedDict):
    """One thing wrong with a document; `path` is a JSON pointer into what the client sent."""

    path: str
    code: str
    message: str


class InvalidConfig(Invalid):
    """The agent config is not valid."""

    code = "invalid_config"

    def __init__(self, errors: list[Problem]) -> None:
        detail = "; ".join(f"{error['path'] or '/'}: {error['message']}" for error in errors)
        super().__init__(detail, errors=[dict[str, str](**error) for error in errors])


class Part(BaseModel):
    """One object of the document."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=False, validate_by_alias=True)

    nullable: ClassVar[frozenset[str]] = frozenset()
    """Fields in which null is a value of its own."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {
            field.alias or name for name, field in cls.model_fields.items() if not field.is_required()
        } - cls.nullable
        return {key: value for key, value in data.items() if value is not None or key not in optional}


UNKNOWN_CLASS = "unknown_class"
"""The error of a tool whose class is none of ours; pydantic reports it for the whole tool."""

# The tags of unions and the mark of a bad key are pydantic's, not places in the client's document.
_NOT_A_PLACE = frozenset({"<built-in>", "<custom>", "<http>", "<plain>", "<secret>", "[key]"})

_CODES = {
    "extra_forbidden": "unknown_field",
    "missing": "required",
    "literal_error": "not_allowed",
    "enum": "not_allowed",
    "int_parsing": "malformed",
    "float_parsing": "malformed",
    "bool_parsing": "malformed",
    "string_pattern_mismatch": "malformed",
    "dict_type": "wrong_type",
    "model_type": "wrong_type",
    "model_attributes_type": "wrong_type",
    "list_type": "wrong_type",
    "string_type": "wrong_type",
    "bool_type": "wrong_type",
    "int_type": "wrong_type",
    "int_from_float": "wrong_type",
    "float_type": "wrong_type",
    "string_too_short": "too_short",
    "string_too_long": "too_long",
    "too_short": "too_short",
    "too_long": "too_long",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "finite_number": "out_of_range",
}
_MESSAGES = {
    "extra_forbidden": "unknown field",
    "missing": "required",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "int_parsing": "must be an integer",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
}


MAX_PROBLEMS = 100
"""Nobody reads more, and an answer must not be many times as large as the request that it refuses."""


def problems_of(error: ValidationError) -> list[Problem]:
    """Pydantic's findings in our codes and paths, in the order of the document's fields; the first ones of many."""
    details = error.errors(include_url=False, include_input=False)
    problems = [_problem(detail) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        message = f"and {len(details) - MAX_PROBLEMS} more problems"
        problems.append(Problem(path="", code="too_many", message=message))
    return problems


def _problem(detail: ErrorDetails) -> Problem:
    kind = detail["type"]
    code = _CODES.get(kind, kind)
    message = _MESSAGES.get(kind, detail["msg"])
    place = [part for part in detail["loc"] if part not in _NOT_A_PLACE]
    if kind == UNKNOWN_CLASS:
        place.append("class")
    return Problem(path=json_pointer(place), code=code, message=message[:1].lower() + message[1:])
