"""Seats and the pauses between loops that keep dying."""

import os
import socket
from collections.abc import Iterator

import pytest

from sessions_app.hosting.liveness import Link
from sessions_app.hosting.slots import BACKOFF_MAX, FREE_DEATHS, STABLE_AFTER, Slot, backoff


@pytest.mark.parametrize(
    ("failures", "pause"),
    [(0, 0), (1, 0), (2, 0), (3, 0.25), (4, 0.5), (5, 1), (9, 16), (10, 30), (10**6, 30)],
)
def test_pauses_double_up_to_the_longest(failures: int, pause: float) -> None:
    """L6: restarts are immediate first, never a storm, never given up."""
    assert backoff(failures, free=2, first=0.25, most=30) == pause


@pytest.fixture
def slot() -> Iterator[Slot]:
    """A seat that a loop took at time 100."""
    near, far = socket.socketpair()
    link = Link(near, os.getpid())
    slot = Slot("worker", 0, 0)
    slot.take(link=link, owner="host/1/worker-0/1.1", now=100)
    yield slot
    link.close()
    far.close()


def test_a_loop_that_lived_is_replaced_at_once_however_many_died_before(slot: Slot) -> None:
    """L6: the count starts again after a stable life."""
    slot.early_deaths = 7
    assert slot.vacate(now=100 + STABLE_AFTER) == 0
    assert slot.can_start(now=100 + STABLE_AFTER)
    assert slot.early_deaths == 0


def test_a_loop_that_was_told_to_end_did_not_die_early(slot: Slot) -> None:
    """L8: operators may restart loops as often as they like."""
    slot.early_deaths, slot.draining = FREE_DEATHS, True
    assert slot.vacate(now=100.1) == 0


def test_a_seat_is_missing_its_loop_only_after_its_pause(slot: Slot) -> None:
    """L6: backoff is not a dead queue."""
    assert slot.missing_for(now=500) == 0
    slot.early_deaths = 50
    assert slot.vacate(now=100) == BACKOFF_MAX
    assert not slot.can_start(now=100)
    assert slot.missing_for(now=110) == 0
    assert slot.missing_for(now=100 + BACKOFF_MAX + 3) == 3
