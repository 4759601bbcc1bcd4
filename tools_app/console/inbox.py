"""The inbox: everything that waits for a person in a project, oldest first, to be answered where it stands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from sessions_app import ids
from sessions_app.console.cards import Card
from sessions_app.console.pages import ConsolePage
from tools_app.console import cards
from tools_app.models import Approval, ApprovalState, Question, QuestionState, ToolCall

SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """An open approval or question with the card of its call."""

    key: str
    is_approval: bool
    name: str
    session_key: str
    session_name: str
    assignee: str | None
    created_at: datetime
    card: Card


class Inbox(ConsolePage):
    place = "inbox:inbox"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page; for htmx its list. `assignee` is me, nobody or a name."""
        whose = request.GET.get("assignee", "")[:200]
        found, more = prompts(self.project, assignee=_assignee(whose, request.user.get_username()))
        context: dict[str, Any] = {
            "prompts": found,
            "more": more,
            "approvals": any(prompt.is_approval for prompt in found),
            "whose": whose,
        }
        if self.is_fragment:
            return self.fragment("console/inbox/list.html", context)
        return self.page("console/inbox/page.html", context)


def waiting(project: UUID) -> int:
    """How many approvals and questions are open, for the navigation. One query, of indexes of open ones."""
    approvals = Approval.objects.filter(project_id=project, state=ApprovalState.OPEN).order_by().values("pk")
    questions = Question.objects.filter(project_id=project, state=QuestionState.OPEN).order_by().values("pk")
    return approvals.union(questions, all=True).count()


def prompts(project: UUID, *, assignee: str | None = None) -> tuple[list[Prompt], int]:
    """The oldest open ones, and how many more there are. `assignee` "" is those that nobody has taken."""
    approvals = _open(Approval.objects.filter(state=ApprovalState.OPEN), project, assignee)
    questions = _open(Question.objects.filter(state=QuestionState.OPEN), project, assignee)
    both: list[Approval | Question] = [*approvals, *questions]
    both.sort(key=lambda row: (row.created_at, row.pk))
    total = len(both)
    if max(len(approvals), len(questions)) > SHOWN:
        total = max(total, waiting(project)) if assignee is None else total
    both = both[:SHOWN]
    calls = [row.tool_call_id for row in both if row.tool_call_id is not None]
    rows = {row.pk: row for row in ToolCall.objects.filter(pk__in=calls)}
    allowed_before = {
        row.tool_call_id: row
        for row in Approval.objects.filter(
            tool_call_id__in=[row.tool_call_id for row in both if isinstance(row, Question)]
        )
    }
    made = cards.cards(
        project,
        rows.values(),
        [*(row for row in both if isinstance(row, Approval)), *allowed_before.values()],
        [row for row in both if isinstance(row, Question)],
    )
    return [_prompt(row, made) for row in both], max(0, total - len(both))


def _open(rows: QuerySet[Any], project: UUID, assignee: str | None) -> list[Any]:
    rows = rows.filter(project_id=project).select_related("session")
    if assignee == "":
        rows = rows.filter(assignee=None)
    elif assignee is not None:
        rows = rows.filter(assignee=assignee)
    return list(rows.order_by("created_at", "id")[: SHOWN + 1])


def _prompt(row: Approval | Question, made: dict[str, Card]) -> Prompt:
    is_approval = isinstance(row, Approval)
    key = ids.encode("apr" if is_approval else "qst", row.pk)
    card = made[key if row.tool_call_id is None else ids.encode("tcl", row.tool_call_id)]
    return Prompt(
        key=key,
        is_approval=is_approval,
        name=row.name if isinstance(row, Approval) else "question",
        session_key=ids.encode("ses", row.session_id),
        session_name=row.session.name,
        assignee=row.assignee,
        created_at=row.created_at,
        card=card,
    )


def _assignee(whose: str, me: str) -> str | None:
    match whose:
        case "":
            return None
        case "me":
            return me
        case "nobody":
            return ""
    return whose
