"""The soak's judge notices: each kind of loss and doubling, put there by hand, is a violation of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from bench.report import Report
from bench.soak import judge as judging
from bench.soak.faults import Fault
from bench.soak.plans import plans
from bench.soak.proxy import Exchange
from bench.soak.talk import Said
from sessions_app import ids
from sessions_app.models import Entry, ModelCall, ModelCallState, Project, Session, Turn, TurnStatus
from tests import factories

pytestmark = pytest.mark.django_db

NAMES = ("inputs", "turns", "model calls", "requests", "replies", "tools", "invariants")


@dataclass
class Overheard:
    """What the proxy would have recorded."""

    exchanges: list[Exchange] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


@dataclass
class World:
    """An empty soak, in which nothing is wrong."""

    project: Project
    ledger: Path
    said: list[Said] = field(default_factory=list)
    failed_sessions: list[str] = field(default_factory=list)
    proxy: Overheard = field(default_factory=Overheard)

    def violations(self) -> dict[str, list[str]]:
        report = Report("soak", StringIO())
        judging.judge(report, self, project=self.project, ledger=self.ledger)
        found = {row["what"]: row["found"] for row in report.rows if "found" in row}
        assert bool(report.short) == any(found.values())
        return {name: found[f"violations of {name}"] for name in NAMES}

    def session(self) -> Session:
        return factories.session(config=factories.config(project=self.project))

    def heard(self, **changes: Any) -> None:
        body = {
            "model": "m",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        }
        values = {"session": "soak0001", "protocol": "anthropic", "body": body, "fault": None, "status": 200}
        self.proxy.exchanges.append(Exchange(**(values | changes)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(factories.project(), tmp_path / "ledger")


def test_an_empty_soak_breaks_no_rule(world: World) -> None:
    assert world.violations() == {name: [] for name in NAMES}


def lost_input(world: World) -> None:
    (plan,) = plans(seed=1, sessions=1, turns=1)
    world.said.append(Said(plan, session="ses_x", queued=[ids.encode("inp", ids.new_id())]))


def made_up_input(world: World) -> None:
    factories.received_input(world.session())


def turn_of_nobody(world: World) -> None:
    factories.open_turn(world.session())


def call_that_no_turn_counts(world: World) -> None:
    session = world.session()
    turn = factories.open_turn(session)
    ModelCall.objects.create(
        session=session,
        turn=turn,
        config=session.config,
        attempt=1,
        covers_seq=0,
        state=ModelCallState.SUCCEEDED,
    )
    world.heard()


def turn_that_gave_up_early(world: World) -> None:
    session = world.session()
    turn = factories.open_turn(session)
    Turn.objects.filter(pk=turn.pk).update(
        status=TurnStatus.FAILED, reason="retries_exhausted", ended_at=factories.database_now()
    )


def failed_session_that_is_none(world: World) -> None:
    world.failed_sessions.append("ses_x")


def request_that_nobody_saved(world: World) -> None:
    world.heard()


def fault_that_nobody_noticed(world: World) -> None:
    call_that_no_turn_counts(world)
    world.proxy.exchanges[0].fault = Fault("cut", 0.5, 0)
    world.proxy.exchanges[0].fails = True


def refused_request(world: World) -> None:
    world.heard(body={"model": "m", "max_tokens": 9, "messages": []})


def request_without_an_answer(world: World) -> None:
    world.heard(status=404)


def stranger(world: World) -> None:
    world.proxy.strangers.append("/v1/elsewhere")


def half_a_reply(world: World) -> None:
    session = world.session()
    Entry.objects.create(
        session=session,
        project_id=session.project_id,
        seq=1,
        parent_seq=0,
        kind="assistant_message",
        actor=factories.ACTOR,
        data={
            "content": [{"type": "text", "text": "To the lef"}],
            "stop": "done",
            "model_call": ids.encode("mcl", ids.new_id()),
        },
    )


def effect_of_nobody(world: World) -> None:
    world.ledger.write_text(".")


@pytest.mark.parametrize(
    ("wrong", "name", "said"),
    [
        (lost_input, "inputs", "accepted and is not stored"),
        (lost_input, "turns", "its 1 queued inputs began the turns []"),
        (made_up_input, "inputs", "stored and never accepted"),
        (made_up_input, "inputs", "1 still wait"),
        (turn_of_nobody, "turns", "belongs to no input"),
        (turn_of_nobody, "turns", "is running"),
        (call_that_no_turn_counts, "model calls", "1 are saved, the turns count 0"),
        (turn_that_gave_up_early, "turns", "gave up after 0 failures, not 9"),
        (turn_that_gave_up_early, "turns", "the API does not show turn 1"),
        (failed_session_that_is_none, "turns", "the API lists the sessions ['ses_x'] as failed, not []"),
        (request_that_nobody_saved, "model calls", "1 requests were sent for 0 saved"),
        (fault_that_nobody_noticed, "model calls", "0 have failed, 1 answers had to fail"),
        (refused_request, "requests", "soak0001 over anthropic: "),
        (request_without_an_answer, "requests", "the mock answered 404"),
        (stranger, "requests", "nobody's request: /v1/elsewhere"),
        (half_a_reply, "replies", "is none of the mock's answers"),
        (half_a_reply, "invariants", "model call"),
        (effect_of_nobody, "tools", "1 effects of 0 successes"),
    ],
)
def test_what_is_wrong_is_named(wrong: Callable[[World], None], name: str, said: str, world: World) -> None:
    wrong(world)
    assert any(said in sentence for sentence in world.violations()[name]), world.violations()
