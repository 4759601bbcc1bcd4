"""Sessions whose last turn failed: finding them, and giving many of them another try."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from django.db.models import F, QuerySet

from sessions_app import rewinding
from sessions_app.entry_kinds import Actor
from sessions_app.errors import TenureError
from sessions_app.models import Session, SessionStatus, TurnStatus

AT_REST = (SessionStatus.IDLE, SessionStatus.WAITING)


def failed_sessions(*, project: UUID | None = None, reason: str | None = None) -> QuerySet[Session]:
    """Sessions at rest whose last turn failed, for one of the turn's reasons if given.

    It starts from the few turns that failed, however many sessions there are.
    """
    found = Session.objects.filter(
        turns__status=TurnStatus.FAILED, turns__pk=F("last_turn_id"), turn=None, status__in=AT_REST
    )
    if project is not None:
        found = found.filter(project_id=project)
    if reason is not None:
        found = found.filter(turns__reason=reason)
    return found


def retry_each(sessions: Iterable[UUID], *, actor: Actor) -> Iterator[tuple[UUID, str | None]]:
    """`rewinding.retry`, one session after the other: (session, None or why it was refused)."""
    for session in sessions:
        try:
            rewinding.retry(session=session, actor=actor)
        except TenureError as error:
            yield session, error.detail
        else:
            yield session, None
