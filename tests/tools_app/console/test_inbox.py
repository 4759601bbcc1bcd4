"""The inbox: what waits for people in a project, oldest first, and how many."""

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app import ids
from sessions_app.models import AgentConfig, Session
from tests import factories
from tests.sessions_app.console.conftest import HTMX
from tools_app import approvals
from tools_app.console import inbox
from tools_app.models import Approval, Question


def prompts(page: str) -> list[str]:
    return re.findall(r'class="prompt" id="prompt-(\w+)"', page)


def get(browser: Client, query: str = "") -> str:
    answer = browser.get(f"/inbox{query}", headers=HTMX)
    assert answer.status_code == 200
    return str(answer.content.decode())


@pytest.fixture
def waiting(session: Session) -> list[str]:
    """The ids of what is open, oldest first."""
    factories.open_turn(session)
    rows = [factories.approval(session), factories.question(session), factories.approval(session)]
    decided = factories.approval(session)
    approvals.decide(approval=decided.pk, decision="allow", actor=factories.ACTOR)
    return [ids.encode("apr" if isinstance(row, Approval) else "qst", row.pk) for row in rows]


def test_all_that_is_open_is_there_oldest_first(browser: Client, waiting: list[str]) -> None:
    elsewhere = factories.session()
    factories.open_turn(elsewhere)
    factories.approval(elsewhere)
    assert prompts(get(browser)) == waiting
    page = browser.get("/inbox").content.decode()
    assert prompts(page) == waiting
    assert page.count("data-row") == 3


def test_whose_it_is_narrows_it_down(browser: Client, waiting: list[str]) -> None:
    Approval.objects.filter(pk=ids.decode("apr", waiting[0])).update(assignee="ada")
    Question.objects.update(assignee="bob")
    assert prompts(get(browser, "?assignee=me")) == [waiting[0]]
    assert prompts(get(browser, "?assignee=bob")) == [waiting[1]]
    assert prompts(get(browser, "?assignee=nobody")) == [waiting[2]]
    assert prompts(get(browser, "?assignee=<script>")) == []


def test_the_navigation_counts_it_for_this_project(
    browser: Client, waiting: list[str], config: AgentConfig
) -> None:
    answer = browser.get("/waiting").json()
    assert answer == {"total": 3, "items": {"/inbox": 3}}
    page = browser.get("/").content.decode()
    assert re.search(r'data-waiting="/inbox"\s*>\s*<span data-waiting-number>3<', page)
    assert inbox.waiting(factories.project().pk) == 0


def test_an_empty_inbox_says_so(browser: Client, session: Session) -> None:
    assert "Nothing waits for a person" in get(browser)
    assert "Nothing waits for you" in get(browser, "?assignee=me")


def test_it_costs_the_same_for_many(browser: Client, session: Session, waiting: list[str]) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            get(browser)
        return len(queries)

    few = cost()
    for _ in range(5):
        factories.approval(session)
        factories.question(session)
    assert cost() == few
    assert few <= 7  # login, user, projects, approvals, questions, calls, what was allowed before


def test_more_than_fits_is_said(
    browser: Client, session: Session, waiting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SHOWN", 2)
    page = get(browser)
    assert prompts(page) == waiting[:2]
    assert "1 more" in page


def test_it_is_for_staff(session: Session) -> None:
    client = Client()
    assert client.get("/inbox").status_code == 302
    client.force_login(User.objects.create_user("mallory"))
    assert client.get("/inbox").status_code == 403
