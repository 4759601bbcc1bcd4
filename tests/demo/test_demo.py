"""`manage.py demo`, as far as CI does not run it anyway: how it is broken off, and with another model."""

import dataclasses
import json
import os
import signal
from io import StringIO
from pathlib import Path

import pytest

from bench import report
from sessions_app.demo import story
from sessions_app.models import Session
from tests.demo.running import ROOT, command


@pytest.mark.processes
def test_ctrl_c_in_the_middle_leaves_no_process_behind(tmp_path: Path, environment: dict[str, str]) -> None:
    """The newcomer's Ctrl-C: a terminal signals the whole group."""
    with command(tmp_path / "out", "demo", env=environment) as demo:
        demo.wait_for(r"assistant_message")
        assert len(demo.left()) > 6
        demo.ctrl_c()
        assert demo.status() == 128 + signal.SIGINT
        assert demo.left() == []
        assert demo.text().rstrip().endswith("demo: fell short: interrupted by SIGINT")
    # Nothing that the next worker would go on with.
    assert not Session.objects.exclude(turn=None, wake_at=None).exists()


@pytest.mark.processes
def test_sigterm_while_it_starts_leaves_no_process_behind(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Whoever stops the demo by its pid stops all of it."""
    with command(tmp_path / "out", "demo", env=environment) as demo:
        demo.wait_for(r"runworkers A \d+ and B \d+ started")
        os.kill(demo.process.pid, signal.SIGTERM)
        assert demo.status() == 128 + signal.SIGTERM
        assert demo.left() == []


@pytest.mark.processes
def test_a_real_model_plays_the_same_demo(
    tmp_path: Path, environment: dict[str, str], model_server: str
) -> None:
    """TENURE_DEMO_MODEL with a compatible server: over a socket, through the library, with the same kills."""
    env = environment | {
        "TENURE_DEMO_MODEL": f"{model_server}/v1#some-model",
        "TENURE_ALLOWED_NETWORKS": "127.0.0.0/8",
    }
    with command(tmp_path / "out", "demo", env=env) as demo:
        assert demo.status() == 0, demo.text()
        assert demo.text().rstrip().endswith("demo: ok")
        assert demo.left() == []
    rows = json.loads((ROOT / "bench" / "results" / "demo.json").read_text())["rows"]
    acts = {row["act"] for row in rows if row["what"] in {"recovery", "skipped"}}
    assert len(acts) == 4
    # What is slow enough to be seen is not left out.
    assert "whole runworker killed in a tool" in acts
    tools = [row["text"] for row in rows if row.get("kind") == "tool_result"]
    assert "dev_append: interrupted" in tools
    assert tools[-4] == "set_label: succeeded"
    assert sorted(tools[-3:]) == ["ask_user: succeeded", "dev_lookup: succeeded", "order_part: succeeded"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gpt-5", "write provider:model, such as openai:gpt-5"),
        ("http://127.0.0.1:9/v1#m", "set TENURE_ALLOWED_NETWORKS=127.0.0.1/32"),
    ],
    ids=["no provider", "private address"],
)
def test_a_model_that_cannot_work_is_refused_before_anything_starts(
    model: str, said: str, settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    settings.TENURE = dataclasses.replace(settings.TENURE, demo_model=model)
    out = StringIO()
    assert story.run(report.Report("demo", out)) == 1
    last = out.getvalue().rstrip().splitlines()[-1]
    assert last.startswith("demo: fell short: ")
    assert said in last
    assert "started" not in out.getvalue()
