"""`/sessions/{id}/rewind` and `/retry`: going back on a session's branch."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import rewinding
from sessions_app.api import session_shapes as shapes
from sessions_app.api.openapi import operation
from sessions_app.api.session_requests import NoBody, RewindSession
from sessions_app.api.session_views import SessionDoor


class RewindView(SessionDoor):
    @operation(
        "rewind_session",
        "Go back to an entry",
        tag="sessions",
        body=RewindSession,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """The session goes on behind `to_seq`; what was behind it stays in the log, and one can go back to it.

        A turn that waits is cancelled. While one runs: 409 `session_busy`. Calls whose results are cut off are
        settled as interrupted when the session goes on.
        """
        body = self.body(RewindSession)
        return self.change(
            session,
            lambda: rewinding.rewind(session=session, to_seq=body.to_seq, actor=self.access.actor),
        )


class RetryView(SessionDoor):
    @operation(
        "retry_turn",
        "Repeat the last turn",
        tag="sessions",
        body=NoBody,
        answers={200: shapes.SessionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """Goes back to before the last turn and says the same again, as one new input.

        Where a turn crashed too often, inputs that wait since then go first. While a turn runs or is about to:
        409 `session_busy`; where there is none: 409 `nothing_to_retry`.
        """
        self.body(NoBody)
        return self.change(session, lambda: rewinding.retry(session=session, actor=self.access.actor))
