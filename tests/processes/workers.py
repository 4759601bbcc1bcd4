"""The test's side of the warm parent: start workers and sweepers, see how they end, leave nobody behind."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from sessions_app.models import Worker

_WARM = "import django; django.setup(); from tests.processes import warm; warm.main()"

START_LIMIT = 60.0
LIMIT = 20.0

FAST: dict[str, Any] = {
    "worker_ttl": 6.0,
    "heartbeat_interval": 0.5,
    "worker_poll_interval": 0.1,
    "sweep_interval": 0.1,
    "lock_free_looks_apart": 0.2,
    "server_start_grace": 0.0,
    "retry_base": 0.02,
    "retry_max": 0.05,
    "worker_drain_timeout": 4.0,
    "worker_drain_margin": 2.0,
    "dev_tools": True,
}
"""Short intervals: what takes half a minute in production takes a second here."""


class WarmParent:
    """The warm parent process, for one test run."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WARM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | {"TENURE_TOOL_MODULES": "tests.processes.tools"},
            cwd=settings.BASE_DIR,
            start_new_session=True,
        )
        self._rest = b""
        self._said: list[dict[str, Any]] = []
        self.statuses: dict[int, int] = {}
        assert self.next("ready", within=START_LIMIT) == self.process.pid

    def start(self, request: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        pid: int = self.next("pid", within=LIMIT)
        return pid

    def next(self, word: str, *, within: float) -> Any:
        until = time.monotonic() + within
        while True:
            for message in self._said:
                if word in message:
                    self._said.remove(message)
                    return message[word]
            assert time.monotonic() < until, f"the warm parent did not say {word!r} in time"
            self.listen(until - time.monotonic())

    def listen(self, seconds: float) -> None:
        """Take in what it says, waiting at most so long for the first word."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        ready, _, _ = select.select([descriptor], [], [], max(0.0, seconds))
        if not ready:
            return
        part = os.read(descriptor, 65536)
        assert part, f"the warm parent ended with status {self.process.wait(LIMIT)}"
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ended" in message:
                self.statuses[message["ended"]] = message["status"]
            else:
                self._said.append(message)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(LIMIT)
        finally:
            self.process.kill()  # its children die with it
            self.process.wait(LIMIT)
            self.process.stdout.close()


@dataclass(slots=True)
class Process:
    """A child of the warm parent."""

    parent: WarmParent
    pid: int
    owner: str
    output: Path

    @property
    def status(self) -> int | None:
        """Its exit status (negative: the signal that ended it), None while it lives."""
        self.parent.listen(0)
        return self.parent.statuses.get(self.pid)

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, *, within: float = LIMIT) -> int:
        until = time.monotonic() + within
        while (status := self.status) is None:
            assert time.monotonic() < until, f"{self.owner} is still running:\n{self.stacks()}"
            self.parent.listen(until - time.monotonic())
        return status

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def stop(self) -> None:
        """SIGTERM, and wait for its clean end."""
        self.send(signal.SIGTERM)
        assert self.wait() == 0, self.story()

    def stacks(self) -> str:
        """Where each of its threads is, behind its story; for a failing test to show."""
        before = len(self.story())
        self.send(signal.SIGUSR1)
        until = time.monotonic() + 1
        while len(self.story()) == before and time.monotonic() < until:
            self.parent.listen(0.05)
        return self.story()

    def story(self) -> str:
        return self.output.read_text(errors="replace")[-8000:] if self.output.exists() else ""

    @property
    def worker(self) -> Worker:
        """Its row; the process must have registered."""
        return Worker.objects.get(owner=self.owner)


class Workers:
    """Starts processes for one test and ends all of them with it."""

    def __init__(self, parent: WarmParent, folder: Path) -> None:
        self.folder = folder
        self._parent = parent
        self._started: list[Process] = []

    def start(
        self,
        run: str = "worker",
        *,
        owner: str | None = None,
        only: Iterable[UUID] | None = None,
        database: dict[str, Any] | None = None,
        **changed: Any,
    ) -> Process:
        """A process with the fast settings, changed as given; `only` limits what it may claim."""
        owner = owner or f"{run} {len(self._started) + 1}"
        output = self.folder / f"{len(self._started)}.log"
        request = {
            "run": run,
            "owner": owner,
            "output": str(output),
            "settings": FAST | {"dev_tool_root": str(self.folder / "effects")} | changed,
            "database": database or {},
            "only": [str(session) for session in only] if only is not None else None,
        }
        process = Process(self._parent, self._parent.start(request), owner, output)
        self._started.append(process)
        return process

    @property
    def started(self) -> tuple[Process, ...]:
        return tuple(self._started)

    def kill_all(self) -> None:
        for process in self._started:
            process.send(signal.SIGKILL)
        for process in self._started:
            process.wait()


@contextmanager
def workers(parent: WarmParent, folder: Path) -> Iterator[Workers]:
    made = Workers(parent, folder)
    try:
        yield made
    finally:
        made.kill_all()
