"""Cards of tool calls, with what people are asked about them: one reading for timelines and answers.

A card is made of the rows as they are now, whatever entry it stands in or was changed by.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Q

from sessions_app import ids
from sessions_app.console import blocks
from sessions_app.console.cards import Card
from sessions_app.console.standing import Standing
from sessions_app.console.template_tags import pretty
from sessions_app.models import Entry, Session
from tools_app.models import Approval, Question, ToolCall, ToolCallState, ToolClass

_OUTCOMES: Mapping[str, Standing] = {
    "succeeded": Standing(word="Done", tone="ok"),
    "failed": Standing(word="Failed", tone="bad"),
    "denied": Standing(word="Denied", tone="warn"),
    "cancelled": Standing(word="Cancelled", tone="quiet"),
    "interrupted": Standing(word="Interrupted", tone="warn", detail="whether it took effect is not known"),
}
_STATES: Mapping[str, Standing] = {
    ToolCallState.AWAITING_APPROVAL: Standing(word="Needs approval", tone="ask"),
    ToolCallState.READY: Standing(word="Ready", tone="queued"),
    ToolCallState.RUNNING: Standing(word="Running", tone="live"),
}
_WAITS: Mapping[str, Standing] = {
    ToolClass.HUMAN: Standing(word="Asks a question", tone="ask"),
    ToolClass.CUSTOM: Standing(word="Waits for a backend", tone="wait"),
    ToolClass.INTERNAL: Standing(word="Waits for a subagent", tone="wait"),
    ToolClass.COMMAND: Standing(word="Waits for a machine", tone="wait"),
}
CLASSES: Mapping[str, str] = {
    ToolClass.INTERNAL: "built in",
    ToolClass.OUTSIDE: "outside",
    ToolClass.COMMAND: "command",
    ToolClass.CUSTOM: "custom",
    ToolClass.HUMAN: "people",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    number: int
    label: str
    description: str
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One question of a form, with what was chosen or written: the stored answer, or an attempt at one."""

    number: int
    text: str
    options: list[Option]
    multiple: bool
    allow_text: bool
    said: str
    error: str

    @property
    def chosen(self) -> list[str]:
        return [option.label for option in self.options if option.is_chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of an attempt to answer: a refusal, and the words that can go as a message instead."""

    notice: str = ""
    message: str = ""
    answers: Sequence[Mapping[str, Any]] | None = None
    errors: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""


NOTHING = Told()


def of_entries(session: Session, entries: Sequence[Entry]) -> dict[str, Card]:
    """The calls and approvals that these entries name: three queries, none where they name nothing."""
    named = _Named()
    for entry in entries:
        named.read(entry)
    if not (named.calls or named.approvals or named.questions):
        return {}
    mine = {"session_id": session.pk}
    approvals = list(
        Approval.objects.filter(Q(pk__in=named.approvals) | Q(tool_call_id__in=named.calls), **mine)
    )
    questions = list(
        Question.objects.filter(Q(pk__in=named.questions) | Q(tool_call_id__in=named.calls), **mine)
    )
    wanted = named.calls | {row.tool_call_id for row in approvals if row.tool_call_id is not None}
    wanted |= {row.tool_call_id for row in questions}
    calls = list(ToolCall.objects.filter(pk__in=wanted, **mine))
    return cards(session.project_id, calls, approvals, questions)


def cards(
    project: UUID,
    calls: Iterable[ToolCall],
    approvals: Iterable[Approval],
    questions: Iterable[Question],
    *,
    told: Told = NOTHING,
) -> dict[str, Card]:
    """Of calls with their prompts, and of approvals that stand for themselves (limits)."""
    calls, approvals = list(calls), list(approvals)
    files = blocks.files_in((call.content or () for call in calls), project=project)
    approval_of = {row.tool_call_id: row for row in approvals}
    question_of = {row.tool_call_id: row for row in questions}
    found = [
        _of_call(call, approval_of.get(call.pk), question_of.get(call.pk), files, told) for call in calls
    ]
    found += [of_limit(row, told=told) for row in approvals if row.tool_call_id is None]
    return {card.key: card for card in found}


def of_limit(row: Approval, *, told: Told = NOTHING) -> Card:
    """The approval to go on at a limit."""
    context = {"approval": row, "is_open": row.state == "open", "told": told, "name": row.name}
    return Card(key=ids.encode("apr", row.pk), template="console/tools/limit.html", context=context)


def _of_call(
    call: ToolCall,
    approval: Approval | None,
    question: Question | None,
    files: Mapping[str, blocks.File],
    told: Told,
) -> Card:
    ended = call.completed_at
    began = call.started_at or call.created_at
    asks = (approval is not None and approval.state == "open") or (
        question is not None and question.state == "open"
    )
    context = {
        "call": call,
        "name": call.name,
        "class_word": CLASSES.get(call.tool_class, call.tool_class),
        "standing": standing_of(call),
        "arguments": arguments_of(call.arguments),
        "content": blocks.shown(call.content or (), files),
        "took": None if ended is None else (ended - began).total_seconds(),
        "approval": approval,
        "question": question,
        "fields": fields_of(question, told) if question is not None else [],
        "asks": asks,
        "is_unfolded": asks or bool(told.notice),
        "told": told,
    }
    return Card(key=ids.encode("tcl", call.pk), template="console/tools/call.html", context=context)


def arguments_of(arguments: Any) -> list[tuple[str, str]]:
    """Arguments with text of several lines one by one, that text as it is and the others as JSON; else nothing."""
    if not isinstance(arguments, dict):
        return []
    if not any(isinstance(value, str) and "\n" in value for value in arguments.values()):
        return []
    return [
        (name, value if isinstance(value, str) and "\n" in value else pretty(value))
        for name, value in arguments.items()
    ]


def standing_of(call: ToolCall) -> Standing:
    if call.outcome is not None:
        return _OUTCOMES[call.outcome]
    if call.state == ToolCallState.WAITING:
        return _WAITS.get(call.tool_class, Standing(word="Waiting", tone="wait"))
    return _STATES[call.state]


def fields_of(row: Question, told: Told = NOTHING) -> list[Field]:
    """The form with the stored answers in it, else with those of the attempt."""
    answers = row.answers if row.answers is not None else told.answers or []
    found = []
    for number, form in enumerate(row.questions):
        answer = answers[number] if number < len(answers) else {}
        chosen = answer.get("options") or []
        options = [
            Option(
                number=index,
                label=str(option.get("label", "")),
                description=str(option.get("description") or ""),
                is_chosen=index in chosen,
            )
            for index, option in enumerate(form.get("options") or [])
        ]
        found.append(
            Field(
                number=number,
                text=str(form.get("text", "")),
                options=options,
                multiple=bool(form.get("multiple")),
                allow_text=bool(form.get("allow_text")),
                said=str(answer.get("text") or ""),
                error=told.errors.get(number, ""),
            )
        )
    return found


class _Named:
    """The ids that entries name."""

    def __init__(self) -> None:
        self.calls: set[UUID] = set()
        self.approvals: set[UUID] = set()
        self.questions: set[UUID] = set()

    def read(self, entry: Entry) -> None:
        data = entry.data or {}
        if entry.kind == "assistant_message":
            for block in data.get("content") or []:
                if block.get("type") == "tool_call":
                    _add(self.calls, "tcl", block.get("tool_call"))
            return
        _add(self.calls, "tcl", data.get("tool_call"))
        if entry.kind.startswith("approval_"):
            _add(self.approvals, "apr", data.get("approval"))
        elif entry.kind.startswith("question_"):
            _add(self.questions, "qst", data.get("question"))


def _add(known: set[UUID], prefix: str, text: Any) -> None:
    if not isinstance(text, str) or not text:
        return
    try:
        known.add(ids.decode(prefix, text))
    except ids.InvalidId:
        return
