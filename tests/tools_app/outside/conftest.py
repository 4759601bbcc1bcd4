"""The loopback is open to these tests, and closed to those that say so."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sessions_app import ids
from sessions_app.models import Artifact, Project, Secret
from sessions_app.tool_port import ToolContext
from tests import factories
from tools_app import keeping


@pytest.fixture(autouse=True)
def _loopback(tenure: Callable[..., None]) -> None:
    tenure(allowed_networks=("127.0.0.1",))


@pytest.fixture
def nowhere() -> ToolContext:
    """For tools that need nothing of the database."""
    return ToolContext(ids.new_id(), ids.new_id(), 1, "tcl_token", {})


async def in_thread[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Database work of an async test, in a thread that keeps no connection."""

    return await asyncio.to_thread(keeping.in_thread, function, *args, **kwargs)


def committed[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Database work that is committed at once, whatever transaction the test is in."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(keeping.in_thread, function, *args, **kwargs).result()


@pytest.fixture
def project(db: None) -> Iterator[Project]:
    """Committed, so that tools see it from their threads; emptying the whole database afterwards takes longer."""
    row = committed(factories.project)
    yield row
    committed(_delete, row)


def _delete(project: Project) -> None:
    Secret.objects.filter(project=project).delete()
    Artifact.objects.filter(project=project).delete()
    project.delete()
