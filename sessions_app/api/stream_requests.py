"""Query parameters of feeds."""

from typing import Annotated, ClassVar
from uuid import UUID

from django.http import HttpRequest, QueryDict
from pydantic import Field

from sessions_app.access import Forbidden
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import checked_query, path_id
from sessions_app.api.fields import Query
from sessions_app.api.stream_access import Admission
from sessions_app.errors import NotFound
from sessions_app.feed import filters
from sessions_app.feed.cursors import MAX_LENGTH
from sessions_app.feed.filters import Filter
from sessions_app.feed.sources import ProjectSource, SessionSource
from sessions_app.models import Session

Cursor = Annotated[str, Field(max_length=MAX_LENGTH)]
Words = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=50)]


class StreamQuery(Query):
    """`project` goes with a cookie, `ticket` with nothing else."""

    after: Cursor = "0"
    project: Annotated[str, Field(max_length=100)] | None = None
    ticket: Annotated[str, Field(max_length=100)] | None = None


class SessionStreamQuery(StreamQuery):
    deltas: bool = False


class ProjectStreamQuery(StreamQuery):
    repeated: ClassVar[frozenset[str]] = frozenset({"kinds", "label", "session"})

    kinds: Words = []
    label: Words = []
    session: Words = []

    def filter(self) -> Filter:
        return filters.parse(kinds=self.kinds, sessions=self.session, labels=self.label)


def session_query(given: QueryDict) -> SessionStreamQuery:
    return checked_query(SessionStreamQuery, given)


def project_query(given: QueryDict) -> ProjectStreamQuery:
    return checked_query(ProjectStreamQuery, given)


def session_source(admission: Admission, text: str) -> SessionSource:
    """The session's feed, if it is visible. Reads the database."""
    key = path_id("ses", text)
    _allow(admission, key)
    if not Session.objects.filter(pk=key, project=admission.access.project).exists():
        raise NotFound("no such session")
    return SessionSource(key, shapes.entry)


def project_source(admission: Admission) -> ProjectSource:
    _allow(admission, None)
    return ProjectSource(admission.access.project.pk, shapes.entry)


def _allow(admission: Admission, session: UUID | None) -> None:
    if admission.only_session is not None and admission.only_session != session:
        raise Forbidden("this ticket is for another feed")


def last_event_id(request: HttpRequest) -> str | None:
    """Where a browser that connects again says that it stands; more recent than the address it began with."""
    text = request.headers.get("Last-Event-ID")
    return text or None
