"""Tickets for sockets: asked for with a key or a cookie, used once by a browser that can send neither (F6).

A ticket gives what its holder has when it is used, not when it was made: a key revoked in between opens nothing.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app import access as accesses
from sessions_app.access import Access, Forbidden, Unauthenticated
from sessions_app.errors import NotFound
from sessions_app.models import Session, Ticket
from sessions_app.models.fields import ClockTimestamp

_MARK = "tnt_"
_FORM = re.compile(r"tnt_[A-Za-z0-9_-]{43}", re.ASCII)


class InvalidTicket(Unauthenticated):
    """This ticket does not exist, was used, or has expired."""

    code = "invalid_ticket"


@dataclass(frozen=True, slots=True)
class NewTicket:
    text: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Redeemed:
    """Who it stands for; `session` is the only one that may be followed with it, None for all of the project."""

    access: Access
    session: UUID | None


def issue(*, access: Access, session: UUID | None = None) -> NewTicket:
    """A ticket for the caller, for one session or for every feed of the project. Raises `NotFound`."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        if session is not None and not _exists(session, access):
            raise NotFound("no such session")
        text = _MARK + secrets.token_urlsafe(32)
        row = Ticket.objects.create(
            project=access.project,
            session_id=session,
            key=access.key,
            user=access.user,
            digest=accesses.digest_of(text),
            expires_at=ClockTimestamp() + timedelta(seconds=settings.TENURE.ticket_lifetime),
        )
        row.refresh_from_db(fields=["expires_at"])
    return NewTicket(text, row.expires_at)


def redeem(text: str) -> Redeemed:
    """Use a ticket. Of two at once one gets in: the other waits for the row and finds it gone.

    Raises `InvalidTicket`, and what its holder is refused with by now.
    """
    if not _FORM.fullmatch(text):
        raise InvalidTicket
    expired = ExpressionWrapper(Q(expires_at__lte=ClockTimestamp()), output_field=BooleanField())
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = (
            Ticket.objects.select_for_update(of=["self"])
            .select_related("user")
            .annotate(is_expired=expired)
            .filter(digest=accesses.digest_of(text))
            .first()
        )
        if row is None:
            raise InvalidTicket
        Ticket.objects.filter(pk=row.pk).delete()
    if cast("Any", row).is_expired:
        raise InvalidTicket
    if row.key_id is not None:
        return Redeemed(accesses.by_key_id(row.key_id), row.session_id)
    if row.user is None or not row.user.is_active:
        raise Forbidden("this user may no longer use the API")
    return Redeemed(accesses.by_user(row.user, project=row.project_id), row.session_id)


def delete_expired(*, limit: int = 1000) -> int:
    """Housekeeping: those that were never used."""
    old = Ticket.objects.filter(expires_at__lt=ClockTimestamp())
    batch = list(old.order_by("expires_at").values_list("pk", flat=True)[:limit])
    return Ticket.objects.filter(pk__in=batch).delete()[0]


def _exists(session: UUID, access: Access) -> bool:
    return Session.objects.filter(pk=session, project=access.project).exists()
