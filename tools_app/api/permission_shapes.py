"""Explanations and remembered decisions as clients see them."""

from typing import Annotated, Any, TypedDict

from pydantic import Field

from sessions_app import ids
from sessions_app.api.shapes import (
    ActorShape,
    ConfigId,
    SessionId,
    Time,
    id_field,
    shape_of,
    time,
    time_or_none,
)
from sessions_app.models import AgentConfig
from tools_app.api.people_shapes import ApprovalId
from tools_app.explanation import Explanation
from tools_app.models import RememberedDecision


class RememberedShape(TypedDict):
    """An allowance for calls of `tool`, in one session or always.

    It covers calls that a rule with the argument matchers `pattern` asks about or, where that is null, calls with
    equal `arguments`. `approval` is the decision that it was made with.
    """

    id: Annotated[str, id_field("rem")]
    decision: Annotated[str, Field(description="allow")]
    scope: Annotated[str, Field(description="session or always")]
    session: SessionId | None
    tool: str
    pattern: dict[str, Any] | None
    arguments: dict[str, Any] | None
    approval: ApprovalId | None
    created_by: ActorShape
    created_at: Time
    expires_at: Time | None
    revoked_by: ActorShape | None
    revoked_at: Time | None


# A field called `class` can't be written as one.
_OfClass = TypedDict(
    "_OfClass", {"class": Annotated[str | None, Field(description="null for a tool that is not there")]}
)


class ExplanationShape(_OfClass):
    """What would become of a call, and why."""

    config: ConfigId
    tool: str
    then: Annotated[str, Field(description="allow, ask, deny; or fail, before anybody is asked")]
    source: Annotated[str, Field(description="rule, remembered, default; or call, where it fails")]
    rule: Annotated[int | None, Field(description="its index in the permissions of the config")]
    why: str
    expires_after: Annotated[float | None, Field(description="seconds that an approval waits")]
    on_expiry: str | None
    remembered: RememberedShape | None
    arguments: Annotated[dict[str, Any], Field(description="as they would be stored and run")]
    arguments_digest: Annotated[str, Field(description="SHA-256; equal for equal arguments")]


@shape_of.register
def remembered(row: RememberedDecision) -> RememberedShape:
    return {
        "id": ids.encode("rem", row.pk),
        "decision": "allow",
        "scope": "always" if row.session_id is None else "session",
        "session": None if row.session_id is None else ids.encode("ses", row.session_id),
        "tool": row.tool,
        "pattern": row.pattern,
        "arguments": row.arguments,
        "approval": None if row.approval_id is None else ids.encode("apr", row.approval_id),
        "created_by": row.created_by,
        "created_at": time(row.created_at),
        "expires_at": time_or_none(row.expires_at),
        "revoked_by": row.revoked_by,
        "revoked_at": time_or_none(row.revoked_at),
    }


def explanation(config: AgentConfig, tool: str, said: Explanation) -> ExplanationShape:
    return {
        "config": ids.encode("cfg", config.pk),
        "tool": tool,
        "class": said.tool_class,
        "then": said.then,
        "source": said.source,
        "rule": said.rule,
        "why": said.why,
        "expires_after": said.expires_after,
        "on_expiry": said.on_expiry,
        "remembered": None if said.remembered is None else remembered(said.remembered),
        "arguments": dict(said.arguments),
        "arguments_digest": said.digest,
    }
