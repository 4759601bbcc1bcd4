"""Which loops exist and what they run.

A loop is a function `run(owner: str, stop: StopFlag) -> None` that returns soon after `stop` tells it to.
It is named here by a dotted path and imported late: hosting knows no domain code, and a role that is not
started costs no import. `owner` is unique for each start of a loop process and is the name under which it
holds leases.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from sessions_app.hosting.stop import StopFlag

ROLES: dict[str, str] = {
    "worker": "sessions_app.engine.worker:run",
    "sweeper": "sessions_app.sweeper:run",
}

END_WORKER = "sessions_app.leases:end_worker"
"""Ends all leases of a loop process that is gone; called in a helper process of the supervisor."""

LoopFunction = Callable[[str, StopFlag], None]


class EndWorker(Protocol):
    """`end_worker(owner=…, reason="crash" | "drain")` returns the number of leases it ended."""

    def __call__(self, *, owner: str, reason: str) -> int: ...


def load(path: str) -> object:
    """The object that `package.module:name` names; ImportError or AttributeError if there is none."""
    module, _, name = path.partition(":")
    return cast("object", getattr(import_module(module), name))


def loop_of(role: str) -> LoopFunction:
    """The loop function of a role; KeyError for a role that does not exist."""
    return cast("LoopFunction", load(ROLES[role]))


def end_worker() -> EndWorker:
    """The function that ends a dead loop's leases."""
    return cast("EndWorker", load(END_WORKER))
