"""Rows for benchmarks, in projects of their own that are removed again."""

import uuid
from typing import Any

from django.db import connection, transaction

from sessions_app import scheduling, wakeups
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import AgentConfig, Input, Project, Session


def config(project: Project, script: dict[str, Any]) -> AgentConfig:
    document = {
        "version": 1,
        "instructions": "Measure.",
        "model": {"provider": "scripted", "name": "bench"},
        "tools": {"bench_echo": {}},
        "permissions": [{"tool": "bench_echo", "then": "allow"}],
        "script": script,
    }
    return AgentConfig.objects.create(project=project, digest=uuid.uuid4().hex, document=document)


def sessions(project: Project, count: int, config: AgentConfig) -> list[Session]:
    return Session.objects.bulk_create([Session(project=project, config=config) for _ in range(count)])


def give_input(sessions: list[Session]) -> None:
    content = [{"type": "text", "text": "go"}]
    with transaction.atomic():
        Input.objects.bulk_create(
            Input(session=session, content=content, rank=1, actor=SYSTEM) for session in sessions
        )
        Session.objects.filter(pk__in=[session.pk for session in sessions]).update(
            wake_at=scheduling.wake_value("now"), status="queued", work_rev=1
        )
    wakeups.ring_due()


def remove(project: Project) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL tenure.retention = 'on'")
        sessions = Session.objects.filter(project=project)
        sessions.update(turn=None, last_turn=None, wake_at=None)
        for table in (
            "tools_app_toolcall",
            "sessions_app_entry",
            "sessions_app_modelcall",
            "sessions_app_input",
            "sessions_app_turn",
            "sessions_app_lease",
        ):
            cursor.execute(
                f"DELETE FROM {table} WHERE session_id IN (SELECT id FROM sessions_app_session WHERE project_id = %s)",
                [project.pk],
            )
        sessions.delete()
        AgentConfig.objects.filter(project=project).delete()
        project.delete()
