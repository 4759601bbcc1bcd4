"""API keys: made, listed and revoked. The text of a key exists once, in the answer to its creation."""

import secrets
from datetime import datetime
from uuid import UUID

import structlog
from django.db import connection, transaction

from sessions_app.access import KEY_MARK, digest_of
from sessions_app.errors import Invalid, NotFound
from sessions_app.models import ApiKey, KeyRole, Project
from sessions_app.models.fields import ClockTimestamp

logger = structlog.get_logger(__name__)

_SHOWN = 12


def create_key(
    *, project: UUID, name: str, role: str = KeyRole.MEMBER, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """The row and the key itself, which nobody can read again."""
    if role not in KeyRole.values:
        item = {
            "path": "/role",
            "code": "not_allowed",
            "message": f"must be one of {', '.join(KeyRole.values)}",
        }
        raise Invalid("no such role", errors=[item])
    text = KEY_MARK + secrets.token_urlsafe(32)
    row = ApiKey.objects.create(
        project_id=project,
        name=name,
        role=role,
        prefix=text[:_SHOWN],
        digest=digest_of(text),
        expires_at=expires_at,
    )
    logger.info("key.created", key=str(row.pk), project=str(project), role=role)
    return row, text


def get_key(*, project: UUID, key: UUID) -> ApiKey:
    row = ApiKey.objects.filter(project_id=project, pk=key).first()
    if row is None:
        raise NotFound
    return row


def revoke_key(*, project: UUID, key: UUID) -> ApiKey:
    """From now on the key opens nothing; it stays in the list. Revoking again changes nothing."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        ApiKey.objects.filter(project_id=project, pk=key, revoked_at=None).update(revoked_at=ClockTimestamp())
        row = get_key(project=project, key=key)
    logger.info("key.revoked", key=str(key), project=str(project))
    return row


def project_named(name: str) -> Project:
    """For commands."""
    row = Project.objects.filter(name=name).first()
    if row is None:
        raise NotFound(f"there is no project named {name!r}")
    return row
