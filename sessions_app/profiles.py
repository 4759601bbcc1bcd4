"""Profiles: names that point to configs, with every move kept.

Two people who change a profile at once must not overwrite each other unseen, so a move says from which config
it starts (`expected_config`); under the row's lock that is either still true or a conflict.
"""

from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from sessions_app import ids
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict, Invalid, NotFound
from sessions_app.models import AgentConfig, AgentProfile, ProfileVersion
from sessions_app.models.fields import ClockTimestamp


class ProfileExists(Conflict):
    """A profile with this name exists; names differ by more than upper and lower case."""

    code = "profile_exists"


class ProfileMoved(Conflict):
    """Somebody else moved this profile: it does not point to `expected_config`."""

    code = "profile_moved"


def profiles_of(project: UUID) -> QuerySet[AgentProfile]:
    """The project's profiles without the deleted ones."""
    return AgentProfile.objects.filter(project_id=project, deleted_at=None)


def get_profile(*, project: UUID, profile: UUID) -> AgentProfile:
    row = profiles_of(project).filter(pk=profile).first()
    if row is None:
        raise NotFound
    return row


def create_profile(*, project: UUID, name: str, config: UUID, actor: Actor) -> AgentProfile:
    """Version 1 points to `config`. Raises `ProfileExists`, or `NotFound` for a config that is not the project's."""
    _check_name(name)
    with transaction.atomic(durable=not connection.in_atomic_block):
        _check_config(project, config)
        try:
            with transaction.atomic():  # a savepoint: the conflict must not end an outer transaction
                row = AgentProfile.objects.create(project_id=project, name=name, config_id=config)
        except IntegrityError:
            raise _exists(project, name) from None
        ProfileVersion.objects.create(profile=row, version=1, config_id=config, actor=actor)
    row.refresh_from_db()
    return row


def rename_profile(*, project: UUID, profile: UUID, name: str) -> AgentProfile:
    """Raises `ProfileExists` where another profile has the name."""
    _check_name(name)
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _locked(project, profile)
        if row.name != name:
            try:
                with transaction.atomic():
                    AgentProfile.objects.filter(pk=profile).update(name=name, updated_at=ClockTimestamp())
            except IntegrityError:
                raise _exists(project, name) from None
            row.refresh_from_db()
    return row


def move_profile(
    *, project: UUID, profile: UUID, config: UUID, expected_config: UUID, actor: Actor
) -> AgentProfile:
    """Point to another config, as the next version. Raises `ProfileMoved` with the profile as it is.

    Pointing to the config it points to already is no move and makes no version.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = _locked(project, profile)
        _check_config(project, config)
        if row.config_id != expected_config:
            raise ProfileMoved(current=row)
        if config != expected_config:
            version = row.version + 1
            AgentProfile.objects.filter(pk=profile).update(
                config_id=config, version=version, updated_at=ClockTimestamp()
            )
            ProfileVersion.objects.create(profile=row, version=version, config_id=config, actor=actor)
            row.refresh_from_db()
    return row


def delete_profile(*, project: UUID, profile: UUID) -> None:
    """Its sessions go on and its history stays; its name is free again."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        deleted = profiles_of(project).filter(pk=profile).update(deleted_at=ClockTimestamp())
        if not deleted:
            raise NotFound


def _locked(project: UUID, profile: UUID) -> AgentProfile:
    row = profiles_of(project).select_for_update(no_key=True).filter(pk=profile).first()
    if row is None:
        raise NotFound
    return row


def _check_name(name: str) -> None:
    """Sessions name a profile by id or by name, so no name may look like an id."""
    try:
        ids.decode("prf", name)
    except ids.InvalidId:
        return
    raise _invalid("name", "malformed", "must not look like an id")


def _check_config(project: UUID, config: UUID) -> None:
    if not AgentConfig.objects.filter(project_id=project, pk=config).exists():
        raise NotFound("no such config")


def _exists(project: UUID, name: str) -> ProfileExists:
    current: Any = profiles_of(project).filter(name__iexact=name).first()
    return ProfileExists(current=current)


def _invalid(field: str, code: str, message: str) -> Invalid:
    return Invalid(f"/{field}: {message}", errors=[{"path": f"/{field}", "code": code, "message": message}])
