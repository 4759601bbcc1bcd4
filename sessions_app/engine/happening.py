"""What passes between a run and its acts: what it needs of its worker, and what an act brought."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from sessions_app import steps
from sessions_app.log import NewEntry
from sessions_app.tool_port import Call, Completed


class Holder(Protocol):
    """What a run needs of its worker."""

    worker_id: int
    draining: bool

    async def commit(self, step: steps.StepWrite) -> steps.StepResult: ...

    async def in_database[T](self, function: Callable[..., T], *args: Any) -> T: ...

    def gives_way(self, held_since: float) -> bool:
        """Whether a session held since then should let others go first."""
        ...


@dataclasses.dataclass(slots=True)
class Happened:
    """What an act brought, on its way into the next step."""

    entries: list[NewEntry] = dataclasses.field(default_factory=list)
    message: int | None = None
    calls: list[Call] = dataclasses.field(default_factory=list)
    results: list[Completed] = dataclasses.field(default_factory=list)
    model_call_end: steps.ModelCallEnd | None = None
    resumed: bool = False
    resets_crashes: bool = False
    compaction_over: bool = False

    def __bool__(self) -> bool:
        return bool(self.entries or self.results)
