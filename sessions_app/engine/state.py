"""A held session in memory: what was read when it was claimed, kept up to date with what this attempt saves.

The decoded context lives here, so a long history is decoded once per claim and not once per call. Nothing in
here is the truth: after a lost lease it is thrown away, and when the tables moved on (`work_rev`) the parts
that others write are read again.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app import branches, tool_port
from sessions_app.engine import compaction, limits, plan, spending, tokens
from sessions_app.engine.branch_reading import is_plain, read_branch, script_position
from sessions_app.engine.context import Context, EntryRow
from sessions_app.engine.limits import Meter
from sessions_app.engine.measures import measure_of, rule_of
from sessions_app.engine.pressure import Pressure
from sessions_app.entry_kinds import CONVERSATION, Actor, Blocks
from sessions_app.models import AgentConfig, Entry, Input, InputState, Session
from sessions_app.models.fields import ClockTimestamp
from sessions_app.providers.port import Category
from sessions_app.tool_port import Call

# Failed calls count towards the retry budget and a script's position, and the model is told of failed turns, so
# they are read with the conversation.
READ = (*CONVERSATION, "model_call_failed", "turn_ended", "config_changed")
MOST_PAUSES = 20
"""Replies in a row that a provider may pause, where no limit of the turn ends that earlier (C39)."""
_CHUNK = 2000  # entries fetched at a time

_TAILS = {
    "length": plan.Tail.LENGTH,
    "filtered": plan.Tail.FILTERED,
    "unknown": plan.Tail.UNKNOWN,
    "paused": plan.Tail.OWED,
    "tool_calls": plan.Tail.OWED,
}


def tail_after(stop: str) -> plan.Tail:
    """What a branch ends in behind a reply that stopped like this."""
    return _TAILS.get(stop, plan.Tail.ANSWERED)


@dataclass(frozen=True, slots=True)
class QueuedInput:
    id: UUID
    delivery: str
    content: Blocks
    actor: Actor


@dataclass(slots=True, kw_only=True)
class SessionState:
    id: UUID
    project: UUID
    attempt: int
    work_rev: int
    config_id: UUID
    document: Mapping[str, Any]
    parent: UUID | None
    turn: UUID | None
    turn_count: int
    crash_count: int
    lease_end: dict[str, Any] | None
    retry_later: bool
    documents: dict[UUID, Mapping[str, Any]] = field(default_factory=dict)  # of the configs of open calls
    inputs: list[QueuedInput] = field(default_factory=list)
    calls: dict[UUID, Call] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    tail: plan.Tail = plan.Tail.NOTHING
    failure: plan.Failed | plan.Retry | None = None
    failures: int = 0  # failed model calls of the current budget
    reduced: set[Category] = field(default_factory=set)  # refusals after which less was asked, at this place
    body_budget: int | None = None  # bytes, after a provider refused a larger body
    pauses: int = 0
    invalid_outputs: int = 0  # answers of this turn that did not fit the output schema
    output_problem: str | None = None
    script_position: int = 0
    pressure: Pressure = field(default_factory=Pressure)
    meter: Meter = field(default_factory=Meter)
    synced_seq: int = 0  # entries up to here are in the context
    own_seqs: set[int] = field(default_factory=set)  # and these, which this attempt wrote

    limit_ask: dict[str, Any] | None = None
    reserved: int | None = None  # what the model call under way has reserved in the budget of its tree

    def may_ask_about(self, reached: limits.Reached | None) -> bool:
        """Whether people can be asked to go on at this limit: once, and again where they had allowed it."""
        if reached is None or not self.meter.asks_about(reached):
            return False
        return self.limit_ask is None or self.limit_ask["limit"] != reached.limit

    def tokens_asked(self) -> int:
        """An estimate of what the next request has."""
        return measure_of(self.config_id, self.document).frame + self.context.tokens

    def time_left(self) -> float | None:
        """Seconds that the limits leave from now; None without such a limit (R8)."""
        return self.meter.time_left(time.monotonic())

    def document_of_call(self, call: Call) -> Mapping[str, Any]:
        """What the config said when the model made the call; it runs as that, whatever the config says now (I7)."""
        return self.document if call.config is None else self.documents.get(call.config, self.document)

    def view(self) -> plan.View:
        return plan.View(
            turn_open=self.turn is not None,
            tail=self.tail,
            calls=[plan.OpenCall(call.id, call.state) for call in self.calls.values()],
            inputs=[plan.WaitingInput(item.id, item.delivery) for item in self.inputs],
            failure=self.failure,
            retry_later=self.retry_later,
            crash_limited=self.crash_count >= settings.TENURE.crash_limit,
            output_problem=self.output_problem,
            compact=self.why_compact([item for item in self.inputs if item.delivery == "steering"]),
        )

    def standing(self) -> limits.Standing:
        """Where the turn and the session stand with their limits now."""
        return self.meter.standing(time.monotonic())

    def standing_of_new_turn(self) -> limits.Standing:
        """The same for the turn that would start now."""
        return self.meter.standing_of_new_turn(time.monotonic())

    def why_compact(self, delivered: Iterable[QueuedInput] = ()) -> compaction.Because | None:
        """Whether a model call that sees these inputs too has to wait for a compaction."""
        if self.calls:
            return None  # the batch comes first
        measure = measure_of(self.config_id, self.document)
        new = sum(tokens.MESSAGE_TOKENS + tokens.of_content(item.content) for item in delivered)
        return self.pressure.why(
            rule=rule_of(self.document, measure),
            size=measure.frame + self.context.tokens,
            new=new,
            covered=self._coverable,
        )

    def _coverable(self) -> int | None:
        measure = measure_of(self.config_id, self.document)
        cut = compaction.cut_of(
            self.context.messages,
            self.context.sizes,
            frame=measure.frame,
            ratio=self.pressure.ratio,
            rule=rule_of(self.document, measure),
        )
        return None if cut is None else sum(self.context.sizes[:cut])

    def compaction_job(self) -> compaction.Job | None:
        """What a compaction covers now, and what it asks."""
        measure = measure_of(self.config_id, self.document)
        return compaction.plan(
            self.context.messages,
            self.context.sizes,
            frame=measure.frame,
            ratio=self.pressure.ratio,
            rule=rule_of(self.document, measure),
            overflows=self.pressure.overflows,
        )

    def append(self, seq: int, kind: str, data: Mapping[str, Any]) -> None:
        """Take the next entry of the branch into the context."""
        frame = measure_of(self.config_id, self.document).frame if kind == "assistant_message" else 0
        self.pressure.take(seq, kind, data, frame + self.context.tokens)
        if kind == "model_call_failed":
            self._take_failure(data)
            if data.get("plays_script"):
                self.script_position = data.get("script_next") or self.script_position + 1
            return
        self.context.append(EntryRow(seq, None, kind, data))
        if kind == "assistant_message":
            self.failures = 0
            self.reduced.clear()
            self.pauses = self.pauses + 1 if data.get("stop") == "paused" else 0
            if data.get("model_call", "") is not None:  # an imported reply played no step of the script
                self.script_position = data.get("script_next") or self.script_position + 1
            self.tail = self.tail_of(data.get("stop", ""))
            if "invalid_output" in data:
                self.invalid_outputs += 1
                self.tail, self.output_problem = plan.Tail.INVALID_OUTPUT, data["invalid_output"]
        elif kind == "checkpoint":
            self.failures = 0
            self.script_position = data.get("script_next") or self.script_position
        elif kind in {"user_message", "tool_result"}:
            if kind == "user_message":
                self.failures = 0  # steering gives the retry a fresh budget (R6)
                self.invalid_outputs = 0
            self.reduced.clear()
            self.pauses = 0
            self.tail = plan.Tail.OWED
        elif kind == "note" and data.get("to_model"):
            self.tail = plan.Tail.OWED

    def tail_of(self, stop: str) -> plan.Tail:
        """`tail_after`, with an end to replies that are paused for ever."""
        return plan.Tail.UNKNOWN if stop == "paused" and self.pauses > MOST_PAUSES else tail_after(stop)

    def _take_failure(self, data: Mapping[str, Any]) -> None:
        match data.get("category"):
            case Category.TOO_LARGE:
                self.reduced.add(Category.TOO_LARGE)
                self.body_budget = data.get("body_budget") or self.body_budget
            case Category.REPLAY_REFUSED:
                self.reduced.add(Category.REPLAY_REFUSED)
                self.context.forget_reasoning()
            case _:
                self.failures += 1


def load(claims: Mapping[UUID, int]) -> dict[UUID, SessionState]:
    """The states of newly claimed sessions (id -> attempt); five queries for any number of them.

    Each session that was forked or rewound, or has a very long log, costs a few more of its own.
    """
    states = {}
    plain = {}
    for row in _rows(claims):
        states[row["id"]] = SessionState(
            id=row["id"],
            project=row["project_id"],
            attempt=claims[row["id"]],
            work_rev=row["work_rev"],
            config_id=row["config_id"],
            document=document_of(row["config_id"]),
            parent=row["parent_id"],
            turn=row["turn_id"],
            turn_count=row["turn_count"],
            crash_count=row["crash_count"],
            lease_end=row["lease_end"],
            retry_later=row["retry_later"],
            limit_ask=row["limit_ask"],
            pressure=Pressure(requested=row["compact_requested"]),
        )
        spending.read(states[row["id"]].meter, row, states[row["id"]].document, now=time.monotonic())
        if is_plain(row["head_seq"], row["forked_from_id"], rewound=row["rewound"]):
            plain[row["id"]] = states[row["id"]]
        else:
            _read_branch(states[row["id"]], row["head_seq"])
    _read_entries(plain)
    _read_inputs(states)
    _read_calls(states)
    return states


def reload(state: SessionState) -> None:
    """Read again what others write: the row, new entries, inputs and open calls."""
    for row in _rows([state.id]):
        state.work_rev = row["work_rev"]
        state.turn = row["turn_id"]
        state.turn_count = row["turn_count"]
        state.crash_count = row["crash_count"]
        state.retry_later = row["retry_later"]
        state.limit_ask = row["limit_ask"]
        state.pressure.requested = row["compact_requested"]
        if row["config_id"] != state.config_id:
            state.config_id = row["config_id"]
            state.document = document_of(row["config_id"])
        spending.read(state.meter, row, state.document, now=time.monotonic())
    _read_entries({state.id: state})
    _read_inputs({state.id: state})
    _read_calls({state.id: state})


def _rows(session_ids: Iterable[UUID]) -> Iterable[Mapping[str, Any]]:
    later = ExpressionWrapper(Q(retry_at__gt=ClockTimestamp()), output_field=BooleanField())
    rows: Iterable[Mapping[str, Any]] = Session.objects.filter(pk__in=list(session_ids)).values(
        *spending.COLUMNS,
        "project_id",
        "parent_id",
        "limit_ask",
        "work_rev",
        "config_id",
        "turn_count",
        "crash_count",
        "lease_end",
        "compact_requested",
        "head_seq",
        "forked_from_id",
        "rewound",
        retry_later=later,
        turn_age=spending.age_of_turn(),
    )
    return rows


def _read_entries(states: Mapping[UUID, SessionState]) -> None:
    # Held sessions that are read again have their own start; new ones begin at the beginning.
    start = min((state.synced_seq for state in states.values()), default=0)
    rows = (
        Entry.objects.filter(session_id__in=list(states), seq__gt=start, kind__in=READ)
        .order_by("session_id", "seq")
        .values_list("session_id", "seq", "kind", "data")
    )
    for session_id, seq, kind, data in rows.iterator(chunk_size=_CHUNK):
        state = states[session_id]
        if seq in state.own_seqs:
            state.own_seqs.discard(seq)
        else:
            state.append(seq, kind, data)
        state.synced_seq = seq


def _read_branch(state: SessionState, head_seq: int) -> None:
    segments = branches.of_session(state.id, head_seq=head_seq)
    rows = read_branch(segments, kinds=READ)
    if "script" in state.document:
        state.script_position = script_position(segments, rows)
    for row in rows:
        state.append(row.seq, row.kind, row.data)
    state.synced_seq = head_seq


def _read_inputs(states: Mapping[UUID, SessionState]) -> None:
    for state in states.values():
        state.inputs = []
    rows = Input.objects.filter(session_id__in=list(states), state=InputState.RECEIVED).order_by("rank")
    for row in rows:
        states[row.session_id].inputs.append(QueuedInput(row.id, row.delivery, row.content, row.actor))


def _read_calls(states: Mapping[UUID, SessionState]) -> None:
    calls = tool_port.runtime().open_calls(list(states))
    for session_id, state in states.items():
        state.calls = {call.id: call for call in calls.get(session_id, ())}
        configs = {call.config for call in state.calls.values() if call.config is not None}
        state.documents = {config: document_of(config) for config in configs}


_documents: dict[UUID, Mapping[str, Any]] = {}
_MAX_DOCUMENTS = 1000


def document_of(config_id: UUID) -> Mapping[str, Any]:
    """A config's document. Configs never change, so a process reads each one once."""
    document = _documents.get(config_id)
    if document is None:
        document = AgentConfig.objects.values_list("document", flat=True).get(pk=config_id)
        if len(_documents) >= _MAX_DOCUMENTS:
            _documents.pop(next(iter(_documents)))
        _documents[config_id] = document
    return document


def open_call_places(state: SessionState) -> Sequence[tuple[int, int]]:
    """Where the open calls stand in the context: (message index, block index)."""
    wanted = {call.call_id for call in state.calls.values()}
    if not wanted:
        return []
    places = []
    for at, message in enumerate(state.context.messages):
        if message["role"] == "assistant" and isinstance(message["content"], list):
            places += [
                (at, index)
                for index, block in enumerate(message["content"])
                if block.get("type") == "tool_call" and block.get("id") in wanted
            ]
    return places
