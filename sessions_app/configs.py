"""Agent configs: stored once per project and document, never changed.

The identity of a document is the SHA-256 of its canonical JSON, so two clients that send the same document at
the same time, one in YAML and one in JSON, meet in one row.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from sessions_app import tool_port
from sessions_app.agent_config import canonical
from sessions_app.agent_config import warnings as config_warnings
from sessions_app.agent_config.document import AgentConfigDocument, parse
from sessions_app.agent_config.shape import InvalidConfig, Problem
from sessions_app.errors import NotFound
from sessions_app.models import AgentConfig, Secret


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """`is_new` is false where the project knew the document already."""

    row: AgentConfig
    is_new: bool
    warnings: list[Problem]


def _no_machines(project: UUID) -> Collection[str]:
    del project
    return ()


def _no_skills(project: UUID) -> Mapping[str, config_warnings.KnownSkill]:
    del project
    return {}


_machine_names: Callable[[UUID], Collection[str]] = _no_machines


def register_machine_names(names: Callable[[UUID], Collection[str]]) -> None:
    """Called by the app that brings machines: which ones a project has, for a config's warnings."""
    global _machine_names  # noqa: PLW0603 - the one registration
    _machine_names = names


_known_skills: Callable[[UUID], Mapping[str, config_warnings.KnownSkill]] = _no_skills


def register_skills(known: Callable[[UUID], Mapping[str, config_warnings.KnownSkill]]) -> None:
    """Called by the app that brings skills, likewise."""
    global _known_skills  # noqa: PLW0603 - the one registration
    _known_skills = known


def create_config(*, project: UUID, document: Any) -> StoredConfig:
    """Check and store a document (JSON types); raises `InvalidConfig` with every mistake."""
    parsed = parse(document)
    digest = canonical.identity(parsed)
    row = AgentConfig(project_id=project, digest=digest, document=parsed.canonical_form())
    with transaction.atomic(durable=not connection.in_atomic_block):
        # A twin that is not committed yet is waited for; then nothing is inserted and its row is found.
        AgentConfig.objects.bulk_create([row], ignore_conflicts=True)
        stored = AgentConfig.objects.get(project_id=project, digest=digest)
    return StoredConfig(stored, stored.pk == row.pk, _warnings(project, parsed))


def check_document(*, project: UUID, document: Any) -> list[Problem]:
    """Check a document without storing it: its warnings; raises `InvalidConfig` with every mistake."""
    return _warnings(project, parse(document))


def get_config(*, project: UUID, config: UUID) -> AgentConfig:
    row = AgentConfig.objects.filter(project_id=project, pk=config).first()
    if row is None:
        raise NotFound
    return row


def warnings_of(row: AgentConfig) -> list[Problem]:
    """What this deployment lacks of what the document names, as of now."""
    try:
        return _warnings(row.project_id, parse(row.document))
    except InvalidConfig as error:
        # Stored by a version with other rules: still readable, and its author is told what changed.
        return [
            Problem(path=item["path"], code=item["code"], message=item["message"]) for item in error.errors
        ]


def _warnings(project: UUID, document: AgentConfigDocument) -> list[Problem]:
    return config_warnings.warnings(
        document,
        known_tools=tool_port.runtime().known_names(),
        known_secrets=set(Secret.objects.filter(project_id=project).values_list("name", flat=True)),
        known_machines=_machine_names(project),
        known_skills=_known_skills(project),
    )
