"""The loopback is open to these tests, and closed to those that say so."""

from collections.abc import Callable

import pytest

from sessions_app import ids
from sessions_app.models import Project
from sessions_app.tool_port import ToolContext
from tests import factories


@pytest.fixture(autouse=True)
def _loopback(tenure: Callable[..., None]) -> None:
    tenure(allowed_networks=("127.0.0.1",))


@pytest.fixture
def nowhere() -> ToolContext:
    """For tools that need nothing of the database."""
    return ToolContext(ids.new_id(), ids.new_id(), 1, "tcl_token", {})


@pytest.fixture
def project(transactional_db: None) -> Project:
    """Committed, so that tools see it from their threads."""
    return factories.project()
