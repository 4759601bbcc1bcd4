"""Bodies and parameters of approvals and questions."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, StrictStr

from sessions_app.api.fields import ActorRef, Body, SessionRef, id_schema, reads_id
from sessions_app.api.pagination import PageQuery
from tools_app.approvals import MAX_AT_ONCE, MAX_REASON

ApprovalRef = Annotated[UUID, reads_id("apr"), id_schema("apr")]
QuestionRef = Annotated[UUID, reads_id("qst"), id_schema("qst")]
Reason = Annotated[StrictStr, Field(max_length=MAX_REASON)]
Assignee = Annotated[StrictStr, Field(min_length=1, max_length=200)]


class PromptsQuery(PageQuery):
    """What the lists of approvals and questions are filtered by, beside their states."""

    session: SessionRef | None = None
    assignee: Annotated[str, Field(max_length=200)] | None = None

    def lookups(self) -> dict[str, Any]:
        """As Django filters by it."""
        given = {"session_id": self.session, "assignee": self.assignee, "state": getattr(self, "state", None)}
        return {name: value for name, value in given.items() if value is not None}


class ApprovalsQuery(PromptsQuery):
    state: Literal["open", "allowed", "denied", "cancelled", "expired"] | None = None


class QuestionsQuery(PromptsQuery):
    state: Literal["open", "answered", "cancelled", "expired"] | None = None


class Decide(Body):
    """`remember` lets later calls like this one run without asking, in this session or always."""

    decision: Literal["allow", "deny"]
    reason: Reason | None = None
    remember: Literal["no", "session", "always"] = "no"
    actor: ActorRef | None = None


class OneDecision(Body):
    approval: ApprovalRef
    decision: Literal["allow", "deny"]
    reason: Reason | None = None
    remember: Literal["no", "session", "always"] = "no"


class DecideAll(Body):
    """All of them or none."""

    decisions: Annotated[list[OneDecision], Field(min_length=1, max_length=MAX_AT_ONCE)]
    actor: ActorRef | None = None


class Assign(Body):
    """Whose it is, for the inbox; null takes it back."""

    assignee: Assignee | None


class GiveAnswer(Body):
    """One answer for each question of the form: {options: [numbers from 0], text?}."""

    answers: list[Any]
    actor: ActorRef | None = None
