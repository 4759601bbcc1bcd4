"""Named secrets of a project: stored encrypted, used by name, never returned (see `key_ring`)."""

from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from sessions_app import key_ring
from sessions_app.errors import NotFound
from sessions_app.models import Project, Secret
from sessions_app.models.fields import ClockTimestamp


def put_secret(*, project: Project, name: str, value: str) -> tuple[Secret, bool]:
    """Store or replace; returns the row and whether it is new."""
    ciphertext = key_ring.encrypt(value, keys=settings.TENURE.secret_keys).decode()
    with transaction.atomic(durable=not connection.in_atomic_block):
        return Secret.objects.update_or_create(
            project=project,
            name=name,
            defaults={"ciphertext": ciphertext, "updated_at": ClockTimestamp()},
            create_defaults={"ciphertext": ciphertext},
        )


def delete_secret(*, project: Project, name: str) -> None:
    deleted, _ = Secret.objects.filter(project=project, name=name).delete()
    if not deleted:
        raise NotFound("no such secret")


def reveal(project_id: UUID, name: str) -> str:
    """The value, for the code that sends it; raises `NotFound` or `UndecryptableSecret`."""
    ciphertext = (
        Secret.objects.filter(project_id=project_id, name=name).values_list("ciphertext", flat=True).first()
    )
    if ciphertext is None:
        raise NotFound(f"there is no secret named {name!r}")
    return key_ring.decrypt(ciphertext.encode(), keys=settings.TENURE.secret_keys)
