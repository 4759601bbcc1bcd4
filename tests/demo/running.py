"""A command of the newcomer's as a real process, and whether anything of it is left."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

LIMIT = 100.0
ROOT = Path(__file__).resolve().parent.parent.parent
_MARK = "DEMO_TEST_MARK"


class Command:
    """`manage.py …` in a session of its own; everything that it starts carries a mark in its environment."""

    def __init__(self, output: Path, *arguments: str, env: Mapping[str, str]) -> None:
        self.output = output
        self.mark = uuid.uuid4().hex
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=ROOT,
                env={**env, "TENURE_DEBUG": "1", "PYTHONUNBUFFERED": "1", _MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first place in the output that matches."""
        until = time.monotonic() + LIMIT
        while True:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.text(), re.MULTILINE)
            if found:
                return found
            assert not ended, f"it ended with {self.process.returncode} before {pattern!r}:\n{self.text()}"
            assert time.monotonic() < until, f"no {pattern!r} in {LIMIT} s:\n{self.text()}"
            time.sleep(0.05)

    def ctrl_c(self) -> None:
        """What a terminal does: SIGINT for the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def status(self) -> int:
        return self.process.wait(timeout=LIMIT)

    def left(self) -> list[psutil.Process]:
        """What still runs of it."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


@contextmanager
def command(output: Path, *arguments: str, env: Mapping[str, str]) -> Iterator[Command]:
    """Run it; whatever a failing test leaves is killed."""
    running = Command(output, *arguments, env=env)
    try:
        yield running
    finally:
        left = running.left()
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)
        running.process.wait()
