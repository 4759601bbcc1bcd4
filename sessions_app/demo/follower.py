"""Following one session: its log and status through the API, who holds it from the leases.

Which process to kill is nothing a client could know, so for that alone the follower looks where an operator
would: at the lease, its worker, and the open model call.
"""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import psutil

from sessions_app import ids
from sessions_app.demo.api import Api, Json
from sessions_app.demo.processes import Child, ChildFailed
from sessions_app.demo.timeline import Timeline
from sessions_app.models import Lease, ModelCall, ModelCallState

AT_REST = "idle,waiting"
_NEAR = 0.02
_FOREIGN = "another runworker ({where}) works on this database; stop it and try again"


class FellShort(Exception):
    """The demo did not show what it is there to show; the message says why."""


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds the session: an attempt, the loop process, and the `runworker` that it belongs to."""

    attempt: int
    pid: int
    tree: Child

    @property
    def worker(self) -> str:
        return f"{self.tree.name} {self.pid}"


class Follower:
    """`trees` are the runworkers that may hold the session, `others` are children that have to live."""

    def __init__(
        self,
        *,
        api: Api,
        session: str,
        timeline: Timeline,
        trees: list[Child],
        others: Sequence[Child],
        limit: float,
    ) -> None:
        self.api, self.session, self.timeline, self.trees = api, session, timeline, trees
        self.key: UUID = ids.decode("ses", session)
        self.entries: list[Json] = []
        self.status = ""
        self.held: Held | None = None
        self._others = others
        self._limit = limit
        self._tree_of: dict[int, Child] = {}

    def until[T](self, condition: Callable[[], T | None], *, what: str, every: float = 0.1) -> T:
        """What `condition` says as soon as it is true, looking and printing meanwhile."""
        end = time.monotonic() + self._limit
        while True:
            self.look(every)
            if found := condition():
                return found
            for child in self._others:
                if not child.running:
                    raise ChildFailed(f"{child.name} ended with status {child.process.returncode}", child)
            if time.monotonic() > end:
                raise FellShort(f"waited {self._limit:g} s for {what}; the session is {self.status}")
            self.timeline.waiting(f"waiting for {what}")

    def look(self, every: float = _NEAR) -> None:
        """Read what is new; waits up to `every` seconds for the session to come to rest."""
        self.held = self._holder()
        if self.held:
            self.timeline.holder(self.held.attempt, self.held.worker)
        self.status = self.api.wait(self.session, statuses=AT_REST, timeout=every)["status"]
        if self.status in AT_REST:
            time.sleep(every)
        self.held = self._holder()
        if self.held:
            self.timeline.holder(self.held.attempt, self.held.worker)
        last = self.entries[-1]["seq"] if self.entries else 0
        for entry in self.api.entries(self.session, after=last):
            self.entries.append(entry)
            self.timeline.entry(entry)

    def of_kind(self, kind: str) -> list[Json]:
        return [entry for entry in self.entries if entry["kind"] == kind]

    def at_rest(self) -> bool:
        """Nothing is under way, and every input has had its turn."""
        inputs, ended = len(self.of_kind("input_received")), len(self.of_kind("turn_ended"))
        return self.status in AT_REST and 0 < inputs == ended

    def open_call(self) -> ModelCall | None:
        """The model call that is under way."""
        return ModelCall.objects.filter(session=self.key, state=ModelCallState.STARTED).first()

    def state_of(self, call: ModelCall) -> str:
        return ModelCall.objects.values_list("state", flat=True).get(pk=call.pk)

    def _holder(self) -> Held | None:
        lease = Lease.objects.select_related("worker").filter(pk=self.key).first()
        if lease is None:
            return None
        if lease.worker.host != socket.gethostname():
            raise FellShort(_FOREIGN.format(where=lease.worker.host))
        tree = self._tree(lease.worker.pid)
        return Held(lease.attempt, lease.worker.pid, tree) if tree else None

    def _tree(self, pid: int) -> Child | None:
        """Whose process that is; None if it has just died. Raises FellShort for somebody else's."""
        if pid not in self._tree_of:
            try:
                above = {process.pid for process in psutil.Process(pid).parents()}
            except psutil.NoSuchProcess:
                return None
            tree = next((tree for tree in self.trees if tree.pid in above), None)
            if tree is None:
                if above <= {1}:
                    return None  # its family has just died, and so will it
                raise FellShort(_FOREIGN.format(where=f"process {pid}"))
            self._tree_of[pid] = tree
        return self._tree_of[pid]
