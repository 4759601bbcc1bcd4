"""A worker dies anywhere while an agent starts a subagent, while that works, and when its parent goes on (T8).

Three times the same small tree: the parent starts a subagent and waits for it, the subagent uses a tool and
answers, the parent says so. In each case one worker dies at one point of one of the three parts; another worker
finishes all. However it happened, there is one subagent, told of once, and one result of the wait.
"""

import dataclasses
import signal
from itertools import batched
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sessions_app import configs, ids, invariants, leases, profiles, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Child, EndReason, Entry, Lease, Session, SessionStatus, TreeBudget, Turn
from tests import factories
from tests.crash.invariants import check
from tests.processes.workers import FAST, Workers
from tests.staging import eventually

pytestmark = pytest.mark.processes

AT_ONCE = 6

_CLAIM = ("claim.before", "claim.committed", "load.done")
_MODEL = ("model.before", "model.streaming", "model.after")
_INTERNAL = ("internal.before", "internal.effect", "internal.committed")


def _steps(number: int) -> tuple[str, ...]:
    points = ("step.locked", "step.written", "step.committed")
    return tuple(f"{point}:{time}" for time in range(1, number + 1) for point in points)


CUTS = {
    "the start": (
        *_CLAIM,
        *_MODEL,
        *_steps(2),
        *_INTERNAL,
        *(f"{point}:2" for point in _INTERNAL),
        "release.before",
    ),
    "the subagent": (*_CLAIM, *_MODEL, *_INTERNAL, *_steps(4), "parent.told"),
    "the answer": (*_CLAIM, *_MODEL, *_steps(2)),
}


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, **FAST)


def document(*replies: dict[str, Any]) -> dict[str, Any]:
    return {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "crash"},
        "tools": {"set_label": {}, "start_subagent": {}, "wait_subagents": {}},
        "script": {"replies": list(replies)},
    }


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.fixture
def start() -> Any:
    """Starts a parent."""
    project = factories.project().pk

    def config(*replies: dict[str, Any]) -> UUID:
        return configs.create_config(project=project, document=document(*replies)).row.pk

    helper = config({"tool_calls": [call("set_label", key="seen", value="yes")]}, {"text": "Helped."})
    profiles.create_profile(project=project, name="helper", config=helper, actor=SYSTEM)
    agent = config(
        {"tool_calls": [call("start_subagent", input="help", profile="helper"), call("wait_subagents")]},
        {"text": "Thanks."},
    )

    def begin() -> UUID:
        first = NewInput(content=[{"type": "text", "text": "go"}], actor=SYSTEM)
        return session_service.start_session(project=project, actor=SYSTEM, config=agent, input=first).pk

    return begin


def child_of(parent: UUID) -> UUID:
    return Session.objects.values_list("pk", flat=True).get(parent_id=parent)


def work(workers: Workers, sessions: list[UUID], *, until: str, only: bool = True) -> None:
    """A worker that lives brings these sessions to a status."""
    worker = workers.start(only=sessions if only else None)

    def there() -> bool:
        assert worker.status is None, worker.story()
        rows = Session.objects.filter(pk__in=sessions, lease=None, status=until)
        return rows.count() == len(sessions)

    eventually(there, within=60)
    worker.stop()


@pytest.mark.parametrize("part", CUTS)
@pytest.mark.timeout(240)
def test_a_tree_survives_the_death_of_a_worker_anywhere(part: str, workers: Workers, start: Any) -> None:
    """T8, S2, L7: the call and the child, its end and the parent's result: both or neither"""
    cuts = CUTS[part]
    parents = [start() for _ in cuts]
    victims = parents
    if part != "the start":
        work(workers, parents, until=SessionStatus.WAITING)
        victims = [child_of(parent) for parent in parents]
    if part == "the answer":
        work(workers, victims, until=SessionStatus.IDLE)
        victims = parents
    for group in batched(zip(cuts, victims, strict=True), AT_ONCE):
        die(workers, dict(group))
    last = workers.start(owner="last")

    def done() -> bool:
        assert last.status is None, last.story()
        return not Session.objects.exclude(status=SessionStatus.IDLE).exists()

    eventually(done, within=90)
    last.stop()
    found = {cut: faults(parent, workers.folder) for cut, parent in zip(cuts, parents, strict=True)}
    assert {cut: sentences for cut, sentences in found.items() if sentences} == {}
    assert invariants.check_workers() == []
    assert invariants.check_trees() == []


def die(workers: Workers, victims: dict[str, UUID]) -> None:
    """Each has a worker of its own, which dies; what it held is ended as its supervisor does it."""
    processes = {
        cut: workers.start(owner=f"first {cut}", only=[session], crash_at=cut, worker_threads=2)
        for cut, session in victims.items()
    }
    for cut, process in processes.items():
        assert process.wait() == -signal.SIGKILL, f"{cut} was never passed:\n{process.story()}"
    for cut, process in processes.items():

        def ended(process: Any = process, cut: str = cut) -> bool:
            # The transaction it died in may hold a session's lock for a moment longer.
            leases.end_worker(owner=process.owner, reason=EndReason.CRASH)
            return not Lease.objects.filter(pk=victims[cut]).exists()

        eventually(ended)


def faults(parent: UUID, folder: Path) -> list[str]:
    """What is not as it should be in a tree that has come to rest."""
    everybody = [parent, *Session.objects.filter(parent_id=parent).values_list("pk", flat=True)]
    found = [sentence for session in everybody for sentence in check(session, folder / "effects")]
    if len(everybody) != 2:
        return [*found, f"{len(everybody) - 1} subagents instead of one"]
    child = Child.objects.get(parent_id=parent)
    if (child.working, child.status, child.reason) != (False, "succeeded", "done"):
        found.append(f"the subagent counts as {child.working=} {child.status=} {child.reason=}")
    for kind in ("child_started", "child_ended"):
        told = Entry.objects.filter(session_id=parent, kind=kind).count()
        if told != 1:
            found.append(f"{told} entries {kind}")
    waited = Entry.objects.filter(session_id=parent, kind="tool_result", data__name="wait_subagents")
    shown = [row.data["content"][0]["value"]["subagents"] for row in waited]
    wanted = {
        "subagent": ids.encode("ses", child.pk),
        "status": "succeeded",
        "reason": "done",
        "answer": "Helped.",
    }
    if shown != [[wanted]]:
        found.append(f"the wait brought {shown}")
    ends = list(Turn.objects.filter(session_id__in=everybody).values_list("status", flat=True))
    if ends != ["succeeded", "succeeded"]:
        found.append(f"turns ended {ends}")
    budget = TreeBudget.objects.get(pk=parent)
    used = (budget.model_calls, budget.tool_calls, budget.reserved_model_calls, budget.reserved_tokens)
    if used != (4, 3, 0, 0):
        found.append(f"the budget says {used}")
    return found
