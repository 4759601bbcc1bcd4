"""What can stand in the log: every kind of entry with the shape of its `data`.

The reference (`docs/reference/entries.md`) is generated from these types. Ids inside `data` are TypeIDs,
durations are seconds. Content is a list of blocks as described in the API reference.
"""

from typing import Any, NotRequired, TypedDict

type Block = dict[str, Any]
type Blocks = list[Block]


class Actor(TypedDict):
    """Who did it. `kind` is user, key, external or system."""

    kind: str
    id: str
    name: str


SYSTEM: Actor = {"kind": "system", "id": "tenure", "name": "Tenure"}


class UserMessage(TypedDict):
    """An input, delivered to the model. `input` is null where the message was imported."""

    input: str | None
    delivery: str
    content: Blocks


class AssistantMessage(TypedDict):
    """A saved reply. `stop` is done, tool_calls, length, filtered, paused or unknown; `raw_stop` the provider's.

    `model_call` is null where the reply was imported. Where the config has an `output_schema`, the answer of a
    turn has `output`, its value as a data block, or `invalid_output`, which says what does not fit.
    """

    model_call: str | None
    provider: str
    model: str
    content: Blocks
    stop: str
    raw_stop: str | None
    usage: dict[str, int]
    script_next: NotRequired[int]
    output: NotRequired[Blocks]
    invalid_output: NotRequired[str]


class ToolResult(TypedDict):
    """The one result of a call; `id` is the call's id as the provider gave it, `tool_call` ours.

    `answered` stands with what ask_user and create_skill brought: nobody is waited for any more. An imported result
    of one of these without it is only the hand-over.
    """

    tool_call: str
    id: str
    name: str
    outcome: str
    content: Blocks
    answered: NotRequired[bool]


class Checkpoint(TypedDict):
    """A summary that stands for everything up to `covers_seq`; what it covers stays in the log.

    `because` is estimate, overflow (the provider refused a request as too long) or requested. `messages` is how
    many messages it covers. The tokens are estimates of the whole request without and with the summary, and
    `ratio` is what the provider counts for an estimated token.
    """

    summary: str
    covers_seq: int
    because: NotRequired[str]
    messages: NotRequired[int]
    tokens_before: NotRequired[int]
    tokens_after: NotRequired[int]
    ratio: NotRequired[float]
    model_call: NotRequired[str]
    provider: NotRequired[str]
    model: NotRequired[str]
    usage: NotRequired[dict[str, int]]
    script_next: NotRequired[int]


class Note(TypedDict):
    """A remark for people; the model sees it only where `to_model` is set."""

    text: str
    to_model: NotRequired[bool]


class SessionCreated(TypedDict):
    """`forked_from` is `{session, seq}`. `imported` is `{format, messages, left_out}` of an imported history.

    `left_out` counts messages that nothing goes on from: replies cut off before they said anything, results of no
    call. `repaired_tool_calls` are its calls that had no result and were settled as interrupted.
    """

    config: str
    profile: str | None
    name: str
    labels: dict[str, str]
    limits: NotRequired[dict[str, Any]]
    parent: NotRequired[str]
    forked_from: NotRequired[dict[str, Any]]
    imported: NotRequired[dict[str, Any]]
    repaired_tool_calls: NotRequired[list[str]]


class SessionUpdated(TypedDict):
    """What was changed, with the new values."""

    changes: dict[str, Any]


class SessionWaiting(TypedDict):
    waiting_on: list[dict[str, Any]]


class SessionResumed(TypedDict):
    """First entry of an attempt whose predecessor died, was drained or was taken away in the middle of a turn.

    `repaired_tool_calls` are the calls that were settled since, as interrupted or to be run again. With the
    reason `branch` a fork or a rewind had left calls without their results.
    """

    attempt: int
    reason: str
    repaired_tool_calls: list[str]


class TurnStarted(TypedDict):
    number: int


class TurnEnded(TypedDict):
    number: int
    status: str
    reason: str
    error: dict[str, Any] | None


class ModelCallFailed(TypedDict):
    """`category` names the kind of fault, `detail` says it in words.

    `purpose` is there where the call asked for the summary of a compaction. `body_budget` is the size in bytes
    that requests are kept below from here on: a larger one was refused.
    """

    model_call: str
    category: str
    status: int | None
    code: str | None
    detail: str
    retry_after: float | None
    may_be_billed: bool
    body_budget: NotRequired[int]
    purpose: NotRequired[str]
    plays_script: NotRequired[bool]
    script_next: NotRequired[int]


class RetryScheduled(TypedDict):
    """`retry` counts from 1; `delay` is the wait from now, seconds."""

    retry: int
    delay: float
    reason: str


class ToolStarted(TypedDict):
    tool_call: str
    name: str


class ToolCallUpdated(TypedDict):
    """Progress, or an answer that came after the result, which stays what it is."""

    tool_call: str
    update: str
    content: Blocks


class ApprovalRequested(TypedDict):
    """A person has to allow this call. `rule` points at the rule that asks, null where the class default does.

    `tool_call` is null where it is a limit that is asked about. `expires_after` is how long people have, seconds.
    """

    approval: str
    tool_call: str | None
    name: str
    arguments: Any
    rule: str | None
    expires_after: NotRequired[float]


class ApprovalDecided(TypedDict):
    """`decision` is allow or deny; `remember` is session or always where it stands for later calls too."""

    approval: str
    decision: str
    reason: str | None
    remember: NotRequired[str]


class ApprovalClosed(TypedDict):
    """Nobody can decide it any more: `state` is cancelled or expired."""

    approval: str
    state: str


class QuestionAsked(TypedDict):
    """`questions` is the form; `expires_after` is how long people have, seconds."""

    question: str
    tool_call: str
    questions: list[dict[str, Any]]
    expires_after: NotRequired[float]


class QuestionAnswered(TypedDict):
    """One answer for each question: the numbers of the chosen options, from 0, and free text."""

    question: str
    answers: list[dict[str, Any]]


class QuestionClosed(TypedDict):
    """Nobody can answer it any more: `state` is cancelled or expired."""

    question: str
    state: str


class InputReceived(TypedDict):
    """With `cancel_open` it closed the questions and approvals that were open."""

    input: str
    delivery: str
    content: Blocks
    cancel_open: NotRequired[bool]


class InputUpdated(TypedDict):
    """A waiting input was moved (`position`, from 1), promoted or demoted (`delivery`, `cancel_open`)."""

    input: str
    changes: dict[str, Any]


class InputCancelled(TypedDict):
    """`reason` is cancelled, or archived where the session was."""

    input: str
    reason: str


class ConfigChanged(TypedDict):
    """From the next model call on the session runs under `config`."""

    config: str
    previous: str


class LimitWarning(TypedDict):
    """Two thirds of a limit are used, such as `turn.model_calls`; once for each turn or session and limit.

    With `used` "unknown" the price of some calls is not known, so that a cost limit sees only the others.
    """

    limit: str
    used: str
    of: str


class LimitReached(TypedDict):
    """No further call may be made, and the turn ends. Costs in USD, times in seconds."""

    limit: str
    used: str
    of: str


class ChildStarted(TypedDict):
    """A subagent was started by this call; `child` is its session."""

    child: str
    tool_call: str
    name: NotRequired[str]


class ChildEnded(TypedDict):
    """A subagent has come to rest; `status` and `reason` are those of its last turn.

    Each time: one that is spoken to again works again.
    """

    child: str
    status: str
    reason: str


class MachineAttached(TypedDict):
    machine: str


class MachineDetached(TypedDict):
    machine: str


class CommandUpdated(TypedDict):
    command: str
    state: str


class BranchMoved(TypedDict):
    """From here on the branch continues behind `to_seq`; 0 is before the session's first entry."""

    to_seq: int
    from_seq: int


class Archived(TypedDict):
    pass


class Restored(TypedDict):
    pass


KINDS: dict[str, type] = {
    "user_message": UserMessage,
    "assistant_message": AssistantMessage,
    "tool_result": ToolResult,
    "checkpoint": Checkpoint,
    "note": Note,
    "session_created": SessionCreated,
    "session_updated": SessionUpdated,
    "session_waiting": SessionWaiting,
    "session_resumed": SessionResumed,
    "turn_started": TurnStarted,
    "turn_ended": TurnEnded,
    "model_call_failed": ModelCallFailed,
    "retry_scheduled": RetryScheduled,
    "tool_started": ToolStarted,
    "tool_call_updated": ToolCallUpdated,
    "approval_requested": ApprovalRequested,
    "approval_decided": ApprovalDecided,
    "approval_closed": ApprovalClosed,
    "question_asked": QuestionAsked,
    "question_answered": QuestionAnswered,
    "question_closed": QuestionClosed,
    "input_received": InputReceived,
    "input_updated": InputUpdated,
    "input_cancelled": InputCancelled,
    "config_changed": ConfigChanged,
    "limit_warning": LimitWarning,
    "limit_reached": LimitReached,
    "child_started": ChildStarted,
    "child_ended": ChildEnded,
    "machine_attached": MachineAttached,
    "machine_detached": MachineDetached,
    "command_updated": CommandUpdated,
    "branch_moved": BranchMoved,
    "archived": Archived,
    "restored": Restored,
}

# What a conversation is rebuilt from; every other kind stands around it.
CONVERSATION = ("user_message", "assistant_message", "tool_result", "checkpoint", "note")
