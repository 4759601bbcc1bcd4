"""The console's browsers, and a session in its project."""

import pytest

from sessions_app.models import AgentConfig, Session
from tests import factories
from tests.sessions_app.console.conftest import browser, config, project, staff

__all__ = ["browser", "config", "project", "session", "staff"]


@pytest.fixture
def session(config: AgentConfig) -> Session:
    return factories.session(config=config, name="Triage")
