"""The list of sessions: filters, search, and rows that stay true while one looks at them."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db import OperationalError, connection, transaction
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse

from sessions_app import profiles, session_search
from sessions_app.api.pagination import InvalidCursor, PageQuery, page
from sessions_app.console import standing
from sessions_app.console.pages import ConsolePage
from sessions_app.console.standing import Standing
from sessions_app.database import ran_out_of_time
from sessions_app.models import Input, InputState, Session, SessionStatus
from sessions_app.text import clean_text

SEARCH_TIME = 3000
"""Milliseconds that a search through messages may take; they have no index."""

STATUSES = (
    (SessionStatus.RUNNING, "Running"),
    (SessionStatus.QUEUED, "Queued"),
    (SessionStatus.WAITING, "Waiting"),
    (SessionStatus.BACKING_OFF, "Retrying"),
    (SessionStatus.IDLE, "Idle"),
)
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What the address asks for. What it can't mean is left out, as links grow old."""

    q: str = ""
    messages: bool = False
    statuses: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    profile: str = ""
    failed: bool = False
    archived: bool = False
    cursor: str = ""

    @classmethod
    def of(cls, request: HttpRequest) -> "Filters":
        def text(name: str) -> str:
            return clean_text(request.GET.get(name, "")).strip()[:_LONGEST]

        labels = [clean_text(label).strip()[:_LONGEST] for label in request.GET.getlist("label")[:20]]
        return cls(
            q=text("q"),
            messages=text("messages") == "1",
            statuses=tuple(name for name in request.GET.getlist("status") if name in SessionStatus.values),
            labels=tuple(dict.fromkeys(label for label in labels if ":" in label)),
            profile=text("profile"),
            failed=text("failed") == "1",
            archived=text("archived") == "1",
            cursor=request.GET.get("cursor", "")[:1024],
        )

    def parameters(self) -> dict[str, Any]:
        """Those of the address, without the cursor."""
        return {
            "q": self.q,
            "messages": "1" if self.messages else "",
            "status": list(self.statuses),
            "label": list(self.labels),
            "profile": self.profile,
            "failed": "1" if self.failed else "",
            "archived": "1" if self.archived else "",
        }

    def address(self, **changes: Any) -> str:
        """The list with some of the filters changed, from its first page."""
        merged = {**self.parameters(), **changes}
        return "?" + urlencode({name: value for name, value in merged.items() if value}, doseq=True)

    def without(self) -> list[tuple[str, str]]:
        """The labels that are asked for, each with the list that does without it."""
        return [
            (label, self.address(label=[other for other in self.labels if other != label]))
            for label in self.labels
        ]

    @property
    def any(self) -> bool:
        return any(self.parameters().values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A session as the list shows it."""

    session: Session
    standing: Standing
    queued: int
    labels: list[tuple[str, str, str]]  # key, value, the list with it as a filter


class Sessions(ConsolePage):
    place = "console:sessions"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page; for htmx only its rows."""
        filters = Filters.of(request)
        gave_up = False
        try:
            found = self._found(filters)
        except _TooSlow:
            gave_up = True
            found = self._found(filters, in_messages=False)
        context = {
            "filters": filters,
            "rows": found["data"],
            "next": filters.address(cursor=found["next_cursor"]) if found["next_cursor"] else "",
            "gave_up": gave_up,
            "is_live": not filters.messages,
        }
        if self.is_fragment:
            return self.fragment("console/sessions/rows.html", context)
        context["statuses"] = STATUSES
        context["profiles"] = profiles.profiles_of(self.project).order_by("name")
        return self.page("console/sessions/list.html", context)

    def _found(self, filters: Filters, *, in_messages: bool = True) -> dict[str, Any]:
        rows = session_search.filtered(
            session_rows().filter(project_id=self.project),
            statuses=filters.statuses or None,
            labels=filters.labels,
            profile=filters.profile or None,
            failed=True if filters.failed else None,
            archived=filters.archived,
        )
        search = in_messages and filters.messages
        if filters.q:
            rows = session_search.speaking_of(rows, filters.q, in_messages=search)

        def shape(row: Session) -> Row:
            return _row(row, filters)

        query = PageQuery(cursor=filters.cursor or None)
        try:
            with transaction.atomic():
                if search:
                    _limit_time()
                found: dict[str, Any] = page(rows, query, shape, name="console-sessions")
        except InvalidCursor:
            found = page(rows, PageQuery(), shape, name="console-sessions")
        except OperationalError as error:
            if not ran_out_of_time(error):
                raise
            raise _TooSlow from error
        return found


class _TooSlow(Exception):
    """The search was stopped by its time limit."""


def _limit_time() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(SEARCH_TIME)])


def session_rows() -> QuerySet[Session]:
    """Sessions with all that a row of a list shows, in one statement."""
    waiting = (
        Input.objects.filter(session_id=OuterRef("pk"), state=InputState.RECEIVED)
        .order_by()
        .values("session_id")
        .annotate(count=Count("pk"))
        .values("count")
    )
    rows: QuerySet[Session] = Session.objects.select_related("turn", "last_turn", "profile").annotate(
        waiting_inputs=Subquery(waiting, output_field=IntegerField())
    )
    return rows


def _row(row: Session, filters: Filters) -> Row:
    labels = []
    for key, value in row.labels.items():
        wanted = f"{key}:{value}"
        labels.append(
            (key, str(value), filters.address(label=list(dict.fromkeys((*filters.labels, wanted)))))
        )
    queued: int = getattr(row, "waiting_inputs", None) or 0
    return Row(session=row, standing=standing.of_session(row), queued=queued, labels=labels)
