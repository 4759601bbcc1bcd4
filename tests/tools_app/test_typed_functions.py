"""Typed functions as tools: what the model reads, what the function gets, and what is said of one that is none."""

import asyncio
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from types import FunctionType
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter

from sessions_app import ids
from sessions_app.models import Session
from sessions_app.tool_port import ToolContext
from tools_app import arguments, registry
from tools_app.definitions import InvalidTool, ToolDefinition
from tools_app.tool import ToolFailed, tool
from tools_app.typed_functions import tool_of

CONTEXT = ToolContext(ids.new_id(), ids.new_id(), 1, "tcl_token", {})


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Filter(BaseModel):
    """A filter."""

    title: str
    colours: set[Colour] = set()


# --- what the model reads --------------------------------------------------------------------------------


@tool(rerun_safe=True, time_limit=20, permission="ask")
async def ticket_status(
    number: Annotated[int, Field(ge=1)],
    context: ToolContext,
    *,
    colour: Colour = Colour.RED,
    narrow: Filter | None = None,
) -> str:
    """Look up a ticket of our tracker
    by its number.

    Only developers read on here.

    Args:
        number: The ticket's number,
            as people write it.
        context: Not for the model.
        colour: Which tracker.

    Returns:
        Its status.
    """
    return f"{number} {colour} {narrow} {context.token}"


def test_a_typed_function_is_a_tool_with_its_schema_and_description() -> None:
    """The signature and the docstring say all that a model reads."""
    made = tool_of(ticket_status)
    assert (made.name, made.tool_class, made.rerun_safe, made.time_limit, made.permission) == (
        "ticket_status",
        "outside",
        True,
        20,
        "ask",
    )
    assert made.description == "Look up a ticket of our tracker by its number."
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "number": {
                "type": "integer",
                "minimum": 1,
                "description": "The ticket's number, as people write it.",
            },
            "colour": {"$ref": "#/$defs/Colour", "default": "red", "description": "Which tracker."},
            "narrow": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}], "default": None},
        },
        "required": ["number"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"},
            "Filter": {
                "description": "A filter.",
                "properties": {
                    "title": {"type": "string"},
                    "colours": {
                        "default": [],
                        "items": {"$ref": "#/$defs/Colour"},
                        "type": "array",
                        "uniqueItems": True,
                    },
                },
                "required": ["title"],
                "title": "Filter",
                "type": "object",
            },
        },
    }


def google(a: int) -> None:
    """Do it.

    Args:
        a: The first.
    """


def sphinx(a: int) -> None:
    """Do it.

    :param a: The first.
    :return: nothing
    """


def numpy(a: int) -> None:
    """
    Do it.

    Parameters
    ----------
    a : int
        The first.
    """


@pytest.mark.parametrize("function", [google, sphinx, numpy])
def test_docstrings_are_read_in_every_usual_style(function: Callable[..., Any]) -> None:
    made = tool_of(tool(function))
    assert made.description == "Do it."
    assert made.input_schema["properties"]["a"] == {"type": "integer", "description": "The first."}


def test_what_an_annotation_says_goes_before_the_docstring() -> None:
    @tool
    def probe(a: Annotated[int, Field(description="From the annotation.")]) -> None:
        """Do it.

        Args:
            a: From the docstring.
        """

    assert tool_of(probe).input_schema["properties"]["a"]["description"] == "From the annotation."


def test_a_marked_function_stays_the_function_that_it_was() -> None:
    """So that it can be called in a test of its own."""
    assert asyncio.run(ticket_status(5, CONTEXT)) == "5 Colour.RED None tcl_token"


def test_the_name_may_be_another_than_the_functions() -> None:
    @tool(name="get_ticket")
    def probe() -> None:
        """Do it."""

    assert tool_of(probe).name == "get_ticket"


# --- what the function gets ------------------------------------------------------------------------------


def called(function: Callable[..., Any], **written: Any) -> dict[str, Any]:
    """Run the tool as the runtime does, with arguments that have been accepted."""
    made = tool_of(function)
    assert arguments.problem_with(made.validator, written) is None
    result: dict[str, Any] = made.run(written, CONTEXT)
    return result


def test_arguments_come_as_the_types_that_the_function_asks_for() -> None:
    """JSON has neither sets nor dates; the function sees none of that."""

    @tool
    def probe(narrow: Filter, since: date, pair: tuple[int, str], share: float) -> Any:
        """Do it."""
        return narrow, since, pair, share

    got = called(
        probe,
        narrow={"title": "x", "colours": ["red"]},
        since="2030-01-31",
        pair=[1, "a"],
        share=1,
    )
    assert got == (Filter(title="x", colours={Colour.RED}), date(2030, 1, 31), (1, "a"), 1.0)
    assert type(got[3]) is float


def test_what_is_left_out_is_the_functions_own_default() -> None:
    """Also where it is nothing that JSON could say."""
    marker = object()

    @tool
    def probe(
        a: Any = marker,
        b: int = Field(default=2, ge=1),
        *,
        c: Annotated[list[int], Field(default_factory=list)],
    ) -> Any:
        """Do it."""
        return a, b, c

    assert "required" not in tool_of(probe).input_schema
    got = called(probe)
    assert got[0] is marker
    assert got[1:] == (2, [])


def test_parameters_may_be_called_like_anything() -> None:
    """No name is in the way of the machinery."""

    @tool
    def probe(self: int, schema: str, model_config: str, json: str, arguments: str, _private: bool) -> Any:
        """Do it."""
        return self, schema, model_config, json, arguments, _private

    names = ["self", "schema", "model_config", "json", "arguments", "_private"]
    assert list(tool_of(probe).input_schema["properties"]) == names
    got = called(probe, self=1, schema="s", model_config="m", json="j", arguments="a", _private=True)
    assert got == (1, "s", "m", "j", "a", True)


def test_a_function_can_not_change_the_arguments_that_were_stored() -> None:
    """T7: what was approved stays what it was."""

    @tool
    def probe(values: list[Any]) -> None:
        """Do it."""
        values[0]["changed"] = True

    written = {"values": [{"changed": False}]}
    tool_of(probe).run(written, CONTEXT)
    assert written == {"values": [{"changed": False}]}


def test_the_session_and_the_context_are_given_by_type() -> None:
    """Under whatever name; the model can't write them."""
    session = Session(id=ids.new_id())

    @tool(cls="internal")
    def probe(row: Session, a: int, about: ToolContext) -> Any:
        """Do it."""
        return row, a, about

    made = tool_of(probe)
    assert list(made.input_schema["properties"]) == ["a"]
    assert made.run({"a": 1}, CONTEXT, session) == (session, 1, CONTEXT)


def in_steps(value: int) -> int:
    if value % 5:
        raise ValueError("must be a multiple of 5")
    return value


def broken(value: int) -> int:
    raise KeyError(value)


@tool
def strict(
    when: datetime | None = None,
    step: Annotated[int, AfterValidator(in_steps)] = 0,
    trap: Annotated[int, AfterValidator(broken)] = 0,
) -> datetime | None:
    """Do it."""
    return when


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"when": "yesterday"}, "at /when: Input should be a valid datetime"),
        ({"step": 3}, "at /step: Value error, must be a multiple of 5"),
        ({"trap": 1}, "KeyError"),
        ({"step": "x", "wrong": 1}, "'wrong' was unexpected"),
    ],
)
def test_arguments_that_fit_the_schema_and_not_the_types_are_refused_before_the_call(
    written: dict[str, Any], words: str
) -> None:
    """T3: in words for the model; a broken validator is no harm to the worker."""
    problem = arguments.problem_with(tool_of(strict).validator, written)
    assert problem is not None
    assert words in problem


def test_arguments_that_no_longer_fit_when_they_run_are_a_failure_of_the_call() -> None:
    """T3: the deployment has changed since the call was accepted."""
    with pytest.raises(ToolFailed, match=r"was not called: the arguments do not fit: .*valid datetime"):
        tool_of(strict).run({"when": "yesterday"}, CONTEXT)


# --- the property ----------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


class Options(TypedDict):
    deep: bool
    note: NotRequired[str]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)
WHOLE = st.integers(-(2**53), 2**53)
# An annotation, and JSON values that fit it.
PARTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, WHOLE),
    (Annotated[int, Field(ge=0, lt=10)], st.integers(0, 9)),
    (float, st.floats(allow_nan=False, allow_infinity=False) | WHOLE),
    (str, TEXT),
    (Annotated[str, Field(min_length=1, pattern="^[a-z]+$")], st.text("abc", min_size=1, max_size=3)),
    (bool, st.booleans()),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Colour, st.sampled_from(["red", "blue"])),
    (Point, st.fixed_dictionaries({"x": WHOLE}, optional={"tags": st.lists(TEXT, max_size=2)})),
    (Options, st.fixed_dictionaries({"deep": st.booleans()}, optional={"note": TEXT})),
    (Filter, st.fixed_dictionaries({"title": TEXT}, optional={"colours": st.just(["red"])})),
    (datetime, st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)),
]
NESTED = [
    *PARTS,
    *[(list[kind], st.lists(value, max_size=3)) for kind, value in PARTS],
    *[(dict[str, kind], st.dictionaries(TEXT, value, max_size=2)) for kind, value in PARTS],
    *[(kind | None, st.none() | value) for kind, value in PARTS if not isinstance(kind, str)],
]
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
_numbers = itertools.count()


def recorder(kinds: list[Any], required: list[bool]) -> tuple[ToolDefinition, dict[str, Any]]:
    """A tool with one parameter for each type, and what it was last called with."""
    got: dict[str, Any] = {}

    def record(**keywords: Any) -> None:
        """Record."""
        got.clear()
        got.update(keywords)

    names = [f"p{number}" for number in range(len(kinds))]
    record.__annotations__ = dict(zip(names, kinds, strict=True))
    record.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if needed else "left out",
                annotation=kind,
            )
            for name, kind, needed in zip(names, kinds, required, strict=True)
        ]
    )
    return tool_of(tool(name=f"record_{next(_numbers)}")(record)), got


@given(st.data())
def test_what_the_schema_accepts_the_function_gets(data: st.DataObject) -> None:
    """Whatever is written: it is refused in words, or it arrives, whole and as the types that were asked for."""
    parts = data.draw(st.lists(st.sampled_from(range(len(NESTED))), min_size=1, max_size=3))
    required = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    made, got = recorder([NESTED[part][0] for part in parts], required)
    written: dict[str, Any] = {}
    fits = True
    for number, (part, needed) in enumerate(zip(parts, required, strict=True)):
        if not needed and data.draw(st.booleans()):
            continue
        wrong = data.draw(st.integers(0, 4)) == 0
        fits = fits and not wrong
        written[f"p{number}"] = data.draw(JSON if wrong else NESTED[part][1])

    problem = arguments.problem_with(made.validator, written)
    assert not fits or problem is None  # nobody is refused who does what the schema says
    if problem is None:
        made.run(written, CONTEXT)
        wanted = {
            name: TypeAdapter(NESTED[parts[int(name[1:])]][0]).validate_python(value)
            for name, value in written.items()
        }
        assert got == wanted


# --- what is said of one that is no tool -----------------------------------------------------------------


def without_type(a) -> None:  # type: ignore[no-untyped-def]
    """Do it."""


def with_rest(*values: int) -> None:
    """Do it."""


def with_keywords(**values: int) -> None:
    """Do it."""


def without_docstring(a: int) -> None:
    pass


def misspelled(number: int) -> None:
    """Do it.

    Args:
        nummer: The number.
    """


def unknown_name(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do it."""


def no_json(a: Callable[[], int]) -> None:
    """Do it."""


def no_schema(a: "Opaque") -> None:
    """Do it."""


class Opaque:
    pass


def yields() -> Any:
    """Do it."""
    yield 1


def wants_session(session: Session) -> None:
    """Do it."""


async def is_async(session: Session) -> None:
    """Do it."""


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (without_type, {}, "parameter 'a' has no type: annotate it, such as a: str"),
        (with_rest, {}, r"replace \*values: int by parameters of its own"),
        (with_keywords, {}, r"replace \*\*values: int by parameters of its own"),
        (without_docstring, {}, "begin the docstring with what the tool does"),
        (misspelled, {}, "the docstring describes 'nummer', which is no parameter"),
        (unknown_name, {}, "annotations can't be read: name 'Nowhere' is not defined"),
        (no_json, {}, "has a type that JSON can't hold"),
        (no_schema, {}, "annotations don't make a schema"),
        (yields, {}, "it yields: return the whole result instead"),
        (wants_session, {}, "only internal tools get the session"),
        (is_async, {"cls": "internal"}, "write it without async"),
        (google, {"name": "bad name"}, "a name starts with a letter"),
        (google, {"cls": "psychic"}, "internal or outside, not psychic"),
        (google, {"cls": "internal", "rerun_safe": True}, "for outside tools"),
        (google, {"time_limit": 0}, "more than 0 seconds"),
        (google, {"permission": "perhaps"}, "allow, ask or deny, not perhaps"),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused_by_name(
    function: Callable[..., Any], options: dict[str, Any], words: str
) -> None:
    """At start, with what to do."""
    copied = FunctionType(function.__code__, function.__globals__, function.__name__)
    copied.__annotations__ = dict(function.__annotations__)
    copied.__doc__ = function.__doc__
    with pytest.raises(InvalidTool, match=words) as refused:
        registry.register_tool(tool_of(tool(**options)(copied)))
    assert f"tool {options.get('name', function.__name__)!r}" in str(refused.value)


@pytest.mark.parametrize("value", [Opaque, len, staticmethod(google), Opaque()])
def test_only_functions_can_be_marked(value: Any) -> None:
    with pytest.raises(InvalidTool, match="@tool goes on a plain or async function"):
        tool(value)


def test_a_function_that_nobody_marked_is_no_tool() -> None:
    with pytest.raises(InvalidTool, match="not marked with @tool"):
        tool_of(with_rest)
