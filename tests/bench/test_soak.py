"""`manage.py soak`, small: the same as `make soak`, with a seed whose faults are known."""

import json
import re
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from bench.report import Report
from bench.soak import story
from sessions_app.models import ApiKey, IdempotencyRecord, Project, Session
from tests import factories
from tests.demo.running import command
from tests.wire import install

SEED = 11377
"""One of its sessions meets faults with all of its first ten requests, so a turn gives up."""
OPTIONS = story.Options(seed=1, sessions=1, turns=1, loops=1, kills=0, faults=0.5, keep=False)


@pytest.fixture
def environment(transactional_db: None, process_environment: dict[str, str]) -> dict[str, str]:
    """For a process on the test database, which is emptied afterwards; retries come soon."""
    return process_environment | {"TENURE_RETRY_BASE": "20ms", "TENURE_RETRY_MAX": "100ms"}


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads((folder / "soak.json").read_text())["rows"]:
        found.setdefault(row["what"], []).append(row)
    return found


@pytest.mark.processes
def test_a_small_soak_loses_and_doubles_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    """R2, R4, I1, S7: over real sockets with half of the requests faulted, and with a loop killed in the middle."""
    arguments = ["--seed", str(SEED), "--sessions", "12", "--turns", "2", "--kills", "1"]
    with command(tmp_path / "out", "soak", *arguments, "--results", str(tmp_path), env=environment) as soak:
        assert soak.status() == 0, soak.text()
        assert soak.text().rstrip().endswith("soak: ok")
        assert soak.left() == []
    rows = rows_of(tmp_path)
    (inputs,), (turns,), (calls,) = rows["inputs"], rows["turns"], rows["model calls"]
    assert inputs["accepted"] == inputs["delivered"] >= 24
    assert turns["inputs_queued"] == 24
    assert turns["ended"] == turns["succeeded"] + turns["failed"] == 24 + turns["begun_by_steering"]
    assert calls["saved"] == calls["counted_by_turns"] == calls["replies"] + calls["failed"]
    assert calls["requests"] == sum(count for name, count in rows["requests"][0].items() if name != "what")
    assert min(rows["requests"][0][name] for name in ("openai", "openai_chat", "anthropic")) > 10
    assert 0.3 < rows["faults"][0]["share"] < 0.7
    assert all(
        rows["faults"][0][kind] for kind in ("429", "500", "529", "cut", "error_event", "malformed_event")
    )
    assert len(rows["kill 1"]) == 1
    assert [row["failed_calls"] for row in rows["failed turn"]] == [9] * turns["failed"]
    assert turns["failed"] >= 1
    # What went well leaves nothing behind.
    for model in (Project, Session, ApiKey, IdempotencyRecord):
        assert not model.objects.exclude(**{"name": "default"} if model is Project else {}).exists()


@pytest.mark.processes
def test_a_soak_that_is_broken_off_leaves_no_process_behind(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Ctrl-C in the middle: a verdict, and what there is to look at."""
    arguments = ["--sessions", "8", "--kills", "0"]
    with command(tmp_path / "out", "soak", *arguments, "--results", str(tmp_path), env=environment) as soak:
        soak.wait_for(r"^  ready .*\n")
        assert len(soak.left()) > 5
        soak.ctrl_c()
        assert soak.status() == 128 + signal.SIGINT
        assert soak.left() == []
        assert soak.text().rstrip().endswith("soak: fell short: interrupted by SIGINT")
    name = re.search(r"stay in project (soak-\w+)", soak.text())
    assert name
    assert Project.objects.filter(name=name[1]).exists()


def test_without_the_mock_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "CLI", tmp_path / "cli.js")
    out = StringIO()
    assert story.run(Report("soak", out, tmp_path), OPTIONS) == 1
    assert out.getvalue() == (
        "soak: fell short: the mock of the model providers (aimock) is not installed: run `make setup`\n"
    )


@pytest.mark.django_db
def test_beside_another_runworker_it_does_not_even_start(tmp_path: Path) -> None:
    """That one would take its sessions and may not reach its models."""
    factories.worker()
    out = StringIO()
    assert story.run(Report("soak", out, tmp_path), OPTIONS) == 1
    assert re.match(r"soak: fell short: another runworker \(.+\) works on this database", out.getvalue())
    assert not Project.objects.filter(name__startswith="soak-").exists()
