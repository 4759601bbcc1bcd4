"""Remembered decisions in the admin, and the page that explains a call."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from sessions_app import configs, ids
from sessions_app.models import Session
from tests import factories
from tools_app import approvals
from tools_app.models import RememberedDecision

pytestmark = pytest.mark.django_db

LIST = reverse("admin:tools_app_remembereddecision_changelist")
EXPLAIN = reverse("admin:tools_app_remembereddecision_explain")
RULE = {"tool": "dev_append", "arguments": {"file": {"starts_with": ["report"]}}, "then": "ask"}


@pytest.fixture
def staff() -> User:
    return User.objects.create_superuser("ann")


@pytest.fixture
def client(staff: User) -> Client:
    client = Client()
    client.force_login(staff)
    return client


@pytest.fixture
def session() -> Session:
    document = {
        "instructions": "Be brief.",
        "model": "scripted:x",
        "tools": {"dev_append": {}, "dev_lookup": {}},
        "permissions": [RULE],
    }
    stored = configs.create_config(project=factories.project().pk, document=document)
    return factories.session(config=stored.row)


def remembered(session: Session, scope: str = "always", file: str = "report") -> RememberedDecision:
    pattern = RULE["arguments"] if file.startswith("report") else None
    approval = factories.approval(session, arguments={"file": file}, pattern=pattern)
    approvals.decide(approval=approval.pk, decision="allow", remember=scope, actor=factories.ACTOR)
    return RememberedDecision.objects.latest("id")


def explained(client: Client, session: Session, **asked: Any) -> str:
    values = {"where": ids.encode("ses", session.pk), "tool": "dev_append", "arguments": "{}"} | asked
    answer = client.get(EXPLAIN, values)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_list_says_what_each_covers_and_who_allowed_it(client: Client, session: Session) -> None:
    """T7: those that hold."""
    remembered(session)
    remembered(session, "session", file="<b>x</b>")
    gone = remembered(session, file="gone")
    RememberedDecision.objects.filter(pk=gone.pk).update(expires_at=factories.database_now(-1))
    shown = client.get(LIST).content.decode()
    assert "where {&quot;file&quot;: {&quot;starts_with&quot;: [&quot;report&quot;]}}" in shown
    assert "exactly {&quot;file&quot;: &quot;&lt;b&gt;x&lt;/b&gt;&quot;}" in shown
    assert "Test at" in shown
    assert "gone" not in shown
    assert "gone" in client.get(LIST, {"state": "expired"}).content.decode()
    assert "gone" in client.get(LIST, {"state": "all"}).content.decode()


def test_one_page_shows_all_that_it_covers(client: Client, session: Session) -> None:
    """T7"""
    row = remembered(session, file="x" * 300)
    page = reverse("admin:tools_app_remembereddecision_change", args=[row.pk])
    assert "x" * 300 in client.get(page).content.decode()
    assert "x" * 300 not in client.get(LIST).content.decode()


def test_people_revoke_what_is_remembered(client: Client, session: Session) -> None:
    """T7: with their name."""
    rows = [remembered(session), remembered(session, file="a")]
    answer = client.post(LIST, {"action": "revoke", "_selected_action": [str(row.pk) for row in rows]})
    assert [str(message) for message in get_messages(answer.wsgi_request)] == [
        "Revoked: 2. Calls that this covered ask again."
    ]
    assert {row.revoked_by["name"] for row in RememberedDecision.objects.all()} == {"ann"}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (
            RULE["arguments"],
            "where <code>{&quot;file&quot;: {&quot;starts_with&quot;: [&quot;report&quot;]}}",
        ),
        (None, "with exactly these arguments."),
    ],
)
def test_who_decides_reads_what_would_be_remembered(
    client: Client, session: Session, pattern: Any, words: str
) -> None:
    """T7"""
    approval = factories.approval(session, arguments={"file": "report"}, pattern=pattern)
    shown = client.get(reverse("admin:tools_app_approval_decide", args=[approval.pk])).content.decode()
    assert words in " ".join(shown.split())


def test_who_may_only_look_revokes_nothing(session: Session) -> None:
    """T7"""
    row = remembered(session)
    looker = User.objects.create_user("bob", is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_remembereddecision"))
    client = Client()
    client.force_login(looker)
    assert client.get(LIST).status_code == 200
    client.post(LIST, {"action": "revoke", "_selected_action": [str(row.pk)]})
    row.refresh_from_db()
    assert row.revoked_at is None
    assert explained(client, session, arguments='{"file": "report"}')


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("dev_append", {"file": "report 1"}, ["A person is asked.", "Rule 0:", "&quot;starts_with&quot;"]),
        ("dev_lookup", {"key": "a"}, ["It runs.", "no rule surely matches"]),
        ("nix", {}, ["It fails before anybody is asked.", "There is no tool named"]),
        ("dev_append", {}, ["It fails before anybody is asked.", "do not fit"]),
    ],
)
def test_a_call_is_explained_with_the_rule_that_decides(
    client: Client, session: Session, tool: str, arguments: dict[str, Any], words: list[str]
) -> None:
    """T7"""
    shown = explained(client, session, tool=tool, arguments=json.dumps(arguments))
    assert [word for word in words if word not in shown] == []
    config = ids.encode("cfg", session.config_id)
    shown = explained(client, session, where=config, tool=tool, arguments=json.dumps(arguments))
    assert words[0] in shown


def test_what_is_remembered_is_named(client: Client, session: Session) -> None:
    """T7"""
    row = remembered(session)
    shown = explained(client, session, arguments='{"file": "report 2"}')
    assert "It runs." in shown
    assert reverse("admin:tools_app_remembereddecision_change", args=[row.pk]) in shown


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"where": "ses_x"}, "expected an id"),
        ({"where": "prf_" + "0" * 26}, "expected an id"),
        ({"where": "ses_" + "0" * 26}, "There is none with this id."),
        ({"where": ""}, "This field is required."),
        ({"arguments": "{"}, "This is not JSON"),
        ({"arguments": "[]"}, "The arguments are a JSON object."),
    ],
)
def test_what_cant_be_explained_is_said(
    client: Client, session: Session, asked: dict[str, str], words: str
) -> None:
    """T7"""
    assert words in explained(client, session, **asked)


def test_the_page_asks_nothing_of_who_comes_without_a_call(client: Client) -> None:
    """T7"""
    shown = client.get(EXPLAIN).content.decode()
    assert "This field is required." not in shown
    assert EXPLAIN in client.get(LIST).content.decode()


def test_a_tool_call_leads_to_its_explanation(client: Client, session: Session) -> None:
    """T7"""
    call = factories.tool_call(session, arguments={"file": "report"})
    answer = client.get(reverse("admin:tools_app_toolcall_explain", args=[call.pk]), follow=True)
    assert "A person is asked." in answer.content.decode()
    gone = reverse("admin:tools_app_toolcall_explain", args=[session.pk])
    assert client.get(gone, follow=True).redirect_chain[0][0] == reverse(
        "admin:tools_app_toolcall_changelist"
    )
