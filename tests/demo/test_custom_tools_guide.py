"""The worked example of custom tools, run as it is printed: its commands in a shell, its worker beside them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.running import ROOT, command
from tests.staging import eventually

GUIDE = ROOT / "docs/guides/custom-tools.md"
PORT = 7250


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Shell:
    """Runs blocks one after the other, as one shell that keeps its variables."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.variables = folder / "variables"
        self.variables.touch()

    def run(self, block: str) -> str:
        """What the block prints; a command in it that fails is a failure."""
        keep = f"declare -p $(compgen -v | grep -xE 'BASE|KEY|CONFIG|SESSION|CALL') > {self.variables}"
        script = f"set -eu\nsource {self.variables}\n{block}\n{keep}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout


@pytest.mark.processes
def test_the_guide_to_custom_tools_works_as_it_is_printed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """T6, C102: declare, answer by hand, then let a worker answer."""
    text = GUIDE.read_text()
    by_hand, with_worker = text.split("## A worker that answers them all")
    first, declare, start, listing, answer = blocks("sh", by_hand)
    (again,) = blocks("sh", with_worker)
    (program,) = blocks("python", text)
    assert len(blocks("sh", text)) == 6
    with command(tmp_path / "out", "dev", "--port", str(PORT), env=environment) as dev:
        base, key = dev.wait_for(r"API +(\S+/api/v1) +key (\S+)").groups()
        bare = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
        shell = Shell(tmp_path, bare | {"BASE": base, "KEY": key})
        shell.run(first)
        shell.run(declare)

        assert json.loads(shell.run(start))["waiting_on"][0]["kind"] == "tool"
        (call,) = json.loads(shell.run(listing))["data"]
        assert (call["name"], call["arguments"]) == ("create_ticket", {"title": "The printer is on fire"})
        posted, session = shell.run(answer).replace("}{", "}\n{").splitlines()
        assert json.loads(posted)["outcome"] == "succeeded"
        assert json.loads(session)["output"] == [{"type": "text", "text": "I have filed a ticket."}]

        worker = tmp_path / "backend.py"
        worker.write_text(program)
        said = tmp_path / "worker.out"
        with said.open("w") as output:
            backend = subprocess.Popen(
                [sys.executable, str(worker)],
                env=bare | {"BASE": base, "KEY": key},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                rested = json.loads(shell.run(again))
                assert rested["status"] == "idle", said.read_text()
                assert rested["output"] == [{"type": "text", "text": "I have filed a ticket."}]
                line = eventually(said.read_text)
                assert re.fullmatch(r"tcl_\w+ 201 succeeded\n", line)
                assert backend.poll() is None
            finally:
                backend.kill()
                backend.wait(10)
        dev.ctrl_c()
        assert dev.status() == 0
