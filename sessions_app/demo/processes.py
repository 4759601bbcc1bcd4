"""Child processes that never outlive their parent, whatever ends it.

Each child leads a session and process group of its own, so a Ctrl-C of the terminal reaches only the parent,
which then stops the children in order. Ways to end, and what becomes of the children:

- the block ends, well or by an exception: SIGTERM to each, SIGKILL to what is left after `STOP_LIMIT`;
- SIGINT or SIGTERM: `Interrupted` is raised where the parent is, and the block ends as above; a second signal
  kills at once;
- SIGKILL of the parent: the kernel ends the children (Linux), and those theirs.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Self

import psutil

from sessions_app.hosting import process_tree

STOP_LIMIT = 8.0
GONE_LIMIT = 5.0
_TAIL_LINES = 15
_TAIL_WIDTH = 300


class Interrupted(BaseException):
    """A signal asks to stop. Not an Exception, so that nothing in between takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Child:
    """One child and all that it has started. `log` is where it writes, if not to ours."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path | None) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """The child and its descendants, as of now."""
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill_tree(self) -> None:
        """SIGKILL it with everything below it."""
        _kill(self.tree())
        self.process.wait()

    def tail(self) -> str:
        """The last lines of its log, cut to a readable length."""
        if self.log is None or not self.log.exists():
            return ""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(line[:_TAIL_WIDTH] for line in lines)


class Processes:
    """`with Processes() as processes`: what is started in it ends with it."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self._starting = False
        self._asked: int | None = None
        self._leaving = False
        self._hurry = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        self._stop_all()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path | None = None
    ) -> Child:
        """Start a child; with `log`, both of its outputs go to that file."""
        # A signal in between would leave a child that nobody knows.
        self._starting = True
        try:
            with _output(log) as output:
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT if output else None,
                    start_new_session=True,
                    # This process has one thread, so what the warning is about cannot happen.
                    preexec_fn=process_tree.die_with(os.getpid()),  # noqa: PLW1509
                )
            child = Child(name, process, log)
            self.children.append(child)
        finally:
            self._starting = False
        if self._asked is not None:
            raise Interrupted(self._asked)
        return child

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._leaving or self._asked is not None:
            self._hurry = True
            return
        self._asked = number
        if not self._starting:
            raise Interrupted(number)

    def _stop_all(self) -> None:
        running = [child for child in self.children if child.running]
        trees = [process for child in running for process in child.tree()]
        for child in running:
            child.process.terminate()
        until = time.monotonic() + STOP_LIMIT
        while any(child.running for child in running) and time.monotonic() < until and not self._hurry:
            psutil.wait_procs([process for process in trees if process.is_running()], timeout=0.05)
        for child in running:
            child.kill_tree()
        # What a child left behind when it ended.
        _kill(trees)
        psutil.wait_procs(trees, timeout=GONE_LIMIT)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue  # it died with its parent


@contextmanager
def _output(log: Path | None) -> Iterator[IO[bytes] | None]:
    if log is None:
        yield None
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            yield output


def wait_until(
    condition: Callable[[], bool],
    *,
    limit: float,
    otherwise: str,
    children: Sequence[Child],
    every: float = 0.05,
) -> None:
    """Return when `condition` holds; `ChildFailed` when a child ends before, or it takes longer than `limit`."""
    until = time.monotonic() + limit
    while not condition():
        for child in children:
            if not child.running:
                raise ChildFailed(f"{child.name} ended with status {child.process.returncode}", child)
        if time.monotonic() > until:
            raise ChildFailed(f"{otherwise} in {limit:g} s", *children)
        time.sleep(every)


class ChildFailed(Exception):
    """A child ended or did not get ready; `children` hold what they wrote."""

    def __init__(self, why: str, *children: Child) -> None:
        super().__init__(why)
        self.children = children
