"""`GET /entries`, the project's feed by pages, and `POST /tickets`, for the sockets of browsers."""

from typing import Annotated, Any, ClassVar, TypedDict

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import tickets
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import ApiView
from sessions_app.api.fields import Body, Query, SessionRef
from sessions_app.api.openapi import operation, ref
from sessions_app.api.shapes import Time, time
from sessions_app.api.stream_requests import Cursor, Words
from sessions_app.feed import filters, paging
from sessions_app.idempotency import Answer


class TicketRequest(Body):
    """Without `session` it opens every feed of the project."""

    session: SessionRef | None = None


class TicketShape(TypedDict):
    """For one socket or stream, as the parameter `ticket`; only this answer shows it."""

    ticket: str
    expires_at: Time


class TicketsView(ApiView):
    @operation(
        "create_ticket",
        "Get a ticket for a socket",
        tag="feed",
        body=TicketRequest,
        answers={201: TicketShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """One use, within a minute. It gives what the caller may do, for browsers, which can't send a key."""
        body = self.body(TicketRequest)

        def effect() -> Answer:
            made = tickets.issue(access=self.access, session=body.session)
            answer: TicketShape = {"ticket": made.text, "expires_at": time(made.expires_at)}
            return Answer(201, answer)

        return self.once(effect, sealed=True)


class ProjectEntriesQuery(Query):
    repeated: ClassVar[frozenset[str]] = frozenset({"kinds", "label", "session"})

    cursor: Annotated[
        Cursor, Field(description="of a page before or of the project's feed; `0` is the beginning")
    ] = "0"
    limit: Annotated[int, Field(ge=1, le=500, description="entries a page")] = 100
    kinds: Annotated[Words, Field(description="kinds of entries, with commas")] = []
    label: Annotated[Words, Field(description="key:value of the session; repeated, all must hold")] = []
    session: Annotated[Words, Field(description="ids of sessions, with commas")] = []


_PAGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "data": {"type": "array", "items": ref(shapes.EntryShape)},
        "next_cursor": {"type": ["string", "null"], "maxLength": 1024},
        "cursor": {
            "type": "string",
            "maxLength": 1024,
            "description": "behind this page, also where it is the last: to look again later, or to follow the feed",
        },
    },
    "required": ["data", "next_cursor", "cursor"],
}


class ProjectEntriesView(ApiView):
    @operation(
        "list_project_entries",
        "Read a project's log",
        tag="feed",
        query=ProjectEntriesQuery,
        answers={200: _PAGE},
    )
    def get(self, request: Request) -> Response:
        """Of all sessions; each session's entries in order. Nothing is skipped, however late it was committed."""
        query = self.query(ProjectEntriesQuery)
        only = filters.parse(kinds=query.kinds, sessions=query.session, labels=query.label)
        found = paging.page(
            self.project, cursor=query.cursor, limit=query.limit, only=only, shape=shapes.entry
        )
        return Response(
            {
                "data": found.entries,
                "next_cursor": found.cursor if found.more else None,
                "cursor": found.cursor,
            }
        )
