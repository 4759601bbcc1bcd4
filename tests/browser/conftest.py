"""A browser for each module, one web process for all of them, and a fresh context for each person of a test.

Playwright's synchronous interface keeps an event loop "running" in this thread while it is started. So it is
started for a module and stopped behind it: tests of other modules have loops of their own. Django, which would
refuse database calls below a running loop, is told that this one only waits.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessions_app.models import Project
from tests.browser import chromium
from tests.processes.web import Web, web

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.visitors import Visitors


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="session")
def program() -> Path:
    """The browser. Without one the tests are skipped, except in CI."""
    try:
        return chromium.ensure()
    except chromium.NoBrowser as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no browser tests: {error}")


@pytest.fixture(scope="module")
def browser(program: Path) -> Iterator["Browser"]:
    from playwright.sync_api import expect, sync_playwright

    from tests.browser.visitors import LIMIT

    expect.set_options(timeout=LIMIT)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        # Chromium's own sandbox needs rights that root in a container lacks; it only ever sees our own pages.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def served(
    program: Path, process_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """The web process of all browser tests; behind `program`, so that it is not started for nothing."""
    with web(process_environment, tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture
def project(transactional_db: None) -> Project:
    """The one that the console shows to those who have chosen none."""
    return Project.objects.get_or_create(name="default")[0]


@pytest.fixture
def people(browser: "Browser", served: Web, project: Project) -> Iterator["Visitors"]:
    """Opens pages as this or that staff member."""
    from tests.browser.visitors import visitors

    with visitors(browser, served.address) as made:
        yield made
