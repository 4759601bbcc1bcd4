"""Who is asking: API keys and staff members, each within one project.

One service for every door. REST views, asynchronous views and sockets turn what they were given (a bearer key,
a logged-in user) into an `Access`: the project, who acts in it, and the role. A key is looked up by the
SHA-256 of its text, so neither the table nor the time of a comparison tells anything about a key.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app import ids
from sessions_app.entry_kinds import Actor
from sessions_app.errors import NotFound, TenureError
from sessions_app.models import ApiKey, KeyRole, Project
from sessions_app.models.fields import ClockTimestamp

KEY_MARK = "tnk_"
KEY_FORM = re.compile(r"tnk_[A-Za-z0-9_-]{43}", re.ASCII)


class Unauthenticated(TenureError):
    """Send an API key: `Authorization: Bearer <key>`."""

    code = "unauthenticated"
    status = 401


class InvalidKey(Unauthenticated):
    """This API key does not exist, has expired or was revoked."""

    code = "invalid_key"


class Forbidden(TenureError):
    """This is not allowed for you."""

    code = "forbidden"
    status = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One caller in one project. Exactly one of `key` and `user` is set; `role` is member or admin."""

    project: Project
    role: str
    actor: Actor
    key: ApiKey | None = None
    user: Any = None

    @property
    def holder(self) -> str:
        """The scope of idempotency keys: two holders never meet, nor does one user in two projects (I4)."""
        return f"{self.actor['kind']}:{self.actor['id']}@{self.project.pk.hex}"

    @property
    def is_admin(self) -> bool:
        return self.role == KeyRole.ADMIN


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def by_key(text: str) -> Access:
    """The access that a bearer key gives; `InvalidKey` where it gives none."""
    if not KEY_FORM.fullmatch(text):
        raise InvalidKey
    return _by_key(digest=digest_of(text))


def by_key_id(key: UUID) -> Access:
    """The same for a key that was looked at before, as it is now."""
    return _by_key(pk=key)


def _by_key(**wanted: Any) -> Access:
    expired = ExpressionWrapper(Q(expires_at__lte=ClockTimestamp()), output_field=BooleanField())
    key = ApiKey.objects.select_related("project").annotate(is_expired=expired).filter(**wanted).first()
    if key is None:
        raise InvalidKey("no such API key")
    if key.revoked_at is not None:
        raise InvalidKey("this API key was revoked")
    if key.is_expired:
        raise InvalidKey("this API key has expired")
    actor = Actor(kind="key", id=ids.encode("key", key.pk), name=key.name)
    return Access(project=key.project, role=key.role, actor=actor, key=key)


def by_user(user: Any, *, project: UUID) -> Access:
    """A staff member's access to one project; until roles exist, staff see all of them."""
    if not user.is_staff:  # before the project is looked for: strangers learn nothing of it
        raise Forbidden("only staff may use the API with a browser session")
    found = Project.objects.filter(pk=project).first()
    if found is None:
        raise NotFound("no such project")
    return within(user, project=found)


def within(user: Any, *, project: Project) -> Access:
    """The same for a project that has been read already."""
    if not user.is_staff:
        raise Forbidden("only staff may use the API with a browser session")
    return Access(project=project, role=KeyRole.ADMIN, actor=actor_of(user), user=user)


def actor_of(user: Any) -> Actor:
    """A logged-in user. Django's users have numbers; in their TypeID, the number is the UUID."""
    return Actor(kind="user", id=ids.encode("usr", UUID(int=int(user.pk))), name=user.get_username())


def external(actor: Any) -> Actor:
    """The person that a backend names in `actor` (I8)."""
    return Actor(kind="external", id=actor.id, name=actor.name)
