"""Sessions: starting one, and the fields that people give it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Lower

from sessions_app import children, entry_kinds, ids, inputs, leases, limit_asks, log, scheduling, wakeups
from sessions_app import content as contents
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid, NotFound, SessionArchived
from sessions_app.history import storing
from sessions_app.history.reading import History
from sessions_app.inputs import NewInput
from sessions_app.models import BRANCH, AgentConfig, AgentProfile, Session
from sessions_app.models.fields import ClockTimestamp
from sessions_app.text import clean_json, clean_text

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where a session branches off: behind the entry `at_seq` of another one, on whatever branch that stands.

    Without `at_seq` behind the one that is the newest now.
    """

    session: UUID
    at_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """The session that starts a subagent, locked by this transaction, and the call that does it.

    The caller saves the session.
    """

    session: Session
    tool_call: UUID


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
    limits: Mapping[str, Any] | None = None,
    input: NewInput | None = None,  # noqa: A002 - the noun of the field
    history: History | None = None,
    fork: Fork | None = None,
    child_of: Parent | None = None,
) -> Session:
    """A new session with its first entry and, if given, its first input, due when this commits.

    It runs under `config`, or under the config that `profile` points to now; a fork without either as its
    parent does now. It goes on from `history`, which becomes its first entries, or from an entry of another
    session (`fork`), of which nothing is copied. As a subagent (`child_of`) it stands below the session whose call
    starts it. Raises `Invalid` unless there is exactly one of `config` and
    `profile`, `NotFound` for one that is not the project's.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        parent, forked_from_seq = _forked(project, fork) if fork is not None else (None, None)
        if parent is not None and config is None and profile is None:
            config_id, profile = parent.config_id, parent.profile_id
            own_limits = dict(limits) if limits is not None else parent.limits
        else:
            config_id = _config_of(project, config, profile)
            own_limits = dict(limits) if limits is not None else None
        imported = _imported(project, history, actor) if history is not None else None
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
            limits=own_limits,
            forked_from=parent,
            forked_from_seq=forked_from_seq,
            # Where it was forked from, calls may be without their results: its first attempt looks (S9).
            lease_end={"reason": BRANCH, "settled": []} if fork is not None else None,
        )
        data = entry_kinds.SessionCreated(
            config=ids.encode("cfg", config_id),
            profile=ids.encode("prf", profile) if profile else None,
            name=session.name,
            labels=session.labels,
        )
        if own_limits is not None:
            data["limits"] = own_limits
        if parent is not None and forked_from_seq is not None:
            data["forked_from"] = {"session": ids.encode("ses", parent.pk), "seq": forked_from_seq}
        if history is not None and imported is not None:
            data["imported"] = {
                "format": history.format,
                "messages": len(history.found),
                "left_out": imported.left_out,
            }
            data["repaired_tool_calls"] = imported.repaired
        if child_of is not None:
            data["parent"] = ids.encode("ses", child_of.session.pk)
            children.adopt(session, parent=child_of.session, tool_call=child_of.tool_call)
        # Nobody else can see the row before the commit, so it needs no lock.
        log.append(session, log.NewEntry(kind="session_created", data=data, actor=actor))
        if imported is not None:
            placed = log.append(session, *imported.entries)
            replies = [row.seq for row in placed if row.entry.kind == "assistant_message"]
            session.output_seq = replies[-1] if replies else None
        if kept is not None:
            inputs.add_locked(session, kept)
            scheduling.give_work(session)
        session.save()
        wakeups.after_commit(session)
        logger.info("session.started", session=str(session.id), project=str(project))
    return session


def _forked(project: UUID, fork: Fork) -> tuple[Session, int]:
    """The session to fork, and the seq. What leads up to it is final, so the session needs no lock."""
    parent = Session.objects.filter(pk=fork.session, project_id=project).first()
    if parent is None:
        raise NotFound("no such session to fork")
    at_seq = parent.head_seq if fork.at_seq is None else fork.at_seq
    if not 1 <= at_seq < parent.next_seq:
        message = f"must be 1 to {parent.next_seq - 1}, an entry of that session"
        error = {"path": "/fork/at_seq", "code": "out_of_range", "message": message}
        raise Invalid(f"at_seq {message}", errors=[error])
    return parent, at_seq


def _imported(project: UUID, history: History, actor: Actor) -> storing.Stored:
    messages = []
    for found in history.found:
        content = found.message["content"]
        if isinstance(content, list):
            kept = contents.keep_files(content, project=project, path=f"{found.path}/content")
            messages.append({**found.message, "content": kept})
        else:
            messages.append(found.message)
    return storing.entries_of(messages, actor=actor, first_seq=2)  # behind `session_created`


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
    limits: Mapping[str, Any] | None = None,
) -> Session:
    """Change what is given (not None), each field as a whole; only real changes are an entry.

    A new priority moves the session among those that are due, new limits hold from the next model call on.
    Raises `NotFound` or `SessionArchived`.
    """
    given: dict[str, Any] = {
        "name": clean_text(name) if name is not None else None,
        "labels": clean_json(dict(labels)) if labels is not None else None,
        "metadata": clean_json(dict(metadata)) if metadata is not None else None,
        "priority": priority,
        "limits": dict(limits) if limits is not None else None,
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
        if "limits" in changes:
            limit_asks.drop(row)
            scheduling.give_work(row)  # whoever holds it reads them before it goes on
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
