"""The admin shows everything and edits nothing that has a service."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from sessions_app import configs, inputs, keys, leases, secrets, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import ApiKey, Lease, Project, Secret, Session

EDITED = {User}


@pytest.fixture
def client(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def session(db: None) -> Session:
    project = Project.objects.get(name="default")
    document = {"instructions": "x", "model": "scripted:x", "script": {"replies": [{"text": "one"}]}}
    config = configs.create_config(project=project.pk, document=document).row
    return session_service.start_session(
        project=project.pk,
        config=config.pk,
        actor=SYSTEM,
        input=inputs.NewInput(content=[{"type": "text", "text": "go"}], actor=SYSTEM),
    )


def test_every_model_of_ours_can_be_read() -> None:
    """Staff see all that there is; what is secret is left out of the page, not the page."""
    ours = {model for model in apps.get_models() if model._meta.app_label.endswith("_app")}
    assert ours - set(admin.site._registry) == set()


def test_the_sidebar_leads_to_every_page(client: Client) -> None:
    """What is registered later must find its place."""
    shown = client.get(reverse("admin:index")).content.decode()
    for model in admin.site._registry:
        link = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert f'href="{link}"' in shown, model


def test_every_page_opens_and_none_offers_a_form(client: Client, session: Session) -> None:
    secrets.put_secret(project=session.project, name="x", value="sk-secret")
    keys.create_key(project=session.project_id, name="x")
    worker = leases.register_worker(owner="w", capacity=1)
    leases.claim(worker=worker.pk, limit=1)
    for model, shown in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert client.get(reverse(f"{name}_changelist")).status_code == 200, model
        row = model._default_manager.first()
        if row is not None:
            page = client.get(reverse(f"{name}_change", args=[row.pk]))
            assert page.status_code == 200, model
            assert (b'name="_save"' in page.content) == (model in EDITED), model
        if model not in EDITED:
            assert client.get(reverse(f"{name}_add")).status_code == 403, model
            assert shown.get_actions is not None


def test_no_page_shows_a_secret_or_the_hash_of_a_key(client: Client, session: Session) -> None:
    row, _ = secrets.put_secret(project=session.project, name="x", value="sk-secret")
    key, _ = keys.create_key(project=session.project_id, name="x")
    page = client.get(reverse("admin:sessions_app_secret_change", args=[row.pk])).content.decode()
    assert Secret.objects.get().ciphertext not in page
    page = client.get(reverse("admin:sessions_app_apikey_change", args=[key.pk])).content.decode()
    assert key.digest not in page
    assert key.prefix in page


def test_the_tables_of_the_task_queue_are_not_shown() -> None:
    assert not [model for model in admin.site._registry if model._meta.app_label == "django_q"]


def act(client: Client, model: str, action: str, row: Any) -> str:
    chosen = {"action": action, "_selected_action": [str(row.pk)]}
    page = client.post(reverse(f"admin:sessions_app_{model}_changelist"), chosen, follow=True)
    assert page.status_code == 200
    return " ".join(str(message) for message in page.context["messages"])


def test_force_release_takes_a_session_from_its_worker(client: Client, session: Session) -> None:
    """L9: an operator ends a lease through the same service as everybody."""
    worker = leases.register_worker(owner="w", capacity=1)
    assert leases.claim(worker=worker.pk, limit=1)
    assert "released" in act(client, "session", "force_release", session)
    assert not Lease.objects.exists()
    assert "no worker" in act(client, "session", "force_release", session)


def test_cancel_ends_what_runs(client: Client, session: Session) -> None:
    """I6: the admin cancels by the service of the API."""
    assert "nothing runs" in act(client, "session", "cancel", session)


def test_revoking_a_key_in_the_admin_revokes_it(client: Client, session: Session) -> None:
    key, _ = keys.create_key(project=session.project_id, name="leaked")
    act(client, "apikey", "revoke", key)
    assert ApiKey.objects.get(pk=key.pk).revoked_at is not None


def test_staff_without_the_permission_can_run_no_action(session: Session, db: None) -> None:
    client = Client()
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(
        Permission.objects.get(codename="view_session", content_type__app_label="sessions_app")
    )
    client.force_login(user)
    worker = leases.register_worker(owner="w", capacity=1)
    assert leases.claim(worker=worker.pk, limit=1)
    client.post(
        reverse("admin:sessions_app_session_changelist"),
        {"action": "force_release", "_selected_action": [str(session.pk)]},
    )
    assert Lease.objects.exists()


def test_sessions_are_archived_and_restored(client: Client, session: Session) -> None:
    """I6, as over the API."""
    changelist = reverse("admin:sessions_app_session_changelist")
    for action, archived in (("archive", True), ("restore", False)):
        client.post(changelist, {"action": action, "_selected_action": [str(session.pk)]})
        session.refresh_from_db()
        assert (session.archived_at is not None) == archived


def test_a_lease_is_taken_from_its_worker_and_a_worker_declared_dead(
    client: Client, session: Session
) -> None:
    """L9, L5."""
    for model, action in (("lease", "force_release"), ("worker", "declare_dead")):
        worker = leases.register_worker(owner=f"w {action}", capacity=1)
        leases.claim(worker=worker.pk, limit=1)
        chosen = session.pk if model == "lease" else worker.pk
        changelist = reverse(f"admin:sessions_app_{model}_changelist")
        client.post(changelist, {"action": action, "_selected_action": [str(chosen)]})
        assert not Lease.objects.exists()
        worker.refresh_from_db()
        assert worker.dead == (model == "worker")
        session.refresh_from_db()
        assert session.ended_reason == "forced"
