"""Browsers: of a staff member, of an account without rights, of nobody."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app import ids
from sessions_app.models import AgentConfig, Project
from tests import factories

HTMX = {"HX-Request": "true"}


@pytest.fixture
def staff(db: None) -> User:
    return User.objects.create_user("ada", password="analytical-engine", is_staff=True)


@pytest.fixture
def browser(staff: User) -> Client:
    client = Client()
    client.force_login(staff)
    return client


@pytest.fixture
def project(db: None) -> Project:
    """The one that the console shows to those who have chosen none."""
    return Project.objects.get_or_create(name="default")[0]  # tests with real commits empty the table


@pytest.fixture
def config(project: Project) -> AgentConfig:
    return factories.config(project=project)


@pytest.fixture
def choose(browser: Client) -> Callable[[Project], None]:
    def choose(project: Project) -> None:
        answer = browser.post("/project", {"project": ids.encode("prj", project.pk)})
        assert answer.status_code == 302

    return choose
