"""What must be true of a session whatever died meanwhile: one list, for crash tests, the demo and chaos runs.

`check_session` reads a session's rows and returns each violation as a sentence; an empty list means that
nothing was lost, doubled or left open. The rules themselves are pure functions over a `History`, so a test of
a rule is a table. Tool calls are judged by the log alone, which has their requests and results; how often a
tool really had its effect only its own traces can tell, so the caller counts them (`Effect`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce

from sessions_app import ids, tool_port
from sessions_app.branches import runs
from sessions_app.models import (
    BRANCH,
    Child,
    Entry,
    Input,
    InputState,
    Lease,
    ModelCall,
    ModelCallState,
    Session,
    SessionStatus,
    TreeBudget,
    Turn,
    TurnStatus,
)

_CALLS_NOT_RUN = {"length", "filtered", "unknown"}
_AT_REST = {SessionStatus.IDLE, SessionStatus.WAITING, SessionStatus.ARCHIVED}
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


class Logged(NamedTuple):
    """An entry of the log."""

    seq: int
    parent_seq: int
    kind: str
    turn: UUID | None
    attempt: int | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How often one tool call had its effect outside, counted there."""

    tool_call: str
    times: int
    rerun_safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A session's rows. Everything is in the order in which it was written."""

    session: Session
    entries: Sequence[Logged]
    inputs: Sequence[Input] = ()
    turns: Sequence[Turn] = ()
    model_calls: Sequence[ModelCall] = ()
    open_calls: Sequence[str] = ()
    leased: bool = False
    effects: Sequence[Effect] = ()
    resumed: Collection[int] | None = None
    at_rest: bool = True
    messages: list[Logged] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", self.of_kind("assistant_message"))

    def of_kind(self, *kinds: str) -> list[Logged]:
        return [entry for entry in self.entries if entry.kind in kinds]


def check_session(
    session: UUID,
    *,
    at_rest: bool = True,
    resumed: Collection[int] | None = None,
    effects: Sequence[Effect] = (),
) -> list[str]:
    """The violations of one session, as sentences.

    `at_rest`: nothing of it may be under way any more. `resumed`: exactly these attempts must have told that
    they resumed, for a caller that knows what it killed. `effects`: what was counted outside.
    """
    history = read(session, at_rest=at_rest, resumed=resumed, effects=effects)
    return [sentence for rule in RULES for sentence in rule(history)]


def check_workers() -> list[str]:
    """Violations among workers and leases of the whole deployment."""
    found = [
        f"the lease of session {lease.session_id} belongs to worker {lease.worker_id}, which is dead"
        for lease in Lease.objects.filter(worker__dead=True)
    ]
    odd = Lease.objects.exclude(attempt=F("session__attempt")).values_list("session_id", flat=True)
    found += [f"the lease of session {session} is of another attempt than the session" for session in odd]
    unled = Session.objects.filter(lease__isnull=False).exclude(status=SessionStatus.RUNNING)
    found += [f"session {row.id} is leased and {row.status}" for row in unled]
    return found


def check_trees() -> list[str]:
    """Violations among subagents, their parents and what they share, of the whole deployment (T8, R8)."""
    waiting = Input.objects.filter(session=OuterRef("session_id"), state=InputState.RECEIVED)
    resting = Q(session__turn=None) & (
        ~Exists(waiting) | Q(session__crash_count__gte=settings.TENURE.crash_limit)
    ) | Q(session__archived_at__isnull=False)
    odd = Child.objects.filter(resting, working=True).values_list("pk", flat=True)
    found = [f"session {session} rests, and its parent was not told" for session in odd]
    odd = Child.objects.filter(~resting, working=False).values_list("pk", flat=True)
    found += [f"session {session} works, and counts as resting" for session in odd]
    reserved = ModelCall.objects.filter(
        session__tree=OuterRef("pk"), state=ModelCallState.STARTED, reserved__isnull=False
    )
    sums = reserved.order_by().values("session__tree").annotate(all=Sum("reserved")).values("all")
    for budget in TreeBudget.objects.annotate(open=Coalesce(Subquery(sums), 0)):
        if budget.reserved_tokens != budget.open:
            found.append(
                f"the tree of session {budget.pk} has {budget.reserved_tokens} tokens reserved "
                f"for calls that reserved {budget.open}"
            )
    return found


def read(
    session: UUID,
    *,
    at_rest: bool = True,
    resumed: Collection[int] | None = None,
    effects: Sequence[Effect] = (),
) -> History:
    """The rows that the rules look at."""
    entries = Entry.objects.filter(session_id=session).order_by("seq")
    open_calls = tool_port.runtime().open_calls([session]).get(session, [])
    return History(
        session=Session.objects.get(pk=session),
        entries=[
            Logged(*row)
            for row in entries.values_list("seq", "parent_seq", "kind", "turn_id", "attempt", "data")
        ],
        inputs=list(Input.objects.filter(session_id=session).order_by("pk")),
        turns=list(Turn.objects.filter(session_id=session).order_by("number")),
        model_calls=list(ModelCall.objects.filter(session_id=session).order_by("started_at", "pk")),
        open_calls=[ids.encode("tcl", call.id) for call in open_calls],
        leased=Lease.objects.filter(pk=session).exists(),
        effects=effects,
        resumed=resumed,
        at_rest=at_rest,
    )


# --- the rules -------------------------------------------------------------------------------------------


def log_is_whole(history: History) -> Iterator[str]:
    """S1: numbers without a gap from 1, each entry behind the one before or the one that was gone back to."""
    seqs = [entry.seq for entry in history.entries]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"the log's numbers have gaps: {seqs}"
    for entry in history.entries:
        follows = entry.data["to_seq"] if entry.kind == "branch_moved" else entry.seq - 1
        if entry.parent_seq != follows:
            yield f"entry {entry.seq} does not follow {follows} but {entry.parent_seq}"
    if history.session.next_seq != len(seqs) + 1:
        yield f"the next number is {history.session.next_seq} behind {len(seqs)} entries"
    if history.session.head_seq != len(seqs):
        yield f"the head is {history.session.head_seq} of {len(seqs)} entries"


def inputs_arrive_once(history: History) -> Iterator[str]:
    """I1: accepted = delivered + cancelled + rejected + waiting, and each delivered one is one message."""
    received = Counter(entry.data["input"] for entry in history.of_kind("input_received"))
    messages = history.of_kind("user_message")
    # Imported ones were no inputs of this session.
    delivered = Counter(entry.data["input"] for entry in messages if entry.data["input"] is not None)
    taken_back = Counter(entry.data["input"] for entry in history.of_kind("input_cancelled"))
    known = {ids.encode("inp", item.pk): item for item in history.inputs}
    for name, item in known.items():
        if received[name] != 1:
            yield f"input {name} was accepted {received[name]} times"
        wanted = 1 if item.state == InputState.DELIVERED else 0
        if delivered[name] != wanted:
            yield f"input {name} is {item.state} and was delivered {delivered[name]} times"
        wanted = 1 if item.state == InputState.CANCELLED else 0
        if taken_back[name] != wanted:
            yield f"input {name} is {item.state} and was taken back {taken_back[name]} times"
        if item.state == InputState.DELIVERED and item.turn_id is None:
            yield f"input {name} was delivered to no turn"
    for name in (received | delivered | taken_back) - Counter(dict.fromkeys(known, 1 << 30)):
        yield f"the log names input {name}, which does not exist"


def calls_have_one_result(history: History) -> Iterator[str]:
    """T1: each call of a saved reply has one result, behind it, on every branch; nothing else has one."""
    requested: dict[str, int] = {}
    counted = 0
    for message in history.messages:
        if message.data["stop"] in _CALLS_NOT_RUN:
            continue
        for block in message.data["content"]:
            if block["type"] == "tool_call":
                requested[block["tool_call"]] = message.seq
                counted += message.data["model_call"] is not None
    branches = list(_branches(history))
    results: dict[str, list[Logged]] = {}
    for entry in history.of_kind("tool_result"):
        results.setdefault(entry.data["tool_call"], []).append(entry)
    for call, seq in requested.items():
        count = max(sum(result.seq in branch for result in results.get(call, ())) for branch in branches)
        if count > 1:
            yield f"tool call {call} has {count} results"
        if count == 0 and (history.at_rest or call not in history.open_calls):
            waits = history.session.status == SessionStatus.WAITING and call in history.open_calls
            if not waits:
                yield f"tool call {call} has no result"
        if count and call in history.open_calls:
            yield f"tool call {call} has a result in the log and is still open"
        if any(result.seq < seq for result in results.get(call, ())):
            yield f"the result of tool call {call} stands before the call"
    for call, entries in results.items():
        inherited = history.session.forked_from_id is not None and entries[0].data["outcome"] == "interrupted"
        if call not in requested and not inherited:
            yield f"entry {entries[0].seq} is the result of a call that nobody made"
    for entry in history.of_kind("tool_result"):
        text = "".join(block.get("text", "") for block in entry.data["content"])
        if entry.data["outcome"] == "interrupted" and not text.startswith(tool_port.INTERRUPTED):
            yield f"the interrupted result {entry.seq} says {text!r}"
    if history.session.tool_calls != counted:
        yield f"the session counts {history.session.tool_calls} tool calls and its log has {counted}"


def _branches(history: History) -> Iterator[set[int]]:
    """Every branch that the log has ever been on, each as its seqs."""
    moved = history.of_kind("branch_moved")
    moves = [(entry.seq, entry.parent_seq) for entry in moved]
    for head in (history.session.head_seq, *(entry.data["from_seq"] for entry in moved)):
        yield {seq for first, last in runs(head, moves) for seq in range(first, last + 1)}


def turns_end_once(history: History) -> Iterator[str]:
    """S7: each turn begins and ends once, one after the other; at rest none is open."""
    numbers = [turn.number for turn in history.turns]
    if numbers != list(range(1, history.session.turn_count + 1)):
        yield f"the turns are {numbers} of {history.session.turn_count}"
    current: UUID | None = None
    for entry in history.of_kind("turn_started", "turn_ended"):
        if entry.kind == "turn_started":
            if current is not None:
                yield f"entry {entry.seq} starts a turn inside another"
            current = entry.turn
        elif entry.turn != current or current is None:
            yield f"entry {entry.seq} ends a turn that is not the open one"
        else:
            current = None
    if current != history.session.turn_id:
        yield f"by the log the open turn is {current}, by the session {history.session.turn_id}"
    ends = {entry.turn: entry.data for entry in history.of_kind("turn_ended")}
    begun = Counter(entry.turn for entry in history.of_kind("turn_started"))
    for turn in history.turns:
        if begun[turn.pk] != 1:
            yield f"turn {turn.number} began {begun[turn.pk]} times"
        end = ends.get(turn.pk)
        if (end is None) != (turn.status == TurnStatus.RUNNING):
            yield f"turn {turn.number} is {turn.status}, which its log does not say"
        elif end is not None and (end["status"], end["reason"]) != (turn.status, turn.reason):
            yield f"turn {turn.number} ended as {turn.reason} and its log says {end['reason']}"


def resumes_are_told_once(history: History) -> Iterator[str]:
    """S9: an attempt tells that it resumed with its first entry, once, in an open turn."""
    told: list[int] = []
    first: dict[int, Logged] = {}
    open_turn = False
    for entry in history.entries:
        if entry.attempt is not None:
            first.setdefault(entry.attempt, entry)
        if entry.kind == "turn_started":
            open_turn = True
        elif entry.kind == "turn_ended":
            open_turn = False
        elif entry.kind == "session_resumed":
            attempt = entry.data["attempt"]
            told.append(attempt)
            if entry.attempt != attempt:
                yield f"entry {entry.seq} of attempt {entry.attempt} tells of attempt {attempt}"
            elif first[attempt] is not entry:
                yield f"attempt {attempt} wrote entry {first[attempt].seq} before it told that it resumed"
            if not open_turn and entry.data["reason"] != BRANCH:
                yield f"attempt {attempt} resumed where no turn was open"
    for attempt, count in Counter(told).items():
        if count > 1:
            yield f"attempt {attempt} told {count} times that it resumed"
    if history.resumed is not None and sorted(set(told)) != sorted(history.resumed):
        yield f"attempts {sorted(set(told))} told that they resumed, {sorted(history.resumed)} should have"


def model_calls_are_counted(history: History) -> Iterator[str]:
    """R1, R5, R7: each reply, checkpoint and failure in the log is one call, and the sums fit."""
    rows = {ids.encode("mcl", call.pk): call for call in history.model_calls}
    by_state = Counter(call.state for call in history.model_calls)
    for kinds, state in (
        (("assistant_message", "checkpoint"), ModelCallState.SUCCEEDED),
        (("model_call_failed",), ModelCallState.FAILED),
    ):
        # What was imported came with no call.
        logged = [name for entry in history.of_kind(*kinds) if (name := entry.data.get("model_call"))]
        if len(logged) != by_state[state] or len(set(logged)) != len(logged):
            yield f"{by_state[state]} model calls have {state} and the log tells of {len(logged)}"
        for name in logged:
            if name not in rows or rows[name].state != state:
                yield f"the log says that model call {name} has {state}, its row does not"
    if history.at_rest and by_state[ModelCallState.STARTED]:
        yield f"{by_state[ModelCallState.STARTED]} model calls are still open"
    ended = [
        call
        for call in history.model_calls
        if call.state in {ModelCallState.SUCCEEDED, ModelCallState.FAILED}
    ]
    if history.session.model_calls != len(ended):
        yield f"the session counts {history.session.model_calls} model calls of {len(ended)}"
    # A compaction between turns is the session's alone.
    in_turns = [call for call in ended if call.turn_id is not None]
    for name, wanted in (("model_calls", len(in_turns)), ("tool_calls", history.session.tool_calls)):
        total = sum(getattr(row, name) for row in history.turns)
        if total != wanted:
            yield f"the turns count {total} {name}, not {wanted}"
    for what, counted, calls in (
        ("session", [history.session], ended),
        ("turns", history.turns, in_turns),
    ):
        for name in _TOKENS:
            used = sum(getattr(call, name) for call in calls)
            total = sum(getattr(row, name) for row in counted)
            if total != used:
                yield f"the {what} count {total} {name} and the model calls used {used}"


def replies_are_not_asked_again(history: History) -> Iterator[str]:
    """S3: whatever is asked later covers every reply that was saved before."""
    saved = {
        name: entry.seq
        for entry in history.of_kind("assistant_message", "checkpoint")
        if (name := entry.data.get("model_call"))
    }
    reached = 0
    for call in history.model_calls:
        if call.covers_seq < reached:
            yield (
                f"model call {ids.encode('mcl', call.pk)} covers entries up to {call.covers_seq}"
                f" though the reply {reached} was saved before it"
            )
        reached = max(reached, saved.get(ids.encode("mcl", call.pk), 0))


def attempts_only_grow(history: History) -> Iterator[str]:
    """L1: no attempt writes after a later one has begun."""
    for what, attempts in (
        ("log", [entry.attempt for entry in history.entries if entry.attempt is not None]),
        ("model calls", [call.attempt for call in history.model_calls]),
    ):
        if attempts != sorted(attempts):
            yield f"the attempts of the {what} go back: {attempts}"
        if attempts and attempts[-1] > history.session.attempt:
            yield f"the {what} know attempt {attempts[-1]}, the session {history.session.attempt}"


def session_is_at_rest(history: History) -> Iterator[str]:
    """S11: nothing is left that would need a worker, and none is there."""
    session = history.session
    if not history.at_rest:
        return
    if history.leased:
        yield "a lease is left"
    if session.status not in _AT_REST:
        yield f"the session is {session.status}"
    if session.status != SessionStatus.WAITING:
        if session.turn_id is not None:
            yield "a turn is still open"
        if session.wake_at is not None:
            yield "the session is due though it has nothing to do"
        if history.open_calls:
            yield f"tool calls are still open: {list(history.open_calls)}"
        if any(item.state == InputState.RECEIVED for item in history.inputs):
            yield "an input still waits"


def effects_happened(history: History) -> Iterator[str]:
    """T: outside tools at most once, exactly once where the log says so; rerun_safe ones at least once."""
    outcomes = {entry.data["tool_call"]: entry.data["outcome"] for entry in history.of_kind("tool_result")}
    for effect in history.effects:
        outcome = outcomes.get(effect.tool_call)
        if effect.times > 1 and not effect.rerun_safe:
            yield f"tool call {effect.tool_call} had its effect {effect.times} times"
        if outcome == "succeeded" and effect.times < 1:
            yield f"tool call {effect.tool_call} has succeeded without an effect"
        if outcome == "interrupted" and effect.rerun_safe:
            yield f"tool call {effect.tool_call} may run again and was given up as interrupted"


def people_are_asked_once(history: History) -> Iterator[str]:
    """H1, H2, T7: what is put to people ends once, and nothing that they have to allow begins before."""
    asked: dict[str, Logged] = {}
    ends: dict[str, list[Logged]] = {}
    for entry in history.entries:
        noun = _ASKED.get(entry.kind)
        if noun is not None:
            asked[entry.data[noun]] = entry
        elif entry.kind in _ANSWERED:
            ends.setdefault(entry.data[_ANSWERED[entry.kind]], []).append(entry)
    for name, entry in asked.items():
        ended = ends.get(name, [])
        if len(ended) > 1:
            yield f"{name} came to an end {len(ended)} times"
        if not ended and history.session.status != SessionStatus.WAITING and history.at_rest:
            yield f"{name} is still open, and the session does not wait"
        if any(end.seq < entry.seq for end in ended):
            yield f"{name} ended before it was asked"
    for name in ends.keys() - asked.keys():
        yield f"{name} ended, and the log does not say that it was asked"
    allowed = {
        asked[name].data["tool_call"]: end.seq
        for name, entries in ends.items()
        for end in entries
        if name in asked and end.data.get("decision") == "allow"
    }
    held = {
        entry.data["tool_call"]: name for name, entry in asked.items() if entry.kind == "approval_requested"
    }
    # What a rewind left without its result is told as interrupted, also what had never begun.
    left_behind = {
        (entry.attempt, call)
        for entry in history.of_kind("session_resumed")
        if entry.data["reason"] == "branch"
        for call in entry.data["repaired_tool_calls"]
    }
    for entry in history.of_kind("tool_started", "tool_result", "question_asked"):
        call = entry.data["tool_call"]
        went_on = entry.kind != "tool_result" or entry.data["outcome"] == "succeeded"
        if entry.kind == "tool_result" and entry.data["outcome"] == "interrupted":
            went_on = (entry.attempt, call) not in left_behind
        if call in held and went_on and not allowed.get(call, entry.seq) < entry.seq:
            yield f"tool call {call} went on at entry {entry.seq} though nobody had allowed {held[call]}"


_ASKED = {"approval_requested": "approval", "question_asked": "question"}
_ANSWERED = {
    "approval_decided": "approval",
    "approval_closed": "approval",
    "question_answered": "question",
    "question_closed": "question",
}


RULES = (
    log_is_whole,
    inputs_arrive_once,
    calls_have_one_result,
    turns_end_once,
    resumes_are_told_once,
    model_calls_are_counted,
    replies_are_not_asked_again,
    attempts_only_grow,
    session_is_at_rest,
    effects_happened,
    people_are_asked_once,
)
