"""Internal tools for subagents: start them, speak to them, wait for them, stop them (T8).

Each works inside the fence of the session that calls it. What it does to a subagent needs that session's row too,
so the tools that change one say beforehand, from their arguments, which rows they need (`ToolDefinition.needs`),
and all are locked together in id order (L11).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sessions_app import children, control, ids, inputs, scheduling, session_service, wakeups
from sessions_app.errors import NotFound, TenureError
from sessions_app.inputs import NewInput
from sessions_app.models import Delivery, Session
from sessions_app.session_service import Parent
from sessions_app.tool_port import MoreSessions, ToolContext
from tools_app.child_waits import Wait, show
from tools_app.definitions import ToolDefinition
from tools_app.internal import MAX_KEY
from tools_app.models import ChildWaitMode, ToolClass
from tools_app.results import ToolFailed

MOST_LISTED = 100

type Arguments = dict[str, Any]
type Run = Callable[[Arguments, ToolContext, Session], Any]


def _told(run: Run) -> Run:
    """Errors of services are for the model to read: they name a limit, a missing profile and the like."""

    def told(arguments: Arguments, context: ToolContext, session: Session) -> Any:
        try:
            return run(arguments, context, session)
        except (TenureError, children.SubagentLimit) as error:
            why = str(error)
            raise ToolFailed(f"{why[:1].upper()}{why[1:]}.") from error

    return told


@_told
def start_subagent(arguments: Arguments, context: ToolContext, session: Session) -> Any:
    # Not in the schema: few providers know `propertyNames`, and some refuse it.
    if not all(0 < len(key) <= MAX_KEY for key in arguments.get("labels") or ()):
        raise ToolFailed(f"The name of a label has 1 to {MAX_KEY} characters.")
    children.check_room(session)
    profile, config = None, None
    if arguments.get("profile"):
        profile = session_service.profile_named(project=session.project_id, text=arguments["profile"])
    elif arguments.get("config"):
        config = _id_in("cfg", arguments["config"])
    else:
        config = session.config_id
    child = session_service.start_session(
        project=session.project_id,
        actor=children.actor_of(session),
        profile=profile,
        config=config,
        name=arguments.get("name") or "",
        labels=arguments.get("labels"),
        priority=session.priority,
        input=NewInput(
            content=[{"type": "text", "text": arguments["input"]}], actor=children.actor_of(session)
        ),
        child_of=Parent(session, ids.decode("tcl", context.token)),
    )
    if arguments.get("wait"):
        return Wait((child.pk,))
    return _listed([child.pk])


@_told
def message_subagent(arguments: Arguments, context: ToolContext, session: Session) -> Any:
    child = _child(arguments["subagent"], context, session)
    if child.archived_at is not None:
        raise ToolFailed("This subagent is archived: it can't be spoken to any more.")
    children.check_room(session, beside=child.pk)
    content = [{"type": "text", "text": arguments["content"]}]
    new = NewInput(
        content=content,
        actor=children.actor_of(session),
        delivery=arguments.get("delivery") or Delivery.STEERING,
    )
    inputs.add_locked(child, new)
    scheduling.give_work(child)
    child.save()
    wakeups.after_commit(child)
    if arguments.get("wait"):
        return Wait((child.pk,))
    return _listed([child.pk])


@_told
def wait_subagents(arguments: Arguments, context: ToolContext, session: Session) -> Any:
    del context
    named = arguments.get("subagents")
    wanted = [_id_in("ses", text) for text in named or ()]
    mine = children.of(session.pk, archived=True)
    for child in wanted:
        if child not in mine:
            raise NotFound(f"there is no subagent {ids.encode('ses', child)} of this session")
    if not named:
        wanted = children.of(session.pk, only_open=True)
    return Wait(tuple(dict.fromkeys(wanted)), arguments.get("mode") or ChildWaitMode.ALL)


@_told
def stop_subagent(arguments: Arguments, context: ToolContext, session: Session) -> Any:
    child = _child(arguments["subagent"], context, session)
    below = {child.pk, *children.descendants(child.pk)}
    if not below <= context.sessions.keys():
        raise MoreSessions(below)
    actor = children.actor_of(session)
    control.cancel_locked(context.sessions, child.pk, actor=actor, drop_from=actor["id"])
    return _listed([child.pk])


def list_subagents(arguments: Arguments, context: ToolContext, session: Session) -> Any:
    del arguments, context
    return _listed(children.of(session.pk)[-MOST_LISTED:])


def _tree_of(arguments: Mapping[str, Any]) -> set[UUID]:
    child = _subagent(arguments)
    return {child, *children.descendants(child)} if child is not None else set()


def _itself(arguments: Mapping[str, Any]) -> set[UUID]:
    child = _subagent(arguments)
    return {child} if child is not None else set()


def _subagent(arguments: Mapping[str, Any]) -> UUID | None:
    try:
        return ids.decode("ses", arguments["subagent"])
    except ids.InvalidId:
        return None  # the tool says so


def _child(text: str, context: ToolContext, session: Session) -> Session:
    """The locked row of one of the session's subagents."""
    child = context.sessions.get(_id_in("ses", text))
    if child is None or child.parent_id != session.pk:
        raise NotFound(f"there is no subagent {text} of this session")
    return child


def _id_in(prefix: str, text: str) -> UUID:
    try:
        return ids.decode(prefix, text)
    except ids.InvalidId:
        raise NotFound(f"{text!r} is no id of the form {prefix}_…") from None


def _listed(sessions: Sequence[UUID]) -> dict[str, Any]:
    return show(children.reports(sessions))


def _schema(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_SUBAGENT = {"type": "string", "description": "the id of the subagent, ses_…"}
_WAIT = {"type": "boolean", "description": "wait for its answer; without it, it works on by itself"}

TOOLS = [
    ToolDefinition(
        name="start_subagent",
        description=(
            "Start a subagent: an agent of its own that works on what you give it. It knows nothing of this "
            "conversation, so the input has to say everything it needs. Without `wait` you go on at once and "
            "ask for its answer later with wait_subagents."
        ),
        input_schema=_schema(
            ["input"],
            input=_TEXT | {"description": "what it shall do, with all it needs to know"},
            profile=_TEXT | {"description": "the profile it runs under; without it, it is an agent like you"},
            config=_TEXT | {"description": "the config it runs under, cfg_…, instead of a profile"},
            name={"type": "string", "maxLength": 200, "description": "a short name, to tell it from others"},
            labels={
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 500},
                "maxProperties": 16,
            },
            wait=_WAIT,
        ),
        tool_class=ToolClass.INTERNAL,
        run=start_subagent,
    ),
    ToolDefinition(
        name="message_subagent",
        description=(
            "Say something to a subagent. It reads it before its next step, or goes to work again if it was done."
        ),
        input_schema=_schema(
            ["subagent", "content"],
            subagent=_SUBAGENT,
            content=_TEXT,
            delivery={
                "enum": ["steering", "queued"],
                "description": "steering (the default) joins what it works on now, queued comes after that",
            },
            wait=_WAIT,
        ),
        tool_class=ToolClass.INTERNAL,
        run=message_subagent,
        needs=_itself,
    ),
    ToolDefinition(
        name="wait_subagents",
        description=(
            "Wait until subagents are done, and get their answers. Without `subagents` it is about all that work now "
            "and those whose answer you have not seen yet."
        ),
        input_schema=_schema(
            [],
            subagents={"type": "array", "items": _SUBAGENT, "maxItems": 100},
            mode={
                "enum": ["all", "any"],
                "description": "all (the default), or any: until the first of them is done",
            },
        ),
        tool_class=ToolClass.INTERNAL,
        run=wait_subagents,
    ),
    ToolDefinition(
        name="stop_subagent",
        description="Stop what a subagent works on, and what its own subagents do. It can be spoken to afterwards.",
        input_schema=_schema(["subagent"], subagent=_SUBAGENT),
        tool_class=ToolClass.INTERNAL,
        run=stop_subagent,
        needs=_tree_of,
    ),
    ToolDefinition(
        name="list_subagents",
        description="List the subagents that you started, with what they are doing and their answers so far.",
        input_schema=_schema([]),
        tool_class=ToolClass.INTERNAL,
        run=list_subagents,
    ),
]
