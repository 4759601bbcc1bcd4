"""The guides to tools and skills, by running what they show."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agent_config.document import parse
from sessions_app.agent_config.yaml import load_yaml
from tests.acceptance import agents
from tests.guides import blocks, file_of
from tests.sessions_app.api.conftest import Api, api, new_api  # noqa: F401 - fixtures
from tests.sessions_app.engine.in_process import working
from tools_app import registry
from tools_app.models import Skill

TRACKER = '''
"""Stands for the client of a ticket tracker."""

import types


async def get(number, *, idempotency_key):
    assert idempotency_key.startswith("tcl_")
    ticket = types.SimpleNamespace(title="The door is stuck", comments=["Push harder."])
    return ticket if number == 7 else None
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the guide, and what they import."""
    (tmp_path / "tracker.py").write_text(TRACKER)
    for block in blocks("writing-tools", "python"):
        (tmp_path / file_of(block)).write_text(block)
    return tmp_path


@pytest.fixture
def registered(folder: Path, tenure: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of the guide, registered as a deployment does it."""
    known, loaded = dict(registry._tools), set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    tenure(tool_modules=("team_tools", "escalation"))
    registry.register_configured_modules()
    yield
    registry._tools.clear()
    registry._tools.update(known)
    for name in set(sys.modules) - loaded:
        if name in {"team_tools", "escalation", "tracker"}:
            del sys.modules[name]


@pytest.mark.parametrize("guide", ["writing-tools", "skills"])
def test_configs_of_the_guides_are_configs(guide: str) -> None:
    shown = blocks(guide, "yaml")
    assert shown
    for block in shown:
        parse(load_yaml(block.encode()))


@pytest.mark.usefixtures("registered")
def test_the_model_reads_what_the_guide_shows() -> None:
    (shown,) = (json.loads(block) for block in blocks("writing-tools", "json"))
    tool = registry.get("ticket_status")
    assert tool is not None
    assert {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} == shown


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("registered")
def test_an_agent_calls_the_tools_of_the_guide(settings: Any) -> None:
    calls = [
        agents.call("ticket_status", number=7, with_comments=True),
        agents.call("ticket_status", number=8),
        agents.call("ticket_status", number=0),
        agents.call("escalate", when="now", reason="A customer waits."),
        agents.call("escalate", when="soon", reason="Still."),
    ]
    tools = {"ticket_status": {"time_limit": "10s"}, "escalate": {}}
    session = agents.start({"tool_calls": calls}, {"text": "Done."}, tools=tools)
    with working(settings) as rested:
        row = rested(session)
    assert (row.status, row.priority, row.metadata) == ("idle", -50, {"escalated": "A customer waits."})
    results = {entry.data["id"]: entry.data["content"][0] for entry in agents.log_of(session, "tool_result")}
    said = [results[block["id"]].get("text") or results[block["id"]]["value"] for block in asked(session)]
    assert said[0] == {"title": "The door is stuck", "comments": ["Push harder."]}
    assert said[1] == "There is no ticket 8."
    assert "at /number: 0 is less than the minimum of 1" in said[2]
    assert said[3:] == ["It goes now.", "It goes first already."]


def asked(session: Any) -> list[dict[str, Any]]:
    """The call blocks of the first reply."""
    message = agents.log_of(session, "assistant_message")[0]
    return [block for block in message.data["content"] if block["type"] == "tool_call"]


@pytest.mark.timeout(120)
def test_the_tests_of_the_guide_pass(folder: Path, settings: Any) -> None:
    """In a process of their own, as a team would run them."""
    code = (
        "import os, sys, django\n"
        "django.setup()\n"
        "import pytest\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:django', '-p', 'no:randomly', "
        "'-c', os.devnull, 'test_team_tools.py']))"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(settings.BASE_DIR)]),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


@pytest.mark.django_db
def test_the_requests_of_the_skills_guide_are_answered(api: Api) -> None:  # noqa: F811
    shown = blocks("skills", "http")
    assert shown
    for block in shown:
        first, _, body = block.partition("\n")
        method, path = first.split()
        answer = api.send(method, path, json.loads(body) if body else None)
        assert answer.status_code in {200, 201}, answer.content
    assert Skill.objects.get().name == "release-notes"
