"""Sessions, turns, inputs and entries as clients see them.

`session_rows`, `turn_rows` and `input_rows` read all that a shape needs in one statement, so a page costs a
constant number of queries and a session and its turn are of the same moment.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, cast
from uuid import UUID

from django.db.models import Case, Count, IntegerField, OuterRef, Q, QuerySet, Subquery, When
from pydantic import Field

from sessions_app import ids
from sessions_app.api.shapes import (
    ActorShape,
    ConfigId,
    EntryId,
    InputId,
    Money,
    ProfileId,
    SessionId,
    Time,
    TurnId,
    money,
    shape_of,
    time,
    time_or_none,
)
from sessions_app.errors import NotFound
from sessions_app.models import Entry, Input, InputState, Session, Turn

type Message = dict[str, Any] | None


class Block(TypedDict):
    """One piece of content; which fields it has depends on `type`."""

    type: Annotated[str, Field(description="text, media, data, reasoning or tool_call")]
    text: NotRequired[str]
    artifact: NotRequired[str]
    value: NotRequired[Any]
    tool_call: NotRequired[str]
    id: NotRequired[str]
    name: NotRequired[str]
    arguments: NotRequired[Any]


class WaitItem(TypedDict):
    """One thing that a session waits for."""

    kind: Annotated[str, Field(description="approval, question, tool, machine, child, limit or crash_limit")]
    id: str | None
    since: Time | None


class Usage(TypedDict):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    model_calls: int
    tool_calls: int


class ErrorShape(TypedDict):
    code: str
    detail: str


class TurnShape(TypedDict):
    """From a delivered input to its answer. `output` are the blocks of its last reply."""

    id: TurnId
    session: SessionId
    number: int
    status: Annotated[str, Field(description="running, succeeded, failed or cancelled")]
    reason: str | None
    error: ErrorShape | None
    started_at: Time
    ended_at: Time | None
    usage: Usage
    cost: Money | None
    output: list[Block]


class ForkShape(TypedDict):
    session: SessionId
    seq: int


class TodoShape(TypedDict):
    text: str
    state: Annotated[str, Field(description="pending, in_progress or completed")]


class SessionShape(TypedDict):
    """One agent. `output` are the blocks of its last reply, `turn` the open turn, `last_turn` the last ended one.

    `todos` is the list that the agent last wrote down with `update_todos`.
    """

    id: SessionId
    name: str
    status: Annotated[str, Field(description="idle, queued, running, waiting, backing_off or archived")]
    waiting_on: list[WaitItem]
    profile: ProfileId | None
    config: ConfigId
    turn: TurnShape | None
    last_turn: TurnShape | None
    output: list[Block]
    last_seq: int
    attempt: int
    queued_inputs: int
    retry_at: Time | None
    priority: int
    usage: Usage
    cost: Money | None
    labels: dict[str, str]
    metadata: dict[str, Any]
    todos: list[TodoShape]
    parent: SessionId | None
    forked_from: ForkShape | None
    created_at: Time
    updated_at: Time
    archived_at: Time | None


class InputShape(TypedDict):
    """`position` is the place in the queue, from 1, while the input waits."""

    id: InputId
    session: SessionId
    content: list[Block]
    delivery: Annotated[str, Field(description="queued or steering")]
    state: Annotated[str, Field(description="received, delivered, cancelled or rejected")]
    position: int | None
    actor: ActorShape
    turn: TurnId | None
    created_at: Time


class EntryShape(TypedDict):
    """One entry of a log; the shape of `data` follows from `kind`. `place`: on a branch, where one is listed."""

    id: EntryId
    session: SessionId
    seq: int
    parent_seq: int
    kind: str
    turn: TurnId | None
    attempt: int | None
    actor: ActorShape
    created_at: Time
    data: dict[str, Any]
    place: NotRequired[int]


# --- reading ---------------------------------------------------------------------------------------------


def _message_at(session: str, seq: str) -> Subquery:
    return Subquery(Entry.objects.filter(session_id=OuterRef(session), seq=OuterRef(seq)).values("data")[:1])


def _waiting(*rank: Q, session: str) -> Subquery:
    """How many inputs of a session wait; one look into a partial index."""
    waiting = Input.objects.filter(*rank, session_id=OuterRef(session), state=InputState.RECEIVED).order_by()
    counted = waiting.values("session_id").annotate(count=Count("pk")).values("count")
    return Subquery(counted, output_field=IntegerField())


def session_rows() -> QuerySet[Session]:
    """Sessions with all that their shape shows."""
    rows: QuerySet[Session] = Session.objects.select_related("turn", "last_turn").annotate(
        message=_message_at("pk", "output_seq"),
        turn_message=_message_at("pk", "turn__output_seq"),
        last_turn_message=_message_at("pk", "last_turn__output_seq"),
        waiting_inputs=_waiting(session="pk"),
    )
    return rows


def session_row(session: UUID, *, project: UUID) -> Session:
    """The session as it is now, with all that its shape shows; that of another project does not exist."""
    row = session_rows().filter(pk=session, project_id=project).first()
    if row is None:
        raise NotFound("no such session")
    return row


def turn_rows() -> QuerySet[Turn]:
    rows: QuerySet[Turn] = Turn.objects.annotate(message=_message_at("session_id", "output_seq"))
    return rows


def input_rows() -> QuerySet[Input]:
    place = _waiting(Q(rank__lte=OuterRef("rank")), session="session_id")
    rows: QuerySet[Input] = Input.objects.annotate(
        position=Case(When(state=InputState.RECEIVED, then=place), output_field=IntegerField(null=True))
    )
    return rows


# --- shapes ----------------------------------------------------------------------------------------------

_SHOWN: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "reasoning": frozenset({"type", "text"}),
    "tool_call": frozenset({"type", "tool_call", "id", "name", "arguments"}),
}
# Replies that ended early: what they began to call was never run (R4).
_CALLS_NOT_RUN = frozenset({"length", "filtered", "unknown"})


def blocks(content: list[dict[str, Any]]) -> list[Block]:
    """Content without what only its provider understands (signatures, ids of its own)."""
    found = []
    for block in content:
        names = _SHOWN.get(block.get("type", ""))
        found.append(block if names is None else {name: block[name] for name in block if name in names})
    return cast("list[Block]", found)


def output(message: Message) -> list[Block]:
    """The blocks of a reply, without calls that it did not live to make (A43)."""
    if message is None:
        return []
    if "output" in message:
        return blocks(message["output"])  # the validated value of an output schema
    shown = blocks(message["content"])
    if message.get("stop") in _CALLS_NOT_RUN:
        return [block for block in shown if block["type"] != "tool_call"]
    return shown


def _usage(row: Session | Turn) -> Usage:
    return {
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cached_tokens": row.cached_tokens,
        "reasoning_tokens": row.reasoning_tokens,
        "model_calls": row.model_calls,
        "tool_calls": row.tool_calls,
    }


def turn(row: Turn) -> TurnShape:
    """For rows of `turn_rows`."""
    return _turn(row, cast("Any", row).message)


def _turn(row: Turn, message: Message) -> TurnShape:
    return {
        "id": ids.encode("trn", row.pk),
        "session": ids.encode("ses", row.session_id),
        "number": row.number,
        "status": row.status,
        "reason": row.reason,
        "error": row.error,
        "started_at": time(row.started_at),
        "ended_at": time_or_none(row.ended_at),
        "usage": _usage(row),
        "cost": money(row.cost),
        "output": output(message),
    }


def session(row: Session) -> SessionShape:
    """For rows of `session_rows`."""
    read = cast("Any", row)
    forked: ForkShape | None = None
    if row.forked_from_id is not None:
        forked = {"session": ids.encode("ses", row.forked_from_id), "seq": row.forked_from_seq or 0}
    return {
        "id": ids.encode("ses", row.pk),
        "name": row.name,
        "status": row.status,
        "waiting_on": [
            {"kind": item["kind"], "id": item.get("id"), "since": item.get("since")}
            for item in row.waiting_on
        ],
        "profile": ids.encode("prf", row.profile_id) if row.profile_id else None,
        "config": ids.encode("cfg", row.config_id),
        "turn": _turn(row.turn, read.turn_message) if row.turn else None,
        "last_turn": _turn(row.last_turn, read.last_turn_message) if row.last_turn else None,
        "output": output(read.message),
        "last_seq": row.next_seq - 1,
        "attempt": row.attempt,
        "queued_inputs": read.waiting_inputs or 0,
        "retry_at": time_or_none(row.retry_at),
        "priority": row.priority,
        "usage": _usage(row),
        "cost": money(row.cost),
        "labels": row.labels,
        "metadata": row.metadata,
        "todos": row.todos or [],
        "parent": ids.encode("ses", row.parent_id) if row.parent_id else None,
        "forked_from": forked,
        "created_at": time(row.created_at),
        "updated_at": time(row.updated_at),
        "archived_at": time_or_none(row.archived_at),
    }


def input_(row: Input) -> InputShape:
    """For rows of `input_rows`."""
    return {
        "id": ids.encode("inp", row.pk),
        "session": ids.encode("ses", row.session_id),
        "content": cast("list[Block]", row.content),
        "delivery": row.delivery,
        "state": row.state,
        "position": cast("Any", row).position,
        "actor": row.actor,
        "turn": ids.encode("trn", row.turn_id) if row.turn_id else None,
        "created_at": time(row.created_at),
    }


def entry(row: Entry) -> EntryShape:
    data = row.data
    if row.kind == "assistant_message":
        data = {**data, "content": blocks(data["content"])}
    return {
        "id": ids.encode("ent", row.pk),
        "session": ids.encode("ses", row.session_id),
        "seq": row.seq,
        "parent_seq": row.parent_seq,
        "kind": row.kind,
        "turn": ids.encode("trn", row.turn_id) if row.turn_id else None,
        "attempt": row.attempt,
        "actor": row.actor,
        "created_at": time(row.created_at),
        "data": data,
    }


# For `current` in conflicts, where a service hands over the bare row.


@shape_of.register
def current_session(row: Session) -> SessionShape:
    return session(session_rows().get(pk=row.pk))


@shape_of.register
def current_input(row: Input) -> InputShape:
    return input_(input_rows().get(pk=row.pk))
