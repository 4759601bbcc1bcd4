"""The flag that tells a loop to stop: it only moves forward, and whoever waits hears of it."""

import threading
import time

from sessions_app.hosting.stop import StopFlag


def test_draining_has_a_deadline_and_aborts_a_margin_before_it() -> None:
    """L8: 20 s less 3 s."""
    stop = StopFlag()
    assert not stop.is_set()
    assert stop.deadline is None
    before = time.monotonic()
    stop.drain(limit=20, margin=3)
    assert stop.draining
    assert not stop.aborting
    assert stop.deadline is not None
    assert stop.abort_at is not None
    assert 20 <= stop.deadline - before < 20.5
    assert round(stop.deadline - stop.abort_at, 6) == 3


def test_a_second_drain_does_not_move_the_deadline() -> None:
    """L8: a signal for the whole group and the supervisor's word are one request."""
    stop = StopFlag()
    stop.drain(limit=20, margin=3)
    deadline = stop.deadline
    stop.drain(limit=40, margin=3)
    assert stop.deadline == deadline


def test_an_abort_is_also_a_drain() -> None:
    """L8: nobody who only looks at `draining` goes on claiming."""
    stop = StopFlag()
    stop.abort()
    assert stop.draining
    assert stop.aborting


def test_each_move_is_told_once_and_a_late_listener_hears_of_the_past() -> None:
    """L8: no move is missed."""
    stop, told, late = StopFlag(), [], []
    stop.on_change(lambda: told.append((stop.draining, stop.aborting)))
    stop.drain(limit=1, margin=0.1)
    stop.drain(limit=1, margin=0.1)
    remove = stop.on_change(lambda: late.append(stop.aborting))
    assert late == [False]
    remove()
    stop.abort()
    stop.abort()
    assert told == [(True, False), (True, True)]
    assert late == [False]


def test_a_waiting_thread_wakes_up() -> None:
    """L8: an idle loop ends at once."""
    stop = StopFlag()
    woken = threading.Event()

    def wait() -> None:
        if stop.wait(30) and stop.wait_abort(30):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    stop.drain(limit=1, margin=0.1)
    stop.abort()
    thread.join(10)
    assert woken.is_set()


def test_waiting_ends_after_its_timeout() -> None:
    """L8: a poll interval is a wait on the flag."""
    assert StopFlag().wait(0.001) is False
    assert StopFlag().wait_abort(0.001) is False
