"""The wire between supervisor and loop."""

import errno
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from sessions_app.hosting.liveness import Link, Lobby


@pytest.fixture
def lobby() -> Iterator[Lobby]:
    lobby = Lobby()
    yield lobby
    lobby.close()


@pytest.fixture
def wire(lobby: Lobby) -> Iterator[tuple[Link, Link]]:
    """The loop's end and the supervisor's end; both are this process here."""
    ours = lobby.enter()
    (theirs,) = lobby.arrivals()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_process_that_announces_itself_is_known_by_its_pid(wire: tuple[Link, Link]) -> None:
    """L6: the supervisor learns the pid of a grandchild."""
    _, theirs = wire
    assert theirs.pid == os.getpid()
    assert not theirs.closed


def test_messages_arrive_whole_and_in_order(wire: tuple[Link, Link]) -> None:
    """L8: `start` and `drain` sent in one breath are two messages."""
    ours, theirs = wire
    theirs.say("start", role="worker")
    theirs.say("drain", limit=2.5)
    assert ours.hear() == [{"say": "start", "role": "worker"}, {"say": "drain", "limit": 2.5}]
    assert ours.hear() == []


def test_the_last_words_of_a_process_are_heard_although_it_is_gone(wire: tuple[Link, Link]) -> None:
    """L8: a loop that ended cleanly just before it is told to drain did end cleanly."""
    ours, theirs = wire
    ours.say("ended")
    ours.close()
    theirs.say("drain", limit=1)
    assert theirs.hear() == [{"say": "ended"}]
    assert theirs.closed


def test_the_end_of_a_process_is_the_end_of_its_wire(wire: tuple[Link, Link]) -> None:
    """L6: noticed by whoever waits on the descriptor, without a word said."""
    ours, theirs = wire
    assert select.select([theirs], [], [], 0)[0] == []
    ours.close()
    assert select.select([theirs], [], [], 0)[0] == [theirs]
    assert theirs.hear() == []
    assert theirs.closed


@pytest.mark.processes
@pytest.mark.parametrize("handles", [True, False], ids=["by handle", "by pid"])
def test_a_process_can_be_killed_over_its_link(handles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6: a frozen loop is ended, also where the system refuses process handles."""
    if not handles:

        def refuse(_pid: int) -> int:
            raise OSError(errno.ENOSYS, "not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    near, far = socket.socketpair()
    with subprocess.Popen(["sleep", "60"]) as process:
        link = Link(near, process.pid)
        link.hold()
        link.kill()
        assert process.wait(10) == -signal.SIGKILL
    if handles:
        link.kill()
    link.close()
    far.close()


def test_nobody_in_the_lobby(lobby: Lobby) -> None:
    """L6: a look does not block."""
    assert lobby.arrivals() == []
