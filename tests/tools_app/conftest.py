"""A held session to call tools in, and tools that tests register for themselves."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from sessions_app import ids
from sessions_app.models import Session
from sessions_app.tool_port import Call, ToolContext
from tests import factories
from tools_app import registry
from tools_app.models import ToolCall
from tools_app.registry import ToolDefinition
from tools_app.runtime import Runtime

CUSTOM = {"class": "custom", "description": "Ask the backend.", "input_schema": {"type": "object"}}


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def session(db: None) -> Session:
    """A session in the middle of a turn, held by a worker, with every kind of tool enabled."""
    tools = {"dev_append": {}, "dev_lookup": {"time_limit": "90s"}, "set_label": {}, "ask_backend": CUSTOM}
    config = factories.config(document={"model": "scripted:x", "tools": tools})
    return factories.running(factories.worker(), config=config)


@pytest.fixture
def call_of() -> Callable[[ToolCall], Call]:
    """A row as the engine holds it."""

    def build(row: ToolCall) -> Call:
        return Call(
            id=row.id,
            session=row.session_id,
            turn=row.turn_id,
            call_id=row.call_id,
            name=row.name,
            tool_class=str(row.tool_class),
            rerun_safe=row.rerun_safe,
            arguments=row.arguments,
            position=row.position,
            state=str(row.state),
        )

    return build


@pytest.fixture
def new_call(session: Session) -> Callable[..., Call]:
    """A call that is not stored yet."""

    def build(**columns: Any) -> Call:
        values = {
            "id": ids.new_id(),
            "session": session.id,
            "turn": session.turn_id,
            "call_id": "call_1",
            "name": "dev_append",
            "tool_class": "outside",
            "rerun_safe": False,
            "arguments": {},
            "position": 0,
            "state": "running",
        }
        return Call(**values | columns)

    return build


@pytest.fixture
def context(session: Session) -> ToolContext:
    return ToolContext(session.project_id, session.id, session.attempt, "tcl_token", session.config.document)


@pytest.fixture
def tool() -> Iterator[Callable[..., ToolDefinition]]:
    """Registers a tool for the length of a test."""
    made: list[str] = []

    def build(run: Callable[..., Any], **parts: Any) -> ToolDefinition:
        values = {"name": "probe", "description": "A probe.", "input_schema": {"type": "object"}, "run": run}
        definition = ToolDefinition(**values | parts)
        registry.register_tool(definition)
        made.append(definition.name)
        return definition

    yield build
    for name in made:
        registry._tools.pop(name, None)


@pytest.fixture
def tenure(settings: LazySettings) -> Callable[..., None]:
    """Sets `TENURE_…` settings for the length of a test."""

    def change(**values: Any) -> None:
        settings.TENURE = dataclasses.replace(settings.TENURE, **values)

    return change


@pytest.fixture
def dev_root(tmp_path: Path, tenure: Callable[..., None]) -> Path:
    tenure(dev_tool_root=str(tmp_path / "dev"))
    return tmp_path / "dev"


@pytest.fixture(autouse=True)
def storage(settings: LazySettings, tmp_path: Path) -> Path:
    """Artifacts of a test lie in its own folder."""
    options = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": tmp_path / "files"},
    }
    settings.STORAGES = settings.STORAGES | {"default": options}
    return tmp_path / "files"
