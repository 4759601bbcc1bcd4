"""A database for real processes, and a model server that they can reach."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.models import Project
from tests.wire.install import ensure_aimock, find_node

# What a model answers that does as the demo's agent is asked; the last message decides.
_FORM = {"questions": [{"text": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}]}
_TURNS: list[tuple[dict[str, str], dict[str, Any]]] = [
    (
        {"toolCallId": "call_append"},
        {"content": "I look.", "call": ("check", "dev_lookup", {"key": "check"})},
    ),
    ({"toolCallId": "call_label"}, {"call": ("append", "dev_append", {"file": "ledger", "delay": 2})}),
    ({"toolCallId": "call_check"}, {"content": "Counted."}),
    ({"toolCallId": "call_done"}, {"content": "Done."}),
    ({"toolCallId": "call_order"}, {"content": "All is ordered."}),
    (
        {"userMessage": "In one reply"},
        {
            "calls": [
                ("supplier", "dev_lookup", {"key": "supplier", "delay": 2}),
                ("colour", "ask_user", _FORM),
                ("order", "order_part", {"part": "wheel"}),
            ]
        },
    ),
    ({"userMessage": "to done"}, {"call": ("done", "set_label", {"key": "phase", "value": "done"})}),
    ({"userMessage": "to counting"}, {"call": ("label", "set_label", {"key": "phase", "value": "counting"})}),
]


@pytest.fixture
def environment(transactional_db: None, process_environment: dict[str, str]) -> dict[str, str]:
    """For a process on the test database, which is emptied afterwards."""
    Project.objects.get_or_create(name="default")
    return process_environment


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[str]:
    """The address of an OpenAI-compatible server that takes its time, so that a kill can come in between."""
    fixtures = []
    for match, answer in _TURNS:
        response: dict[str, Any] = {"content": answer["content"]} if "content" in answer else {}
        if calls := answer.get("calls", [answer["call"]] if "call" in answer else []):
            response["toolCalls"] = [
                {"id": f"call_{name}", "name": tool, "arguments": arguments}
                for name, tool, arguments in calls
            ]
        fixtures.append({"match": match, "response": response})
    (tmp_path / "model.json").write_text(json.dumps({"fixtures": fixtures}))
    log = tmp_path / "model.log"
    program = [str(find_node().node), str(ensure_aimock()), "--port", "0", "--chaos-latency", "500"]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*program, "--fixtures", str(tmp_path / "model.json")], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            until = time.monotonic() + 30
            while "listening on " not in log.read_text():
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield log.read_text().partition("listening on ")[2].split()[0]
        finally:
            server.terminate()
            server.wait(timeout=10)
