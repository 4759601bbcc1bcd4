"""Internal tools: effect and result are one transaction, so a crash never finds them half done."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sessions_app import log
from sessions_app.entry_kinds import SessionUpdated
from sessions_app.log import NewEntry
from sessions_app.models import Session
from tools_app.tool import ToolContext, ToolFailed, tool

MAX_KEY = 100
MAX_VALUE = 500
MAX_LABELS = 64
MAX_TODOS = 100


@tool(cls="internal")
def set_label(
    key: Annotated[str, Field(min_length=1, max_length=MAX_KEY)],
    value: Annotated[str, Field(max_length=MAX_VALUE)] | None,
    session: Session,
    context: ToolContext,
) -> str:
    """Set a label of this session, a short key with a short text, or remove it with null."""
    labels = dict(session.labels)
    if labels.get(key) == value:
        return f"The label {key} is as it should be."
    if value is None:
        del labels[key]
    elif key not in labels and len(labels) >= MAX_LABELS:
        raise ToolFailed(f"A session has at most {MAX_LABELS} labels; remove one first.")
    else:
        labels[key] = value
    session.labels = labels
    _tell(session, context, labels=labels)
    return f"The label {key} is removed." if value is None else f"The label {key} is set."


class Todo(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=500)]
    state: Literal["pending", "in_progress", "completed"] = "pending"


@tool(cls="internal")
def update_todos(
    todos: Annotated[list[Todo], Field(max_length=MAX_TODOS)], session: Session, context: ToolContext
) -> str:
    """Write down what you mean to do in this session, for yourself and for the people who watch. Give the whole
    list each time, in the order of the work; it replaces the one before. Mark a todo in_progress when you begin
    it and completed as soon as it is done.

    Args:
        todos: The whole list; an empty one clears it.
    """
    listed = [todo.model_dump() for todo in todos]
    if listed == (session.todos or []):
        return "The todos are as they should be."
    session.todos = listed
    _tell(session, context, todos=listed)
    if not listed:
        return "The list is empty now."
    done = sum(todo.state == "completed" for todo in todos)
    return f"The list is saved: {done} of {len(todos)} completed."


def _tell(session: Session, context: ToolContext, **changes: Any) -> None:
    data = SessionUpdated(changes=changes)
    log.append(
        session,
        NewEntry(kind="session_updated", data=data, turn=session.turn_id),
        attempt=context.attempt,
    )
