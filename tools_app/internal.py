"""Internal tools: effect and result are one transaction, so a crash never finds them half done."""

from typing import Any

from sessions_app import log
from sessions_app.entry_kinds import SessionUpdated
from sessions_app.log import NewEntry
from sessions_app.models import Session
from sessions_app.tool_port import ToolContext
from tools_app.models import ToolClass
from tools_app.registry import ToolDefinition
from tools_app.results import ToolFailed

MAX_KEY = 100
MAX_VALUE = 500
MAX_LABELS = 64


def set_label(arguments: dict[str, Any], context: ToolContext, session: Session) -> str:
    key, value = arguments["key"], arguments.get("value")
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
    changed = NewEntry(
        kind="session_updated", data=SessionUpdated(changes={"labels": labels}), turn=session.turn_id
    )
    log.append(session, changed, attempt=context.attempt)
    return f"The label {key} is removed." if value is None else f"The label {key} is set."


TOOLS = [
    ToolDefinition(
        name="set_label",
        description="Set a label of this session, a short key with a short text, or remove it with null.",
        input_schema={
            "type": "object",
            "properties": {
                "key": {"type": "string", "minLength": 1, "maxLength": MAX_KEY},
                "value": {"type": ["string", "null"], "maxLength": MAX_VALUE},
            },
            "required": ["key", "value"],
            "additionalProperties": False,
        },
        tool_class=ToolClass.INTERNAL,
        run=set_label,
    )
]
