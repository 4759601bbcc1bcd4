"""Named secrets of a project: stored encrypted, used by name, never returned (see `key_ring`)."""

import base64
import re
from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils.crypto import salted_hmac

from sessions_app import key_ring
from sessions_app.errors import Invalid, NotFound, TenureError
from sessions_app.models import Project, Secret
from sessions_app.models.fields import ClockTimestamp
from sessions_app.text import REPLACEMENT

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)


class NoKeyRing(TenureError):
    """Secrets can't be stored: this deployment has no TENURE_SECRET_KEYS."""

    code = "no_secret_keys"
    status = 503


def put_secret(*, project: Project, name: str, value: str) -> tuple[Secret, bool]:
    """Store or replace; returns the row and whether it is new. The name is one that configs can use."""
    if not _NAME.fullmatch(name):
        raise _invalid("name", "a name has letters, digits, and _ . - inside, at most 100 characters")
    if "\0" in value or REPLACEMENT in value:
        raise _invalid("value", "holds a character that can't be stored")
    ciphertext = key_ring.encrypt(value, keys=_keys()).decode()
    with transaction.atomic(durable=not connection.in_atomic_block):
        row, is_new = Secret.objects.update_or_create(
            project=project,
            name=name,
            defaults={"ciphertext": ciphertext, "updated_at": ClockTimestamp()},
            create_defaults={"ciphertext": ciphertext},
        )
    row.refresh_from_db()
    return row, is_new


def get_secret(*, project: Project, name: str) -> Secret:
    row = Secret.objects.filter(project=project, name=name).first() if _NAME.fullmatch(name) else None
    if row is None:
        raise NotFound
    return row


def delete_secret(*, project: Project, name: str) -> None:
    get_secret(project=project, name=name).delete()


def reveal(project_id: UUID, name: str) -> str:
    """The value, for the code that sends it; raises `NotFound` or `UndecryptableSecret`."""
    ciphertext = (
        Secret.objects.filter(project_id=project_id, name=name).values_list("ciphertext", flat=True).first()
    )
    if ciphertext is None:
        raise NotFound(f"there is no secret named {name!r}")
    return key_ring.decrypt(ciphertext.encode(), keys=_keys())


def change_secret(project_id: UUID, name: str, change: Callable[[str], str]) -> str:
    """Replace the value by what `change` makes of it, under the lock of its row; returns the new value.

    For values that only one may change at a time. What `change` raises leaves the secret as it was; so does the
    value it was given. Raises `NotFound`, `UndecryptableSecret` and `NoKeyRing` besides.
    """
    with transaction.atomic():
        row = Secret.objects.select_for_update().filter(project_id=project_id, name=name).first()
        if row is None:
            raise NotFound(f"there is no secret named {name!r}")
        value = key_ring.decrypt(row.ciphertext.encode(), keys=_keys())
        changed = change(value)
        if changed != value:
            row.ciphertext = key_ring.encrypt(changed, keys=_keys()).decode()
            row.updated_at = ClockTimestamp()
            row.save(update_fields=["ciphertext", "updated_at"])
    return changed


def _keys() -> tuple[str, ...]:
    """The ring; in development, where none has to be set, one key that follows from the secret key."""
    keys: tuple[str, ...] = settings.TENURE.secret_keys
    if keys:
        return keys
    if not settings.TENURE.debug:
        raise NoKeyRing
    digest = salted_hmac("tenure.secrets", "development", algorithm="sha256").digest()
    return (base64.urlsafe_b64encode(digest).decode(),)


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(
        f"/{field}: {message}", errors=[{"path": f"/{field}", "code": "malformed", "message": message}]
    )
