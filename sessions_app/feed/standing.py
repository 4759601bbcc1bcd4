"""Whether those who follow feeds may still do so: one look for all of them, however many there are (F6)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session as Login
from django.db.models import Q

from sessions_app.access import Access, Forbidden, InvalidKey, Unauthenticated
from sessions_app.errors import NotFound, TenureError
from sessions_app.models import ApiKey, Project, Session
from sessions_app.models.fields import ClockTimestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One follower: who it is, the browser session it came with, and the session it follows."""

    access: Access
    login: str | None = None
    session: UUID | None = None


def refusals(subjects: Sequence[Subject]) -> list[TenureError | None]:
    """Why each one has to end; None for those that go on."""
    keys = _standing(_valid_keys, (s.access.key.pk for s in subjects if s.access.key is not None))
    users = _standing(_active_staff, (s.access.user.pk for s in subjects if s.access.user is not None))
    logins = _standing(_open_logins, (s.login for s in subjects if s.login is not None))
    projects = _standing(_projects, (s.access.project.pk for s in subjects))
    sessions = _standing(_sessions, (s.session for s in subjects if s.session is not None))

    def refusal(subject: Subject) -> TenureError | None:
        access = subject.access
        if access.key is not None and access.key.pk not in keys:
            return InvalidKey("this API key was revoked, deleted or has expired")
        if access.user is not None and access.user.pk not in users:
            return Forbidden("this user may no longer use the API")
        if subject.login is not None and subject.login not in logins:
            return Unauthenticated("the browser session has ended; log in again")
        if access.project.pk not in projects or (
            subject.session is not None and subject.session not in sessions
        ):
            return NotFound("no such session")
        return None

    return [refusal(subject) for subject in subjects]


def _standing(look: Callable[[set[Any]], Iterable[Any]], wanted: Iterable[Any]) -> set[Any]:
    found = set(wanted)
    return set(look(found)) if found else found


def _valid_keys(keys: set[Any]) -> Iterable[Any]:
    unexpired = Q(expires_at=None) | Q(expires_at__gt=ClockTimestamp())
    return ApiKey.objects.filter(unexpired, pk__in=keys, revoked_at=None).values_list("pk", flat=True)


def _active_staff(users: set[Any]) -> Iterable[Any]:
    return (
        get_user_model()
        .objects.filter(pk__in=users, is_active=True, is_staff=True)
        .values_list("pk", flat=True)
    )


def _open_logins(logins: set[Any]) -> Iterable[Any]:
    return Login.objects.filter(pk__in=logins, expire_date__gt=ClockTimestamp()).values_list("pk", flat=True)


def _projects(projects: set[Any]) -> Iterable[Any]:
    return Project.objects.filter(pk__in=projects).values_list("pk", flat=True)


def _sessions(sessions: set[Any]) -> Iterable[Any]:
    return Session.objects.filter(pk__in=sessions).values_list("pk", flat=True)
