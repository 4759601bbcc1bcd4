"""Keeping a family of processes together: nobody survives its parent, nobody is left a zombie.

    supervisor ─┬─ sentinel (own process group) ─┬─ loop …
                │                                └─ django-q2's pusher and monitor
                └─ short-lived helpers (own process group each)

- Every fork of the family asks the kernel for SIGKILL when its parent dies, so that a killed supervisor takes
  the sentinel along and a killed sentinel its loops. The parent may die between the fork and that request, so
  the child compares its parent with the process that forked it.
- The supervisor is the family's subreaper: orphans become its children, and it can wait until a killed group
  is really gone.

Linux has both. Elsewhere these calls do nothing, and loops notice a dead supervisor by their closed
connection (`liveness.py`).
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


class _Family:
    """What the fork hooks know; they stay registered for the life of the process."""

    hooked = False
    member = False
    head: int | None = None
    forking: int = 0


def _prctl(option: int, argument: int | bytes) -> None:
    if _LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _before_fork() -> None:
    _Family.forking = os.getpid()


def _after_fork_in_child() -> None:
    if not _Family.member:
        return
    # Wake-ups and signal handlers are the supervisor's; a child must not answer for it.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if _Family.forking == _Family.head:
        os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != _Family.forking:
        os._exit(1)


def found() -> None:
    """Make this process the head of a family: its forks, and theirs, die with their parent."""
    _Family.member = True
    _Family.head = os.getpid()
    if not _Family.hooked:
        os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
        _Family.hooked = True
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave() -> None:
    """From here on this process forks as any other: what a loop starts is the loop's own business."""
    _Family.member = False


def die_with(parent: int) -> Callable[[], None]:
    """For `Popen(preexec_fn=…)`: a program that the kernel kills when `parent`, the caller, dies (Linux)."""

    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def set_title(title: str) -> None:
    """Name the process in `ps -o comm` and `top` (Linux shows the first 15 bytes)."""
    _prctl(_PR_SET_NAME, title.encode()[:15])


def kill_group(leader: int) -> None:
    """SIGKILL every process of the group that `leader` founded; none left is fine."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        # macOS says so when only zombies are left.
        return


def wait_for_group(leader: int, *, limit: float) -> bool:
    """Reap what is left of a killed group; False if something of it is still there after `limit` seconds."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        try:
            pid, _ = os.waitpid(-leader, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            # Killed, but not gone: the kernel is still taking its memory apart.
            time.sleep(0.005)
    return False


def reap_orphans(*, known: set[int]) -> None:
    """Reap dead processes that became our children by the death of their parent; `known` are not touched."""
    if not hasattr(os, "waitid"):
        return
    while True:
        try:
            # A look that leaves the zombie where it is: those in `known` are waited for by their owners.
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in known:
            return
        os.waitpid(dead.si_pid, 0)
