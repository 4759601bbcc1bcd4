"""Every place at which a worker can die, with every class of tool: nothing is lost and nothing happens twice.

For each case a real worker process dies by SIGKILL at its point, its lease is ended as the supervisor or the
sweeper does it, and another worker process finishes the session. Cases of one scenario go on side by side:
each first worker claims its own session only.
"""

import ast
import dataclasses
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings

from sessions_app import configs, crashpoints, inputs, invariants, leases, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import EndReason, Entry, Lease, ModelCall, Session, SessionStatus, Turn
from sessions_app.sweeper import Sweeper
from tests import factories
from tests.crash import test_subagents
from tests.crash.invariants import check, refused_requests
from tests.crash.scenarios import SCENARIOS, STEPS, Scenario
from tests.people import answer_everything
from tests.processes.workers import FAST, Process, Workers
from tests.sessions_app.providers.test_requests_on_the_wire import Recorder, recorder  # noqa: F401 - a fixture
from tests.staging import eventually
from tools_app import skills
from tools_app.models import ToolClass
from tools_app.registry import all_tools

AT_ONCE = 6  # first workers that live side by side; each has a few connections
SOURCES = ("sessions_app", "tools_app", "machines_app")

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, **FAST)


@dataclass
class Case:
    """One death. `cut` is what `TENURE_CRASH_AT` says."""

    cut: str
    session: UUID
    swept: bool
    process: Process | None = None
    resumed: frozenset[int] = frozenset()

    @property
    def point(self) -> str:
        return self.cut.partition(":")[0]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.timeout(180)
def test_a_worker_may_die_anywhere(name: str, workers: Workers, recorder: Recorder) -> None:  # noqa: F811
    """L1, L7, S1, S2, S3, S5, S9, I1, T1, T4, R1, C72: each point, each step, one death each."""
    scenario = SCENARIOS[name]
    project = factories.project().pk
    cases = [
        Case(cut, start_session(scenario, cut, project=project), swept=number % 3 == 1)
        for number, cut in enumerate(scenario.cuts())
    ]
    for group in batched(cases, AT_ONCE):
        die(workers, scenario, group)
    finish(workers, cases)

    folder = workers.folder / "effects"
    violations = {case.cut: check(case.session, folder, resumed=case.resumed) for case in cases}
    assert {cut: found for cut, found in violations.items() if found} == {}
    assert invariants.check_workers() == []
    assert refused_requests([case.session for case in cases], recorder) == []
    assert scripts_were_played(scenario, cases) == {}
    written = [f"{cut.replace(':', '-')}.1" for cut in scenario.cuts() if "create_skill" in scenario.tools]
    newest = skills.skills_of(project).exclude(skill__name__in=scenario.skills)
    assert sorted(newest.values_list("skill__name", "version")) == sorted((name, 1) for name in written)


def start_session(scenario: Scenario, cut: str, *, project: UUID) -> UUID:
    """A session with two inputs, due now."""
    delay = 1.0 if cut == "release.before" else None
    for name in scenario.skills:
        skills.put_skill(
            project=project, name=name, description="Notes.", instructions="Be brief.", actor=SYSTEM
        )
    document = scenario.document(f"{cut.replace(':', '-')}", delay=delay)
    config = configs.create_config(project=project, document=document).row
    first, second = ([{"type": "text", "text": text}] for text in ("one", "two"))
    session = session_service.start_session(
        project=project, actor=SYSTEM, config=config.pk, input=NewInput(content=first, actor=SYSTEM)
    )
    inputs.submit_input(session=session.pk, content=second, actor=SYSTEM)
    return session.pk


def die(workers: Workers, scenario: Scenario, cases: tuple[Case, ...]) -> None:
    """The first worker of each case dies at its point; its leases are ended."""
    for case in cases:
        case.process = workers.start(
            owner=f"first {case.cut}", only=[case.session], crash_at=case.cut, worker_threads=2
        )
    for case in cases:
        assert case.process is not None
        if stopped(scenario, case):
            # It is passed where a worker lets go without having finished: a planned stop.
            # The slow call has to be under way: in the backoff before it there is nothing to let go of.
            asked = ModelCall.objects.filter(session_id=case.session)
            eventually(lambda asked=asked: asked.count() > scenario.slow, within=15)
            case.process.send(signal.SIGTERM)
        while case.process.status is None:
            answer_everything([case.session])
            case.process.parent.listen(0.05)
        status = case.process.status
        assert status == -signal.SIGKILL, f"{case.cut} was never passed:\n{case.process.story()}"
    sweeper = Sweeper()
    leased = set(Lease.objects.values_list("pk", flat=True))
    # The sweeper sees every dead worker, so those that a supervisor settles come first.
    for case in sorted(cases, key=lambda case: case.swept):
        assert case.process is not None
        if case.swept:
            eventually(lambda case=case: swept(sweeper, case.session), within=15)
        else:
            leases.end_worker(owner=case.process.owner, reason=EndReason.CRASH)
        row = Session.objects.get(pk=case.session)
        assert not Lease.objects.filter(pk=case.session).exists(), case.cut
        if row.turn_id is not None and row.lease_end is not None:
            case.resumed = frozenset({row.attempt + 1})
        planned = stopped(scenario, case)
        assert row.crash_count == int(case.session in leased and not planned), case.cut
        if row.lease_end is not None:
            assert row.lease_end["reason"] == (EndReason.DRAIN if planned else EndReason.CRASH), case.cut
    sweeper.disconnect()


def stopped(scenario: Scenario, case: Case) -> bool:
    """Whether the first worker is asked to stop; where people are waited for, it lets go by itself."""
    return case.point == "release.before" and not scenario.waits


def swept(sweeper: Sweeper, session: UUID) -> bool:
    sweeper.turn()
    return not Lease.objects.filter(pk=session).exists()


def finish(workers: Workers, cases: list[Case]) -> None:
    """One more worker takes all of them to their end."""
    second = workers.start(owner="second")
    waiting = {case.session for case in cases}

    def rest() -> bool:
        assert second.status is None, second.story()
        answer_everything(waiting)
        return not Session.objects.filter(pk__in=waiting).exclude(status=SessionStatus.IDLE).exists()

    eventually(rest, within=60)
    second.stop()


def scripts_were_played(scenario: Scenario, cases: list[Case]) -> dict[str, Any]:
    """Cases whose answers are not those of the script, each once and in order."""
    wanted = [reply["text"] for reply in scenario.replies if "text" in reply and not reply.get("cut")]
    odd = {}
    for case in cases:
        kinds = ("assistant_message", "checkpoint")
        messages = Entry.objects.filter(session_id=case.session, kind__in=kinds).order_by("seq")
        said = [
            text
            for message in messages
            for text in (
                [message.data["summary"]]
                if message.kind == "checkpoint"
                else [block["text"] for block in message.data["content"] if block["type"] == "text"]
            )
        ]
        ends = list(Turn.objects.filter(session_id=case.session).values_list("status", flat=True))
        if said != wanted or ends != ["succeeded", "succeeded"]:
            odd[case.cut] = (said, ends)
    return odd


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_step_of_a_scenario_is_cut(name: str, workers: Workers) -> None:
    """The number of steps that each scenario is said to have is the real one."""
    scenario = SCENARIOS[name]
    cut = f"step.committed:{scenario.steps + 1}"
    session = start_session(scenario, cut, project=factories.project().pk)
    worker = workers.start(crash_at=cut)

    def rest() -> bool:
        assert worker.status is None, f"{name} has more steps than {scenario.steps}:\n{worker.story()}"
        answer_everything([session])
        return Session.objects.get(pk=session).status == SessionStatus.IDLE

    eventually(rest, within=20)
    worker.stop()
    # With steps to spare, `test_a_worker_may_die_anywhere` would have found a worker that lived on.
    assert check(session, workers.folder / "effects", resumed=()) == []


def test_every_crash_point_is_tested() -> None:
    """A point without a test is an error, and so is a name that no code passes."""
    passed = {cut.partition(":")[0] for scenario in SCENARIOS.values() for cut in scenario.cuts()}
    passed |= {cut.partition(":")[0] for cuts in test_subagents.CUTS.values() for cut in cuts}
    assert passed == set(crashpoints.POINTS)
    assert set(literals("crash_point")) == set(crashpoints.POINTS)
    assert set(STEPS) == {point for point in crashpoints.POINTS if point.startswith("step.")}


def test_every_class_of_tool_is_tested() -> None:
    """The development tools, `set_label` and `ask_user` stand for the classes; custom tools are the configs' own."""
    played = {tool for scenario in SCENARIOS.values() for tool in scenario.tools}
    known = {tool.name: tool for tool in all_tools()}
    classes = {
        (known[tool].tool_class, known[tool].rerun_safe) if tool in known else (ToolClass.CUSTOM, False)
        for tool in played
    }
    assert classes == {
        (ToolClass.INTERNAL, False),
        (ToolClass.OUTSIDE, False),
        (ToolClass.OUTSIDE, True),
        (ToolClass.HUMAN, False),
        (ToolClass.CUSTOM, False),
    }


def literals(function: str) -> Iterator[str]:
    """The texts that the source passes to `function`."""
    for app in SOURCES:
        for path in (Path(settings.BASE_DIR) / app).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", None) == function:
                    (argument,) = node.args
                    assert isinstance(argument, ast.Constant), f"{path}:{node.lineno}: not a plain name"
                    yield argument.value
