"""One session."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from sessions_app import ids
from sessions_app.console import standing
from sessions_app.console.pages import ConsolePage
from sessions_app.console.session_list import session_rows
from sessions_app.errors import NotFound
from sessions_app.models import Session


class SessionDoor(ConsolePage):
    """A page below one session. The session says in which project it is, and the switcher follows."""

    place = "console:sessions"

    def found(self, text: str) -> Session:
        """The session with this id, read as a list reads it; from here on the page is in its project."""
        row = session_rows().select_related("project").filter(pk=_decoded(text)).first()
        if row is None:
            raise NotFound("no such session")
        self.move_to(row.project)
        return row


class SessionPage(SessionDoor):
    def get(self, request: HttpRequest, session: str) -> HttpResponse:
        """How it stands."""
        row = self.found(session)
        return self.page("console/session.html", {"session": row, "standing": standing.of_session(row)})


def _decoded(text: str) -> UUID:
    try:
        return ids.decode("ses", text)
    except ids.InvalidId:
        raise NotFound("no such session") from None
