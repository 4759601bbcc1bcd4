"""Sessions whose last turn failed: who is listed, and how many get another try at once."""

from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from sessions_app import configs, control, failures, ids, inputs, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Session, SessionStatus, Turn, TurnStatus
from tests import factories
from tests.sessions_app.engine.in_process import working

pytestmark = pytest.mark.django_db(transaction=True)

FAILS = {"error": {"status": 401}}


def start(*replies: dict[str, Any], project: UUID | None = None, **document: Any) -> UUID:
    owner = project or factories.project().pk
    whole = {"instructions": "x", "model": "scripted:x", "script": {"replies": list(replies)}}
    config = configs.create_config(project=owner, document=whole | document).row
    first = NewInput(content=[{"type": "text", "text": "go"}], actor=SYSTEM)
    return session_service.start_session(project=owner, actor=SYSTEM, config=config.pk, input=first).pk


def repair(session: UUID) -> None:
    """What failed for its config gets one that works."""
    row = Session.objects.get(pk=session)
    document = {**row.config.document, "script": {"replies": [{"text": "works"}]}}
    config = configs.create_config(project=row.project_id, document=document).row
    control.change_config(session=session, config=config.pk, actor=SYSTEM)


def ended(status: str = TurnStatus.FAILED, reason: str = "auth", **columns: Any) -> Session:
    session = factories.session(**columns)
    turn = factories.open_turn(session)
    Turn.objects.filter(pk=turn.pk).update(status=status, reason=reason, ended_at=factories.database_now())
    Session.objects.filter(pk=session.pk).update(turn=None, last_turn=turn)
    return session


def command(*args: str) -> str:
    out = StringIO()
    call_command("retryfailed", *args, stdout=out)
    return out.getvalue()


def test_only_sessions_at_rest_whose_last_turn_failed_are_listed() -> None:
    """R9, S7: not those that failed before and went on, and not those that are at it again."""
    failed = ended()
    waiting = ended(reason="crash_limit", status=TurnStatus.FAILED)
    Session.objects.filter(pk=waiting.pk).update(status=SessionStatus.WAITING)
    ended(TurnStatus.SUCCEEDED, "done")
    ended(TurnStatus.CANCELLED, "cancelled")
    again = ended()
    factories.open_turn(factories.reread(again))
    queued = ended()
    Session.objects.filter(pk=queued.pk).update(status="queued", wake_at=factories.database_now())
    recovered = ended()
    later = factories.open_turn(factories.reread(recovered))
    Turn.objects.filter(pk=later.pk).update(
        status=TurnStatus.SUCCEEDED, reason="done", ended_at=factories.database_now()
    )
    Session.objects.filter(pk=recovered.pk).update(turn=None, last_turn=later)
    found = failures.failed_sessions()
    assert set(found.values_list("pk", flat=True)) == {failed.pk, waiting.pk}
    assert list(failures.failed_sessions(reason="crash_limit").values_list("pk", flat=True)) == [waiting.pk]
    of_project = failures.failed_sessions(project=failed.project_id)
    assert list(of_project.values_list("pk", flat=True)) == [failed.pk]


def test_the_list_starts_from_the_turns_that_failed() -> None:
    """Speed: few failures among many sessions are found without reading the sessions."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        plan = failures.failed_sessions().values("pk").explain()
        cursor.execute("RESET enable_seqscan")
    assert "turn_failed" in plan


def test_a_session_that_reached_a_limit_is_listed_with_its_error_and_retried(settings: Any) -> None:
    """R8, R9: list, reason, retry many; what is retried starts over with what was said."""
    project = factories.project()
    limited = start(
        {"text": "one"}, {"text": "two"}, project=project.pk, limits={"session": {"model_calls": 1}}
    )
    wrong_key = [start(FAILS, project=project.pk) for _ in range(2)]
    fine = start({"text": "fine"}, project=project.pk)
    with working(settings) as rested:
        rested(limited)
        inputs.submit_input(session=limited, content=[{"type": "text", "text": "more"}], actor=SYSTEM)
        for session in (limited, *wrong_key, fine):
            rested(session)
        listed = command("--dry-run", "--project", project.name)
        assert "3 sessions, none of them retried" in listed
        (line,) = [one for one in listed.splitlines() if ids.encode("ses", limited) in one]
        assert "limit  the limit of this session is reached: 1 of 1 model calls" in line
        for session in wrong_key:
            repair(session)
        said = command("--project", project.name, "--reason", "auth")
        assert "2 of 2 sessions retried" in said
        for session in wrong_key:
            row = rested(session)
            assert (row.last_turn.status, row.last_turn.reason) == ("succeeded", "done")
    assert list(failures.failed_sessions(project=project.pk).values_list("pk", flat=True)) == [limited]


def test_a_refused_retry_stops_no_other(settings: Any) -> None:
    """R9: a session without anything to repeat says so."""
    project = factories.project()
    nothing = ended(config=factories.config(project=project))  # its turn was never in the log
    other = start(FAILS, project=project.pk)
    with working(settings) as rested:
        rested(other)
        assert "1 sessions, none" in command("--dry-run", "--limit", "1", "--project", project.name)
        repair(other)
        said = command("--project", project.name)
        assert "1 of 2 sessions retried" in said
        assert ids.encode("ses", nothing.pk) in said
        assert rested(other).last_turn.reason == "done"


def test_the_command_says_what_is_wrong_with_its_options() -> None:
    for args in (["--limit", "0"], ["--project", "nobody"], ["--reason", "bad luck"]):
        with pytest.raises(CommandError):
            command(*args)


def test_the_admin_lists_failures_and_retries_a_selection(settings: Any) -> None:
    """R9: by the service of the API."""
    session = start(FAILS)
    with working(settings) as rested:
        rested(session)
        client = Client()
        client.force_login(User.objects.create_superuser("root"))
        url = reverse("admin:sessions_app_session_changelist")
        page = client.get(f"{url}?last_turn__status__exact=failed&last_turn__reason__exact=auth")
        assert str(session) in page.content.decode()
        assert str(session) not in client.get(f"{url}?last_turn__reason__exact=limit").content.decode()
        repair(session)
        chosen = {"action": "retry", "_selected_action": [str(session)]}
        page = client.post(url, chosen, follow=True)
        assert "is asked again" in " ".join(str(message) for message in page.context["messages"])
        assert rested(session).last_turn.reason == "done"
        page = client.post(url, {**chosen, "_selected_action": [str(ended().pk)]}, follow=True)
        assert "is asked again" not in " ".join(str(message) for message in page.context["messages"])
