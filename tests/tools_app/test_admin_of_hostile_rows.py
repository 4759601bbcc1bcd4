"""The admin's pages of rows in which all that somebody wrote is hostile, or has a shape that nobody expects."""

from contextlib import suppress
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import DatabaseError, models, transaction
from django.db.models import Value
from django.test import Client
from django.urls import reverse

from sessions_app import keys, log
from sessions_app.ids import new_id
from sessions_app.models import (
    AgentProfile,
    Artifact,
    Child,
    ModelCall,
    ProfileVersion,
    Secret,
    Session,
)
from tests import factories
from tests.factories import database_now
from tools_app.models import (
    Approval,
    Question,
    RememberedDecision,
    Skill,
    SkillVersion,
    ToolCall,
    ToolCallState,
)

EVIL = "\"'></textarea><script>alert(1)</script>{{ 7|add:7 }}{% now 'Y' %} \u202e\u2028"
FORM = {
    "text": EVIL,
    "options": [{"label": EVIL, "description": EVIL}, {"label": "no"}],
    "multiple": False,
    "allow_text": True,
}
SHAPES: dict[str, Any] = {
    "object": {EVIL: {EVIL: EVIL}},
    "list of objects": [{EVIL: [EVIL], "type": EVIL, "kind": [EVIL]}],
    "null": None,
    "number": 7,
}

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


@pytest.fixture
def hostile() -> Session:
    """A session, and at least one row of every table that people look at."""
    session = factories.session(
        config=factories.config(document={"instructions": EVIL, "model": {"name": EVIL, "provider": "x"}}),
        name=EVIL[:100],
        labels={EVIL: EVIL},
        metadata={EVIL: EVIL},
    )
    person = {"kind": "external", "id": EVIL, "name": EVIL}
    factories.open_turn(session)
    factories.received_input(session, text=EVIL)
    factories.leased(factories.session(), factories.worker(owner=EVIL[:60]))
    factories.tool_call(session, name=EVIL, arguments={EVIL: EVIL})
    content = [{"type": "text", "text": EVIL}]
    factories.tool_call(session, state=ToolCallState.COMPLETED, name=EVIL, content=content)
    factories.approval(session, name=EVIL, arguments={EVIL: EVIL}, pattern={EVIL: {"starts_with": [EVIL]}})
    factories.question(session, form=[FORM])
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session.pk)
        log.append(row, log.NewEntry(kind="note", data={"text": EVIL, EVIL: [EVIL]}, actor=person))
        row.save()
    keys.create_key(project=session.project_id, name=EVIL)
    project, config = session.project, session.config
    profile = AgentProfile.objects.create(project=project, name=EVIL, config=config)
    ProfileVersion.objects.create(profile=profile, version=1, config=config, actor=person)
    Secret.objects.create(project=project, name=EVIL, ciphertext="x")
    Artifact.objects.create(
        project=project, name=EVIL, media_type=EVIL, size=1, sha256="0" * 64, storage_name=EVIL
    )
    ModelCall.objects.create(
        session=session, config=config, attempt=1, covers_seq=1, state="failed", error={"detail": EVIL},
        started_at=database_now(), ended_at=database_now(),
    )  # fmt: skip
    Child.objects.create(
        session=factories.session(config=config), parent=session, tool_call=new_id(), turn=new_id()
    )
    RememberedDecision.objects.create(
        project=project, tool=EVIL, pattern={EVIL: {"in": [EVIL]}}, key="x", created_by=person
    )
    RememberedDecision.objects.create(
        project=project, session=session, tool=EVIL, arguments={EVIL: EVIL}, key="y", created_by=person
    )
    skill = Skill.objects.create(project=project, name=EVIL, version=1)
    SkillVersion.objects.create(
        skill=skill, version=1, description=EVIL, instructions=EVIL, created_by=person, reviewed_by=person
    )
    return session


def pages() -> list[str]:
    """Every list, and the page of every row."""
    found = []
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        found.append(reverse(f"{name}_changelist"))
        found += [reverse(f"{name}_change", args=[row.pk]) for row in model._default_manager.all()]
    return found


def forms() -> list[str]:
    approval, question = Approval.objects.get(), Question.objects.get()
    call = ToolCall.objects.filter(state=ToolCallState.READY).get()
    return [
        reverse("admin:tools_app_approval_decide", args=[approval.pk]),
        reverse("admin:tools_app_question_answer", args=[question.pk]),
        reverse("admin:tools_app_remembereddecision_explain") + f"?call={call.pk}",
    ]


def test_what_people_and_models_wrote_is_text_on_every_page(client: Client, hostile: Session) -> None:
    seen = 0
    for path in [*pages(), *forms()]:
        answer = client.get(path)
        assert answer.status_code == 200, path
        shown = answer.content.decode()
        assert "<script>alert(1)" not in shown, path
        seen += "&lt;script&gt;alert(1)" in shown
    assert seen > 20


@pytest.mark.parametrize("shape", SHAPES)
def test_every_page_opens_whatever_shape_its_columns_have(
    client: Client, hostile: Session, shape: str
) -> None:
    """A log is kept for years; what an older release wrote, or a hand in the database, closes no page."""
    for model in apps.get_models():
        if model._meta.app_label.endswith("_app"):
            spoil(model, SHAPES[shape])
    for path in [*pages(), *forms()]:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert(1)" not in answer.content.decode(), path


def spoil(model: type[models.Model], value: Any) -> None:
    """Put it into every JSON column that the database lets it into."""
    for field in model._meta.concrete_fields:
        if isinstance(field, models.JSONField):
            with suppress(DatabaseError), transaction.atomic():
                model._default_manager.update(**{field.name: Value(value, field)})
