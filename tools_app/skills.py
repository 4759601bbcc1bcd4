"""Skills: versions of instruction packages, and which of them a session may load.

A config lists the skills of its sessions. `release-notes@3` is that version for ever, also after the skill was
deleted: configs never change, and neither does what they name. `release-notes` is the newest version that there
was when the turn started, so that one turn works by one text; it is looked up by that time, which is stored with
the turn, and a turn that goes on after a crash finds the same. A skill that was deleted before then is gone for
it.

The time of a version is taken before its transaction ends, so a turn that started in between must not see first the
old text and then the new one: whoever writes skills of a project and whoever looks some up for a turn meet at an
advisory lock, shared by those who look. It is taken last (L11).

The only module that writes skills.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet

from sessions_app.agent_config.warnings import KnownSkill
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid, NotFound
from sessions_app.models import Turn
from sessions_app.models.fields import ClockTimestamp
from sessions_app.text import clean_text
from tools_app.models import Skill, SkillVersion

logger = structlog.get_logger(__name__)

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
MAX_DESCRIPTION = 1000
MAX_INSTRUCTIONS = 60_000
"""Characters; less than a tool result may have, so that the model reads all of them."""

_NAME = re.compile(NAME, re.ASCII)

LOCK_CLASS = 0x7E4F
"""First half of a project's two-part advisory lock; the second is a hash of its id."""

# The ORM has no advisory locks.
_WRITE_LOCK = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
_READ_LOCK = "SELECT pg_advisory_xact_lock_shared(%s, hashtext(%s))"


@dataclass(frozen=True, slots=True)
class Stored:
    """`is_new` where no skill of the name was there before; without `has_changed` the newest said the same."""

    version: SkillVersion
    is_new: bool
    has_changed: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """A skill that a session may load now."""

    name: str
    version: int
    description: str


def put_skill(
    *,
    project: UUID,
    name: str,
    description: str,
    instructions: str,
    actor: Actor,
    reviewed_by: Actor | None = None,
) -> Stored:
    """Store the next version; the same text as the newest one makes none. A deleted skill comes back.

    Raises `Invalid` with everything that is wrong.
    """
    description, instructions = clean_text(description).strip(), clean_text(instructions)
    _check(name, description, instructions)
    with _locked(project, _WRITE_LOCK):
        skill, _ = Skill.objects.get_or_create(project_id=project, name=name)
        is_new = skill.version == 0 or skill.deleted_at is not None
        newest = None if is_new else _with_skill(skill.versions.filter(version=skill.version)).first()
        if newest and (newest.description, newest.instructions) == (description, instructions):
            return Stored(newest, is_new=False, has_changed=False)
        version = SkillVersion.objects.create(
            skill=skill,
            version=skill.version + 1,
            description=description,
            instructions=instructions,
            created_by=actor,
            reviewed_by=reviewed_by,
        )
        Skill.objects.filter(pk=skill.pk).update(
            version=version.version, deleted_at=None, updated_at=ClockTimestamp()
        )
        version = _with_skill(SkillVersion.objects.filter(pk=version.pk)).get()
    logger.info("skill.stored", project=str(project), skill=name, version=version.version)
    return Stored(version, is_new=is_new, has_changed=True)


def delete_skill(*, project: UUID, name: str) -> None:
    """It is listed no more, and only configs that name a version find it; raises `NotFound`."""
    with _locked(project, _WRITE_LOCK):
        found = Skill.objects.filter(project_id=project, name=name, deleted_at=None)
        if not found.update(deleted_at=ClockTimestamp(), updated_at=ClockTimestamp()):
            raise NotFound
    logger.info("skill.deleted", project=str(project), skill=name)


def skills_of(project: UUID) -> QuerySet[SkillVersion]:
    """The newest version of each skill of the project."""
    return _with_skill(
        SkillVersion.objects.filter(
            skill__project_id=project, skill__deleted_at=None, version=F("skill__version")
        )
    )


def versions_of(*, project: UUID, name: str) -> QuerySet[SkillVersion]:
    """All versions of a skill; raises `NotFound` where there is none of the name."""
    found = Skill.objects.filter(project_id=project, name=name, deleted_at=None).first()
    if found is None:
        raise NotFound
    return _with_skill(SkillVersion.objects.filter(skill=found))


def get_skill(*, project: UUID, name: str, version: int | None = None) -> SkillVersion:
    """A version of a skill, the newest unless one is named; raises `NotFound`."""
    rows = versions_of(project=project, name=name)
    row = rows.filter(version=F("skill__version") if version is None else version).first()
    if row is None:
        raise NotFound
    return row


def known(project: UUID) -> Mapping[str, KnownSkill]:
    """For the warnings of a config."""
    rows = Skill.objects.filter(project_id=project).values_list("name", "version", "deleted_at")
    return {
        name: KnownSkill(newest=version, is_deleted=deleted is not None) for name, version, deleted in rows
    }


def listed(config: Mapping[str, Any], *, project: UUID, turn: UUID) -> list[Listed]:
    """The skills that a config lists and that the turn finds, in the config's order."""
    wanted = config.get("skills") or ()
    with _locked(project, _READ_LOCK):
        rows = {
            row.skill.name: Listed(row.skill.name, row.version, row.description)
            for row in _found(wanted, project, turn).defer("instructions")
        }
    return [rows[skill["name"]] for skill in wanted if skill["name"] in rows]


def load(config: Mapping[str, Any], name: str, *, project: UUID, turn: UUID) -> SkillVersion | None:
    """The skill with its instructions; None where `listed` does not have it."""
    wanted = [skill for skill in config.get("skills") or () if skill["name"] == name]
    with _locked(project, _READ_LOCK):
        return _found(wanted, project, turn).first()


@contextmanager
def _locked(project: UUID, lock: str) -> Iterator[None]:
    """A transaction, or a part of the caller's; the next statement sees whatever was waited for."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        with connection.cursor() as cursor:
            cursor.execute(lock, [LOCK_CLASS, str(project)])
        yield


def _found(wanted: Iterable[Mapping[str, Any]], project: UUID, turn: UUID) -> QuerySet[SkillVersion]:
    """At most one version for each name."""
    started = Turn.objects.filter(pk=turn).values("started_at")[:1]
    matches = Q(pk=None)
    for skill in wanted:
        one = Q(skill__name=skill["name"])
        if skill.get("version") is not None:
            matches |= one & Q(version=skill["version"])
        else:
            there = Q(skill__deleted_at=None) | Q(skill__deleted_at__gt=started)
            matches |= one & there & Q(created_at__lte=started)
    rows = SkillVersion.objects.filter(matches, skill__project_id=project)
    return _with_skill(rows).order_by("skill__name", "-version").distinct("skill__name")


def _with_skill(rows: QuerySet[SkillVersion]) -> QuerySet[SkillVersion]:
    return rows.select_related("skill")


def _check(name: str, description: str, instructions: str) -> None:
    errors = []
    if not _NAME.fullmatch(name):
        message = "a name has letters, digits, and _ . - inside, at most 100 characters"
        errors.append({"path": "/name", "code": "malformed", "message": message})
    for field, text, limit in (
        ("description", description, MAX_DESCRIPTION),
        ("instructions", instructions, MAX_INSTRUCTIONS),
    ):
        if not text.strip():
            errors.append({"path": f"/{field}", "code": "too_short", "message": "must not be blank"})
        elif len(text) > limit:
            message = f"has at most {limit} characters"
            errors.append({"path": f"/{field}", "code": "too_long", "message": message})
    if errors:
        raise Invalid("; ".join(f"{error['path']}: {error['message']}" for error in errors), errors=errors)
