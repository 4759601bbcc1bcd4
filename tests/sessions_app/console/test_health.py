"""The health page, and what waits for a person."""

from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app.console import health, navigation
from sessions_app.console.navigation import Item
from sessions_app.models import AgentConfig, Project
from tests import factories
from tests.sessions_app.console.conftest import HTMX


def test_workers_queue_and_leases(browser: Client, config: AgentConfig) -> None:
    alive, silent = factories.worker(capacity=5), factories.worker(expires_in=-1)
    factories.worker(draining=True)
    held = factories.session(config=config, name="held")
    factories.leased(held, alive)
    factories.due(config=config)
    factories.due(config=config)
    report = health.report()
    by_worker = {member.worker.pk: member for member in report.workers}
    assert by_worker[alive.pk].held == 1
    assert by_worker[silent.pk].standing.word == "Silent"
    assert (report.due, report.running, report.capacity, report.held) == (2, 1, 5, 1)
    assert report.oldest is not None
    assert report.oldest >= 0.9
    for headers in ({}, HTMX):
        body = browser.get("/health", headers=headers).content.decode()
        for word in ("Silent", "Alive", "Draining", "held", "the first waits", "no sweeper is connected"):
            assert word.lower() in body.lower(), word


def test_idle_sessions_cost_the_page_nothing(browser: Client, config: AgentConfig) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            health.report()
        return len(queries)

    before = cost()
    for _ in range(5):
        factories.session(config=config)
    assert cost() == before <= 6
    assert health.report().depths == []


def test_a_quiet_deployment_says_so(browser: Client, project: Project) -> None:
    body = browser.get("/health").content.decode()
    assert "No worker is alive" in body
    assert "Nothing is under way" in body


def test_what_waits_is_counted_in_the_navigation_and_for_the_tab(
    browser: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[UUID] = []

    def three(project: UUID) -> int:
        asked.append(project)
        return 3

    monkeypatch.setattr(navigation, "_items", {})
    navigation.register(
        Item(name="Inbox", url="console:health", icon="inbox", key="i", order=1, waiting=three)
    )
    assert browser.get("/waiting").json() == {"total": 3, "items": {"/health": 3}}
    body = browser.get("/").content.decode()
    assert 'data-waiting="/health"' in body
    assert asked == [project.pk, project.pk]
