"""R8: limits, with a real worker in this process and the scripted provider."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import configs, control, inputs, invariants, session_service
from sessions_app.engine import calling
from sessions_app.engine import state as states
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, InputState, ModelCall, Session, Turn
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.staging import eventually
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

LABEL = {"name": "set_label", "arguments": {"key": "a", "value": "b"}}


def start(
    *replies: dict[str, Any],
    limits: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    **more: Any,
) -> UUID:
    """A session under a script with these limits, and one input."""
    project = factories.project().pk
    document = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "limited"},
        "script": {"replies": list(replies)},
        "tools": {"set_label": {}, "dev_append": {}},
    }
    if limits is not None:
        document["limits"] = limits
    config = configs.create_config(project=project, document=document | more).row
    first = NewInput(content=[{"type": "text", "text": "go"}], actor=SYSTEM)
    return session_service.start_session(
        project=project, actor=SYSTEM, config=config.pk, input=first, limits=own
    ).pk


def say(session: UUID, text: str = "again") -> None:
    inputs.submit_input(session=session, content=[{"type": "text", "text": text}], actor=SYSTEM)


def ends(session: UUID) -> list[tuple[str, str]]:
    rows = Turn.objects.filter(session_id=session).order_by("number")
    return [(row.status, row.reason) for row in rows]


def told(session: UUID) -> list[tuple[str, str, str, str]]:
    """(kind, limit, used, of) of what the log says about limits."""
    rows = Entry.objects.filter(session_id=session, kind__in=["limit_warning", "limit_reached"]).order_by(
        "seq"
    )
    return [(row.kind, row.data["limit"], row.data["used"], row.data["of"]) for row in rows]


def kinds(session: UUID) -> list[str]:
    return list(Entry.objects.filter(session_id=session).order_by("seq").values_list("kind", flat=True))


def asks_for(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(calls)}


def test_a_turn_ends_when_its_model_calls_are_used_up(settings: Any) -> None:
    """R8: a warning at two thirds in the step that gets there, then the end, named in log and turn."""
    session = start(*[asks_for(LABEL)] * 5, limits={"turn": {"model_calls": 3}})
    with working(settings) as rested:
        row = rested(session)
    assert ends(session) == [("failed", "limit")]
    assert told(session) == [
        ("limit_warning", "turn.model_calls", "2", "3"),
        ("limit_reached", "turn.model_calls", "3", "3"),
    ]
    assert row.last_turn.error["code"] == "limit"
    assert "3 of 3 model calls" in row.last_turn.error["detail"]
    assert ModelCall.objects.filter(session_id=session).count() == 3
    assert kinds(session)[-2:] == ["limit_reached", "turn_ended"]
    assert invariants.check_session(session) == []


def test_the_next_turn_has_its_own_budget_and_the_session_keeps_its_sum(settings: Any) -> None:
    """R8: the limit of a session ends whatever turn meets it, each one said and ended for itself."""
    session = start(
        *[{"text": str(number)} for number in range(9)],
        limits={"turn": {"model_calls": 2}, "session": {"model_calls": 3}},
    )
    with working(settings) as rested:
        for _ in range(3):
            rested(session)
            say(session)
        rested(session)
        for text in ("one", "two"):
            say(session, text)
        row = rested(session)
    assert ends(session) == [("succeeded", "done")] * 3 + [("failed", "limit")] * 3
    warnings = [one for one in told(session) if one[0] == "limit_warning"]
    assert warnings == [("limit_warning", "session.model_calls", "2", "3")]
    assert [one[1:] for one in told(session) if one[0] == "limit_reached"] == [
        ("session.model_calls", "3", "3")
    ] * 3
    assert row.status == "idle"
    assert not row.inputs.filter(state=InputState.RECEIVED).exists()
    assert invariants.check_session(session) == []


def test_a_session_of_its_own_limits_overrides_its_config(settings: Any) -> None:
    """R8"""
    session = start(
        *[asks_for(LABEL)] * 2,
        {"text": "done"},
        limits={"turn": {"model_calls": 1}},
        own={"turn": {"model_calls": 9}},
    )
    with working(settings) as rested:
        rested(session)
    assert ends(session) == [("succeeded", "done")]


def test_a_config_with_more_room_lets_the_session_go_on(settings: Any) -> None:
    """R8, I7: limits are those of the config that holds now."""
    session = start({"text": "one"}, {"text": "two"}, limits={"session": {"model_calls": 1}})
    with working(settings) as rested:
        row = rested(session)
        say(session)
        rested(session)
        assert ends(session)[-1] == ("failed", "limit")
        wider = {**row.config.document, "limits": {"session": {"model_calls": 9}}}
        config = configs.create_config(project=row.project_id, document=wider).row
        control.change_config(session=session, config=config.pk, actor=SYSTEM)
        say(session)
        rested(session)
    assert ends(session) == [("succeeded", "done"), ("failed", "limit"), ("succeeded", "done")]


def test_new_limits_of_its_own_hold_from_the_next_call_on(settings: Any) -> None:
    """R8, S11: also where a worker holds the session and is waiting for a reply."""
    replies = [{"tool_calls": [LABEL], "delay": 0.5}, *[asks_for(LABEL)] * 3, {"text": "done"}]
    session = start(*replies, own={"turn": {"model_calls": 9}})
    with working(settings) as rested:
        eventually(lambda: ModelCall.objects.filter(session_id=session, state="started").exists())
        session_service.update_session(session=session, actor=SYSTEM, limits={"turn": {"model_calls": 2}})
        rested(session)
        assert ends(session) == [("failed", "limit")]
        session_service.update_session(session=session, actor=SYSTEM, limits={})
        say(session)
        rested(session)
    assert ends(session) == [("failed", "limit"), ("succeeded", "done")]
    assert [one[2:] for one in told(session) if one[0] == "limit_reached"] == [("2", "2")]


def test_calls_beyond_the_limit_get_a_result_that_says_so_and_never_run(settings: Any) -> None:
    """R8: the first ones of the reply run; the turn ends when the batch is done."""
    calls = [{"name": "set_label", "arguments": {"key": str(at), "value": "x"}} for at in range(4)]
    session = start(
        asks_for(calls[0]), asks_for(*calls[1:]), {"text": "never"}, limits={"turn": {"tool_calls": 3}}
    )
    with working(settings) as rested:
        row = rested(session)
    assert ends(session) == [("failed", "limit")]
    rows = ToolCall.objects.filter(session_id=session).order_by("message_seq", "position")
    assert [call.outcome for call in rows] == ["succeeded", "succeeded", "succeeded", "failed"]
    assert "limit on tool calls" in rows[3].content[0]["text"]
    assert row.labels == {"0": "x", "1": "x", "2": "x"}
    assert told(session)[-1] == ("limit_reached", "turn.tool_calls", "4", "3")
    assert invariants.check_session(session) == []


def test_a_turn_without_tool_calls_left_may_still_answer(settings: Any) -> None:
    """R8: exactly as many calls as allowed is not too many."""
    session = start(asks_for(LABEL), asks_for(LABEL), {"text": "done"}, limits={"turn": {"tool_calls": 2}})
    with working(settings) as rested:
        rested(session)
    assert ends(session) == [("succeeded", "done")]
    assert told(session) == [("limit_warning", "turn.tool_calls", "2", "2")]


def test_tokens_of_input_and_output_count(settings: Any) -> None:
    """R8: what the turn has used is known before each call, so it goes over by one call at most."""
    session = start(*[asks_for(LABEL)] * 30, limits={"turn": {"tokens": 400}})
    with working(settings) as rested:
        row = rested(session)
    used = row.last_turn.input_tokens + row.last_turn.output_tokens
    assert ends(session) == [("failed", "limit")]
    assert used >= 400
    assert told(session)[-1] == ("limit_reached", "turn.tokens", str(used), "400")
    last = ModelCall.objects.filter(session_id=session).order_by("-started_at").first()
    assert last is not None
    assert used - last.input_tokens - last.output_tokens < 400  # one call over, never more


def test_known_costs_count(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R8, R7"""
    monkeypatch.setattr(calling.prices, "cost_of", lambda *_, **__: Decimal("0.4"))
    session = start(*[asks_for(LABEL)] * 9, limits={"turn": {"cost_usd": "1.00"}})
    with working(settings) as rested:
        rested(session)
    assert ends(session) == [("failed", "limit")]
    assert told(session) == [
        ("limit_warning", "turn.cost_usd", "0.8", "1.00"),
        ("limit_reached", "turn.cost_usd", "1.2", "1.00"),
    ]


def test_a_cost_that_nobody_knows_is_told_once_and_stops_nothing(settings: Any) -> None:
    """R8, R7: unknown is neither zero nor a reason to stop; scripted calls have no price."""
    session = start(
        *[asks_for(LABEL)] * 3, {"text": "done"}, {"text": "done"}, limits={"session": {"cost_usd": "1.00"}}
    )
    with working(settings) as rested:
        rested(session)
        say(session)
        rested(session)
    assert ends(session) == [("succeeded", "done")] * 2
    assert told(session) == [("limit_warning", "session.cost_usd", "unknown", "1.00")]


def test_a_model_call_is_stopped_when_the_time_is_over_and_not_asked_again(settings: Any) -> None:
    """R8: it ends as the limit, not as a failure to retry."""
    session = start({"text": "late", "delay": 30}, limits={"turn": {"wall_time": "300ms"}})
    with working(settings) as rested:
        row = rested(session)
    assert ends(session) == [("failed", "limit")]
    call = ModelCall.objects.get(session_id=session)
    assert (call.state, call.error["code"], call.may_be_billed) == ("failed", "limit", True)
    assert kinds(session)[-3:] == ["model_call_failed", "limit_reached", "turn_ended"]
    assert "wall_time" in row.last_turn.error["detail"]
    assert (row.last_turn.ended_at - row.last_turn.started_at).total_seconds() < 10
    assert invariants.check_session(session) == []


def test_a_tool_is_stopped_when_the_time_is_over(settings: Any, tmp_path: Any) -> None:
    """R8: its result says why and that its effect is not known."""
    call = {"name": "dev_append", "arguments": {"file": "slow", "delay": 60}}
    session = start(asks_for(call), {"text": "never"}, limits={"turn": {"wall_time": "500ms"}})
    with working(settings, dev_tool_root=str(tmp_path)) as rested:
        rested(session)
    assert ends(session) == [("failed", "limit")]
    row = ToolCall.objects.get(session_id=session)
    assert row.outcome == "failed"
    assert "was stopped: the time limit" in row.content[0]["text"]
    assert not (tmp_path / "slow").exists()


def test_time_counts_from_the_start_of_the_turn_by_the_database_over_all_attempts(settings: Any) -> None:
    """R8: a turn that began an hour ago has no time left for whoever claims it now; nothing is sent."""
    session = start({"text": "never"}, limits={"turn": {"wall_time": "30m"}})
    row = Session.objects.get(pk=session)
    turn = factories.open_turn(row)
    Turn.objects.filter(pk=turn.pk).update(started_at=factories.database_now(-3600))
    with working(settings) as rested:
        rested(session)
    assert ends(session)[0] == ("failed", "limit")
    assert ModelCall.objects.filter(turn=turn).count() == 0
    (reached,) = [one for one in told(session) if one[0] == "limit_reached"]
    assert reached[1] == "turn.wall_time"
    assert float(reached[2]) >= 3600


def test_the_time_of_a_session_is_that_of_its_turns(settings: Any) -> None:
    """R8: what passes between them is nobody's."""
    session = start({"text": "one"}, {"text": "never"}, limits={"session": {"wall_time": "1h"}})
    with working(settings) as rested:
        rested(session)
    began, ended = factories.database_now(-9000), factories.database_now(-5000)
    Turn.objects.filter(session_id=session).update(started_at=began, ended_at=ended)
    say(session)
    with working(settings) as rested:
        rested(session)
    assert ends(session) == [("succeeded", "done"), ("failed", "limit")]
    assert told(session)[-1][1] == "session.wall_time"


def test_what_another_attempt_used_and_told_is_known_to_the_next(settings: Any) -> None:
    """R8: totals and warnings are loaded at the claim, whatever branch the session is on."""
    session = start(*[{"text": str(at)} for at in range(9)], limits={"session": {"model_calls": 3}})
    for _ in range(2):
        with working(settings) as rested:
            rested(session)
        say(session)
    assert told(session) == [("limit_warning", "session.model_calls", "2", "3")]
    meter = states.load({session: 1})[session].meter
    assert (meter.session.model_calls, meter.told) == (2, {("session.model_calls", "3", False)})
    with working(settings) as rested:
        rested(session)
    assert len(told(session)) == 1


def test_a_compaction_of_an_idle_session_beyond_its_limit_is_not_made(settings: Any) -> None:
    """R8, R5: the session has no calls left; whoever asked is told."""
    session = start({"text": "one"}, limits={"session": {"model_calls": 1}})
    with working(settings) as rested:
        rested(session)
        control.request_compaction(session=session, actor=SYSTEM)
        rested(session)
    assert ModelCall.objects.filter(session_id=session).count() == 1
    note = Entry.objects.filter(session_id=session, kind="note").get()
    assert "compaction" in note.data["text"]


def test_limits_cost_a_claim_nothing_where_there_are_none() -> None:
    """Speed: five queries, as before; costs, times and warnings are asked only where limits need them."""
    plain = start({"text": "one"})
    states.load({plain: 1})  # reads the config once for the process
    with CaptureQueriesContext(
        connection,
    ) as queries:
        states.load({plain: 1})
    without = len(queries)
    limited = start({"text": "one"}, limits={"turn": {"cost_usd": "1"}, "session": {"wall_time": "1h"}})
    states.load({limited: 1})
    with CaptureQueriesContext(connection) as queries:
        states.load({limited: 1})
    assert without <= 4
    assert len(queries) == without + 3
