"""What clients send about sessions: bodies and query parameters."""

from typing import Annotated, Any, ClassVar, Literal

from django.conf import settings
from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.document import Limits
from sessions_app.api.fields import ActorRef, Body, ConfigRef, InputRef, Labels, Moment, Query, SessionRef
from sessions_app.api.pagination import MAX_SEQ, PageQuery, SeqQuery
from sessions_app.errors import Invalid
from sessions_app.history.shape import MAX_MESSAGES
from sessions_app.inputs import Place
from sessions_app.models import InputState, SessionStatus, TurnReason

SessionName = Annotated[StrictStr, Field(max_length=200)]
Priority = Annotated[StrictInt, Field(ge=-100, le=100, description="lower goes first")]
Metadata = dict[StrictStr, Any]

_BLOCK = {"type": "object", "properties": {"type": {"enum": ["text", "media", "data"]}}, "required": ["type"]}
Content = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _BLOCK, "minItems": 1}]}),
    Field(description="a text, or a list of blocks: text, media (artifact, or data and media_type), data"),
]


class SubmitInput(Body):
    """Something to say. `queued` starts the next turn, `steering` joins the current one."""

    content: Content
    delivery: Literal["queued", "steering"] = "queued"
    cancel_open: Annotated[
        bool, Field(description="with steering only: close the questions and approvals that are open now")
    ] = False
    actor: ActorRef | None = None


class ImportHistory(Body):
    """A transcript from elsewhere, to go on from."""

    format: Literal["tenure", "openai", "anthropic"]
    messages: Annotated[
        Any,
        WithJsonSchema(
            {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": MAX_MESSAGES}
        ),
        Field(
            description="tenure: as an export in the format `messages` gives them; openai: messages of Chat "
            "Completions or input items of Responses; anthropic: messages of the Messages API"
        ),
    ]


class ForkSession(Body):
    """Where to branch off: behind the entry `at_seq` of a session, its newest one unless said."""

    session: SessionRef
    at_seq: Annotated[StrictInt, Field(ge=1, le=MAX_SEQ)] | None = None


class StartSession(Body):
    """Exactly one of `profile` (id or name) and `config`; `input` is the body of a first input.

    A fork without either runs as the session that it is forked from does now.
    """

    profile: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = None
    config: ConfigRef | None = None
    name: SessionName = ""
    labels: Labels = {}
    metadata: Metadata = {}
    priority: Priority = 0
    input: SubmitInput | None = None
    history: Annotated[ImportHistory, Field(description="not together with `fork`")] | None = None
    limits: Annotated[Limits | None, Field(description="each one given replaces that of the config")] = None
    fork: ForkSession | None = None


class RewindSession(Body):
    """An entry of the session's own log to go on behind; 0 is before its first one."""

    to_seq: Annotated[StrictInt, Field(ge=0, le=MAX_SEQ)]


class UpdateSession(Body):
    """What is given is replaced as a whole."""

    name: SessionName | None = None
    labels: Labels | None = None
    metadata: Metadata | None = None
    priority: Priority | None = None
    limits: Annotated[Limits | None, Field(description="from the next model call on; `{}`: the config's")] = (
        None
    )


class ChangeConfig(Body):
    """Another config. With `expected_config` it is refused where somebody else was faster."""

    config: ConfigRef
    expected_config: ConfigRef | None = None


class MoveInput(Body):
    """Exactly one of the three."""

    to: Literal["first", "last"] | None = None
    before: InputRef | None = None
    after: InputRef | None = None

    def place(self) -> Place:
        given = [name for name in ("to", "before", "after") if getattr(self, name) is not None]
        if len(given) != 1:
            wrong = {"path": "", "code": "required", "message": "give one of to, before and after"}
            raise Invalid("give one of to, before and after", errors=[wrong])
        if self.to is not None:
            return Place(self.to)
        return Place("before", self.before) if self.before is not None else Place("after", self.after)


class PromoteInput(Body):
    cancel_open: Annotated[bool, Field(description="close the questions and approvals that are open now")] = (
        False
    )


class NoBody(Body):
    """Nothing, or an empty object."""


def _statuses(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    names = value.split(",")
    for name in names:
        if name not in SessionStatus.values:
            known = ", ".join(SessionStatus.values)
            raise PydanticCustomError("not_allowed", "must be some of {known}, with commas", {"known": known})
    return frozenset(names)


_ONE = f"({'|'.join(SessionStatus.values)})"
Statuses = Annotated[
    frozenset[str],
    BeforeValidator(_statuses),
    WithJsonSchema({"type": "string", "pattern": f"^{_ONE}(,{_ONE})*$"}),
]


def _label(text: str) -> str:
    if not text.partition(":")[1]:
        raise PydanticCustomError("malformed", "must be key:value")
    return text


class SessionsQuery(PageQuery):
    repeated: ClassVar[frozenset[str]] = frozenset({"label"})

    status: Statuses | None = Field(None, description="one or more, with commas")
    label: Annotated[
        list[Annotated[str, AfterValidator(_label)]],
        Field(description="key:value; repeated, all must hold", max_length=20),
    ] = []
    profile: Annotated[str, Field(max_length=200, description="id or name")] | None = None
    parent: SessionRef | None = Field(None, description="children of this session")
    q: Annotated[str, Field(max_length=200, description="part of the name")] | None = None
    archived: Annotated[bool, Field(description="only archived ones, or only others")] | None = None
    failed: (
        Annotated[bool, Field(description="only those at rest whose last turn failed, or only others")] | None
    ) = None
    reason: Annotated[TurnReason, Field(description="why the last turn ended")] | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None


class EntriesQuery(SeqQuery):
    branch: Literal["all", "current"] = Field(
        "all",
        description="`current`: only the branch that the session is on, with what it inherits from the session "
        "it was forked from; `after` and `before` then count places on it, which each entry names",
    )


class ExportQuery(Query):
    format: Literal["entries", "messages"] = Field(
        "entries",
        description="`entries`: the whole session as JSON lines; `messages`: its current branch as one document "
        "that `history` takes",
    )


class InputsQuery(PageQuery):
    state: Annotated[InputState, Field(description="only these")] | None = None


def _short_enough(value: float) -> float:
    longest: float = settings.TENURE.wait_max
    if not 0 <= value <= longest:  # also refuses NaN
        raise PydanticCustomError(
            "out_of_range", "must be 0 to {longest} seconds", {"longest": f"{longest:g}"}
        )
    return value


class WaitQuery(Query):
    statuses: Annotated[Statuses, Field(alias="for", description="statuses that end the wait, with commas")]
    timeout: Annotated[float, AfterValidator(_short_enough), Field(description="seconds")] = 30
