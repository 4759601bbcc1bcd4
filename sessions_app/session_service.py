"""Sessions: starting one, and the fields that people give it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Lower

from sessions_app import content as contents
from sessions_app import entry_kinds, ids, inputs, leases, log, scheduling, wakeups
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid, NotFound, SessionArchived
from sessions_app.inputs import NewInput
from sessions_app.models import AgentConfig, AgentProfile, Session
from sessions_app.models.fields import ClockTimestamp
from sessions_app.text import clean_json, clean_text

logger = structlog.get_logger(__name__)


def start_session(
    *,
    project: UUID,
    actor: Actor,
    config: UUID | None = None,
    profile: UUID | None = None,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    priority: int = 0,
    input: NewInput | None = None,  # noqa: A002 - the noun of the field
) -> Session:
    """A new session with its first entry and, if given, its first input, due when this commits.

    It runs under `config`, or under the config that `profile` points to now. Raises `Invalid` unless there is
    exactly one of them, `NotFound` for one that is not the project's.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        config_id = _config_of(project, config, profile)
        kept = None
        if input is not None:
            blocks = contents.keep_files(input.content, project=project, path="/input/content")
            kept = NewInput(content=blocks, actor=input.actor, delivery=input.delivery)
        session = Session.objects.create(
            project_id=project,
            config_id=config_id,
            profile_id=profile,
            name=clean_text(name),
            labels=clean_json(dict(labels or {})),
            metadata=clean_json(dict(metadata or {})),
            priority=priority,
        )
        data = entry_kinds.SessionCreated(
            config=ids.encode("cfg", config_id),
            profile=ids.encode("prf", profile) if profile else None,
            name=session.name,
            labels=session.labels,
        )
        # Nobody else can see the row before the commit, so it needs no lock.
        log.append(session, log.NewEntry(kind="session_created", data=data, actor=actor))
        if kept is not None:
            inputs.add_locked(session, kept)
            scheduling.give_work(session)
        session.save()
        wakeups.after_commit(session)
        logger.info("session.started", session=str(session.id), project=str(project))
    return session


def _config_of(project: UUID, config: UUID | None, profile: UUID | None) -> UUID:
    if config is not None and profile is None:
        if not AgentConfig.objects.filter(pk=config, project_id=project).exists():
            raise NotFound("no such config")
        return config
    if profile is None or config is not None:
        raise Invalid(
            "a session needs either a profile or a config",
            errors=[{"path": "/config", "code": "required", "message": "give either profile or config"}],
        )
    found = AgentProfile.objects.filter(pk=profile, project_id=project, deleted_at=None).first()
    if found is None:
        raise NotFound("no such profile")
    return found.config_id


def update_session(
    *,
    session: UUID,
    actor: Actor,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    priority: int | None = None,
) -> Session:
    """Change what is given (not None), each field as a whole; only real changes are an entry.

    A new priority moves the session among those that are due. Raises `NotFound` or `SessionArchived`.
    """
    given: dict[str, Any] = {
        "name": clean_text(name) if name is not None else None,
        "labels": clean_json(dict(labels)) if labels is not None else None,
        "metadata": clean_json(dict(metadata)) if metadata is not None else None,
        "priority": priority,
    }
    with transaction.atomic(durable=not connection.in_atomic_block):
        row = leases.lock_session(session)
        if row is None:
            raise NotFound("no such session")
        if row.archived_at is not None:
            raise SessionArchived(current=row)
        changes = {
            field: value
            for field, value in given.items()
            if value is not None and value != getattr(row, field)
        }
        if not changes:
            return row
        for field, value in changes.items():
            setattr(row, field, value)
        row.updated_at = ClockTimestamp()
        data = entry_kinds.SessionUpdated(changes=changes)
        log.append(row, log.NewEntry(kind="session_updated", data=data, actor=actor))
        row.save()
        wakeups.after_commit(row)
    return row


def profile_named(*, project: UUID, text: str) -> UUID:
    """The profile with this id or, in any case, this name; `NotFound` where the project has none."""
    profiles = AgentProfile.objects.filter(project_id=project, deleted_at=None)
    try:
        profiles = profiles.filter(pk=ids.decode("prf", text))
    except ids.InvalidId:
        profiles = profiles.annotate(folded=Lower("name")).filter(folded=Lower(Value(text)))
    found = profiles.values_list("pk", flat=True).first()
    if found is None:
        raise NotFound("no such profile")
    return found
