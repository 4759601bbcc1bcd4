"""Children never outlive their parent, whatever ends it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sessions_app.demo import processes
from sessions_app.demo.processes import Child, ChildFailed, Interrupted, Processes, wait_until
from tests.demo.running import ROOT

pytestmark = pytest.mark.processes

FAMILY = ["sh", "-c", "sleep 100 & sleep 100 & wait"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 100; done"]


def start(running: Processes, command: list[str], log: Path | None = None) -> Child:
    return running.start("child", command, env=dict(os.environ), cwd=ROOT, log=log)


def until(condition, within: float = 10) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(tree: list[psutil.Process]) -> bool:
    # A grandchild whose new parent has not looked yet is a zombie for a moment.
    return all(
        not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        for process in tree
        if psutil.pid_exists(process.pid)
    )


def test_a_failing_block_takes_children_and_grandchildren_along() -> None:
    tree: list[psutil.Process] = []

    def fail() -> None:
        with Processes() as running:
            child = start(running, FAMILY)
            until(lambda: len(child.tree()) == 3)
            tree.extend(child.tree())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gone(tree)


def test_a_child_that_ignores_sigterm_is_killed_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_LIMIT", 0.3)
    with Processes() as running:
        child = start(running, STUBBORN, tmp_path / "log")
        until(lambda: child.tail() == "ready")
        tree = child.tree()
    assert gone(tree)
    assert child.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_block_and_the_children(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    children: list[Child] = []

    def serve() -> None:
        with Processes() as running:
            children.append(start(running, FAMILY))
            os.kill(os.getpid(), number)
            until(lambda: False)

    with pytest.raises(Interrupted) as interrupted:
        serve()
    assert interrupted.value.number == number
    assert not children[0].running
    assert signal.getsignal(number) is before


def test_a_second_signal_does_not_wait_for_the_limit(tmp_path: Path) -> None:
    """Ctrl-C twice: whoever does not stop by itself is killed."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from sessions_app.demo.processes import Interrupted, Processes\n"
        "try:\n"
        "    with Processes() as running:\n"
        f"        child = running.start('c', {STUBBORN!r}, env=dict(os.environ), cwd=Path('.'))\n"
        "        child.process.wait()\n"
        "except Interrupted:\n"
        "    sys.exit(7)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == "ready\n"
        tree = psutil.Process(parent.pid).children(recursive=True)
        began = time.monotonic()
        while parent.poll() is None and time.monotonic() - began < processes.STOP_LIMIT / 2:
            parent.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert parent.wait(timeout=10) == 7
    assert gone(tree)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills the children of a killed parent")
def test_a_killed_parent_takes_its_children_along() -> None:
    script = (
        "import os\n"
        "from pathlib import Path\n"
        "from sessions_app.demo.processes import Processes\n"
        "with Processes() as running:\n"
        "    child = running.start('c', ['sleep', '100'], env=dict(os.environ), cwd=Path('.'))\n"
        "    print(child.pid, flush=True)\n"
        "    child.process.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
    until(lambda: gone([child]))


def test_waiting_for_a_child_that_ends_says_so_and_shows_its_log(tmp_path: Path) -> None:
    with Processes() as running:
        child = start(running, ["sh", "-c", "echo no such luck; exit 3"], tmp_path / "log")
        with pytest.raises(ChildFailed, match="child ended with status 3") as failed:
            wait_until(lambda: False, limit=10, otherwise="nothing", children=[child])
        assert [one.tail() for one in failed.value.children] == ["no such luck"]


def test_waiting_has_a_limit() -> None:
    with pytest.raises(ChildFailed, match=r"nobody came in 0\.1 s"):
        wait_until(lambda: False, limit=0.1, otherwise="nobody came", children=[])
