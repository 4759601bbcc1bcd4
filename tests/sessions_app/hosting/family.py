"""A real `runworker` and everything below it, as a test sees it: events in, signals out, nobody left."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.sessions_app.hosting import loops

DEADLINE = 40.0
"""Only a failing test waits this long."""

Event = dict[str, Any]


class Family:
    """One `runworker`. Its log events and the reports of its loops arrive in one list, each with `at`."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        reports, write = os.pipe()
        errors, stderr = os.pipe()
        self.events: list[Event] = []
        self._rests = {reports: b"", errors: b""}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sessions_app.hosting.run", *arguments],
            env=os.environ
            | {
                "DJANGO_SETTINGS_MODULE": "config.settings",
                # Nobody listens there: hosting itself must not need a database.
                "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
                "TENURE_DEBUG": "1",
                "TENURE_LOG_JSON": "1",
                "TENURE_LOG_LEVEL": "INFO",
                loops.REPORTS: str(write),
            }
            | environment,
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[write],
            start_new_session=True,
        )
        os.close(write)
        os.close(stderr)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, event: str, **fields: Any) -> Event:
        """The first event of that name and with these fields that no earlier call has returned."""
        until = time.monotonic() + DEADLINE
        looked_at = 0
        while True:
            for candidate in self.events[looked_at:]:
                looked_at += 1
                if (
                    candidate["event"] == event
                    and fields.items() <= candidate.items()
                    and "waited" not in candidate
                ):
                    candidate["waited"] = True
                    return candidate
            if not self._read(until):
                raise AssertionError(f"no {event} {fields}; happened:\n{self.story()}")

    def shows(self, event: str, *, within: float) -> bool:
        """Whether there is such an event, or is before so many seconds have passed."""
        until = time.monotonic() + within
        while not self.seen(event):
            if not self._read(until):
                return False
        return True

    def ready(self) -> Event:
        return self.wait_for("runworker.ready")

    def loop(self, role: str = "worker") -> Event:
        """The `running` report of the next loop of a role: its pid, parent (the sentinel), owner, group."""
        return self.wait_for("running", role=role)

    def seen(self, event: str, **fields: Any) -> list[Event]:
        """All such events so far."""
        return [
            candidate
            for candidate in self.events
            if candidate["event"] == event and fields.items() <= candidate.items()
        ]

    def end(self) -> int:
        """Wait until the last process of the family is gone; the exit status of the supervisor."""
        until = time.monotonic() + DEADLINE
        while self._rests:
            if not self._read(until):
                raise AssertionError(f"somebody is still there; happened:\n{self.story()}")
        return self.process.wait(DEADLINE)

    def tree(self) -> list[int]:
        """All processes of the family that live now, the supervisor first."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def story(self) -> str:
        return "\n".join(json.dumps(event) for event in self.events)

    def _read(self, until: float) -> bool:
        """Read once; False when the time is over or everything has been read."""
        if not self._rests:
            return False
        ready, _, _ = select.select(list(self._rests), [], [], max(0.0, until - time.monotonic()))
        for descriptor in ready:
            part = os.read(descriptor, 65536)
            if not part:
                os.close(descriptor)
                del self._rests[descriptor]
                continue
            *lines, self._rests[descriptor] = (self._rests[descriptor] + part).split(b"\n")
            for line in lines:
                self.events.append(_event(line) | {"at": time.monotonic()})
        return bool(ready)

    def expect(self, *, status: int = 0) -> None:
        """The family ends by itself with this exit status and leaves nobody."""
        ended_with = self.end()
        assert ended_with == status, self.story()

    def clean_up(self) -> None:
        """After a test that failed half-way: end what it started, also what should have ended by itself."""
        self.process.kill()
        self.process.wait(DEADLINE)
        if not self._rests:
            return
        # Somebody still holds the pipe. The reports name every cluster's group.
        for group in {event["group"] for event in self.events if "group" in event}:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.end()


def _event(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError:
        return {"event": "text", "text": line.decode(errors="replace")}
    return event if isinstance(event, dict) and "event" in event else {"event": "text", "text": line.decode()}


@contextmanager
def family(*arguments: str, **environment: str) -> Iterator[Family]:
    started = Family(*arguments, **environment)
    try:
        yield started
        assert not started._rests, "the test has to see its family's end: family.end()"
    finally:
        started.clean_up()


def send(number: signal.Signals, *pids: int) -> float:
    """Send a signal; returns the time."""
    at = time.monotonic()
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return at
