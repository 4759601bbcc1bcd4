"""Static files are served, and no middleware makes asynchronous views run from a blocked thread."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.conf import settings as django_settings
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.module_loading import import_string

from config.static_files import StaticFilesMiddleware


@pytest.fixture
def static_root(tmp_path: Path, settings: Any, db: None) -> Path:
    """With a database, because an answer that is closed looks at the connections that other tests have left."""
    settings.STATIC_ROOT = str(tmp_path)
    settings.WHITENOISE_USE_FINDERS = False
    settings.WHITENOISE_AUTOREFRESH = False
    (tmp_path / "a.css").write_text("body {}")
    return tmp_path


def body_of(response: Any) -> bytes:
    try:
        return b"".join(response) if response.streaming else response.content
    finally:
        response.close()


def test_a_synchronous_stack_serves_files_and_passes_the_rest_on(static_root: Path) -> None:
    middleware = StaticFilesMiddleware(lambda request: HttpResponse(b"view"))
    get = RequestFactory().get
    assert body_of(middleware(get("/static/a.css"))) == b"body {}"
    assert body_of(middleware(get("/static/b.css"))) == b"view"
    assert body_of(middleware(get("/elsewhere"))) == b"view"


async def test_an_asynchronous_stack_serves_files_and_runs_views_on_the_loop(static_root: Path) -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        asyncio.get_running_loop()
        return HttpResponse(threading.current_thread().name)

    middleware: Any = StaticFilesMiddleware(view)
    assert iscoroutinefunction(middleware)
    get = RequestFactory().get
    assert body_of(await middleware(get("/static/a.css"))) == b"body {}"
    assert body_of(await middleware(get("/elsewhere"))).decode() == threading.current_thread().name


def test_every_middleware_can_run_on_the_loop() -> None:
    """One that can't would give every long poll and stream a blocked thread."""
    for path in django_settings.MIDDLEWARE:
        assert import_string(path).async_capable, path
