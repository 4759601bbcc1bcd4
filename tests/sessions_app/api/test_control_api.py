"""The queue, another config, archive and restore through the API: shapes, conflicts, isolation, replays."""

from typing import Any

import pytest

from sessions_app import ids
from sessions_app.models import Entry, Input, Session
from tests import factories
from tests.sessions_app.api.conftest import Api, of, ok, problem
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db


def at(row: Input, rest: str) -> str:
    return f"/inputs/{ids.encode('inp', row.pk)}{rest}"


def listed(api: Api, session: Session) -> list[tuple[str, int]]:
    rows = ok(api.get(of(session, "/inputs?state=received")))["data"]
    by_place = sorted(rows, key=lambda row: row["position"])
    return [(row["content"][0]["text"], row["position"]) for row in by_place]


# --- the queue -------------------------------------------------------------------------------------------


def test_an_input_moves_to_an_end_or_next_to_another(api: Api, session: Session) -> None:
    """I3, A58: the answer is the input in its new place."""
    a, b, c = (factories.received_input(session, text=text) for text in "abc")
    moved = ok(api.post(at(c, "/move"), {"to": "first"}))
    assert (moved["id"], moved["position"], moved["state"]) == (ids.encode("inp", c.pk), 1, "received")
    assert ok(api.post(at(c, "/move"), {"after": ids.encode("inp", a.pk)}))["position"] == 2
    assert ok(api.post(at(b, "/move"), {"before": ids.encode("inp", a.pk)}))["position"] == 1
    assert ok(api.post(at(b, "/move"), {"to": "last"}))["position"] == 3
    assert listed(api, session) == [("a", 1), ("c", 2), ("b", 3)]


@pytest.mark.parametrize(
    "body", [{}, {"to": "middle"}, {"to": "first", "before": "inp_x"}, {"before": "ses_1"}, {"next_to": 1}]
)
def test_a_move_needs_exactly_one_place(api: Api, session: Session, body: dict[str, Any]) -> None:
    row = factories.received_input(session)
    problem(api.post(at(row, "/move"), body), 400, "invalid")


def test_two_places_are_refused(api: Api, session: Session) -> None:
    row, other = factories.received_input(session), factories.received_input(session)
    body = {"to": "first", "before": ids.encode("inp", other.pk)}
    problem(api.post(at(row, "/move"), body), 400, "invalid")


def test_a_move_next_to_what_does_not_wait_is_a_conflict(api: Api, session: Session) -> None:
    """A58: the current state of the input itself comes along."""
    row = factories.received_input(session)
    elsewhere = factories.received_input(factories.session())
    answer = api.post(at(row, "/move"), {"before": ids.encode("inp", elsewhere.pk)})
    assert problem(answer, 409, "conflict")["current"]["id"] == ids.encode("inp", row.pk)


def test_promote_and_demote(api: Api, session: Session) -> None:
    """I3: the place stays."""
    factories.received_input(session)
    row = factories.received_input(session, text="now")
    assert ok(api.post(at(row, "/promote")))["delivery"] == "steering"
    shown = ok(api.post(at(row, "/demote"), {}))
    assert (shown["delivery"], shown["position"]) == ("queued", 2)


@pytest.mark.parametrize(
    ("operation", "body"),
    [("move", {"to": "last"}), ("promote", None), ("demote", None), ("cancel", None)],
)
def test_taken_and_foreign_inputs(
    api: Api, other_api: Api, session: Session, operation: str, body: Any
) -> None:
    """I3: once taken 409 with the input; of another project or none 404, all alike."""
    row = factories.received_input(session)
    for path in (
        at(row, f"/{operation}"),
        at(Input(pk=ids.new_id()), f"/{operation}"),
        f"/inputs/x/{operation}",
    ):
        problem(other_api.post(path, body), 404, "not_found")
    turn = factories.open_turn(session)
    Input.objects.filter(pk=row.pk).update(state="delivered", turn=turn)
    document = problem(api.post(at(row, f"/{operation}"), body), 409, "input_taken")
    assert document["current"]["state"] == "delivered"


def asking(session: Session, name: str) -> ToolCall:
    return factories.tool_call(session, state="waiting", tool_class="human", name=name)


def test_steering_that_closes_prompts_does_not_close_a_newer_one_when_it_is_replayed(
    api: Api, session: Session
) -> None:
    """A56, I4: the replay gives the first answer and does nothing."""
    factories.open_turn(session)
    first = asking(session, "first")
    body = {"content": "never mind", "delivery": "steering", "cancel_open": True}
    answer = api.post(of(session, "/inputs"), body, Idempotency_Key="k")
    assert ToolCall.objects.get(pk=first.pk).outcome == "cancelled"
    newer = asking(session, "newer")
    again = api.post(of(session, "/inputs"), body, Idempotency_Key="k")
    assert again["Idempotency-Replayed"] == "true"
    assert ok(again, 202) == ok(answer, 202)
    assert ToolCall.objects.get(pk=newer.pk).state == "waiting"
    assert Input.objects.count() == 1


def test_queued_input_that_would_close_prompts_is_refused(api: Api, session: Session) -> None:
    """A57"""
    factories.open_turn(session)
    call = asking(session, "open")
    document = problem(
        api.post(of(session, "/inputs"), {"content": "x", "cancel_open": True}), 400, "invalid"
    )
    assert [error["path"] for error in document["errors"]] == ["/cancel_open"]
    assert ToolCall.objects.get(pk=call.pk).state == "waiting"


def test_a_promotion_may_close_prompts(api: Api, session: Session) -> None:
    """A55"""
    factories.open_turn(session)
    asked, backend = asking(session, "open"), factories.tool_call(session, state="waiting")
    row = factories.received_input(session)
    ok(api.post(at(row, "/promote"), {"cancel_open": True}))
    states = dict(ToolCall.objects.values_list("pk", "state"))
    assert (states[asked.pk], states[backend.pk]) == ("completed", "waiting")


# --- config ----------------------------------------------------------------------------------------------


def test_a_session_changes_its_config(api: Api, session: Session) -> None:
    """I7: the answer is the session; an idempotent replay is the same event (A65)"""
    new = factories.config(project=api.project)
    body = {"config": ids.encode("cfg", new.pk), "expected_config": ids.encode("cfg", session.config_id)}
    shown = ok(api.post(of(session, "/config"), body, Idempotency_Key="k"))
    assert (shown["config"], shown["status"]) == (body["config"], "idle")
    again = api.post(of(session, "/config"), body, Idempotency_Key="k")
    assert (again["Idempotency-Replayed"], ok(again)) == ("true", shown)
    assert [entry.kind for entry in Entry.objects.filter(session=session)] == ["config_changed"]
    document = problem(api.post(of(session, "/config"), body), 409, "config_moved")
    assert document["current"]["config"] == body["config"]


def test_a_config_that_is_not_there_is_not_found(api: Api, other_api: Api, session: Session) -> None:
    foreign = ids.encode("cfg", factories.config(project=other_api.project).pk)
    for config in (foreign, ids.encode("cfg", ids.new_id())):
        problem(api.post(of(session, "/config"), {"config": config}), 404, "not_found")
    problem(api.post(of(session, "/config"), {"config": "cfg_1"}), 400, "invalid")
    mine = ids.encode("cfg", session.config_id)
    problem(other_api.post(of(session, "/config"), {"config": mine}), 404, "not_found")


# --- archive ---------------------------------------------------------------------------------------------


def test_an_archived_session_is_read_and_restored_and_nothing_else(api: Api, session: Session) -> None:
    """A142, I6: old keys are replayed, new input is a conflict; it is listed and can be read."""
    said = api.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="old")
    shown = ok(api.post(of(session, "/archive")))
    assert (shown["status"], shown["queued_inputs"], shown["turn"]) == ("archived", 0, None)
    assert shown["archived_at"] is not None
    assert ok(api.post(of(session, "/archive"))) == shown

    again = api.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="old")
    assert (again["Idempotency-Replayed"], ok(again, 202)) == ("true", said.json())
    config = {"config": ids.encode("cfg", session.config_id)}
    for path, body in [("/inputs", {"content": "more"}), ("/cancel", None), ("/config", config)]:
        document = problem(api.post(of(session, path), body), 409, "session_archived")
        assert document["current"]["status"] == "archived"
    problem(api.patch(of(session), {"name": "x"}), 409, "session_archived")

    assert [row["id"] for row in ok(api.get("/sessions?archived=true"))["data"]] == [shown["id"]]
    assert ok(api.get("/sessions?status=archived"))["data"] != []
    assert ok(api.get("/sessions?archived=false"))["data"] == []
    assert ok(api.get(of(session))) == shown
    kinds = [entry["kind"] for entry in ok(api.get(of(session, "/entries")))["data"]]
    assert kinds == ["input_received", "input_cancelled", "archived"]
    assert ok(api.get(of(session, "/inputs")))["data"][0]["state"] == "cancelled"

    restored = ok(api.post(of(session, "/restore")))
    assert (restored["status"], restored["archived_at"]) == ("idle", None)
    ok(api.post(of(session, "/inputs"), {"content": "more"}), 202)


@pytest.mark.parametrize("path", ["/archive", "/restore", "/config"])
def test_control_of_foreign_sessions_is_not_found(other_api: Api, session: Session, path: str) -> None:
    body = {"config": ids.encode("cfg", session.config_id)} if path == "/config" else None
    problem(other_api.post(of(session, path), body), 404, "not_found")


def test_a_retry_that_waits_is_visible(api: Api, session: Session) -> None:
    """R2, S7: status and time"""
    retry_at = factories.database_now(60)
    Session.objects.filter(pk=session.pk).update(status="backing_off", retry_at=retry_at, wake_at=retry_at)
    shown = ok(api.get(of(session)))
    assert shown["status"] == "backing_off"
    assert shown["retry_at"] == retry_at.isoformat().replace("+00:00", "Z")


# --- compaction ------------------------------------------------------------------------------------------


def test_compact_is_asked_for_once_and_answers_with_the_session(api: Api, session: Session) -> None:
    """R5: idle sessions are due at once; a repeated request and a replayed one write nothing."""
    shown = ok(api.post(of(session, "/compact"), Idempotency_Key="once"))
    assert (shown["id"], shown["status"]) == (ids.encode("ses", session.pk), "queued")
    assert ok(api.post(of(session, "/compact"), Idempotency_Key="once")) == shown
    ok(api.post(of(session, "/compact")))
    entry = Entry.objects.get(session=session)
    assert (entry.kind, entry.data) == ("session_updated", {"changes": {"compaction": "requested"}})
    assert entry.actor["kind"] == "key"
    ok(api.post(of(session, "/cancel")))
    assert not factories.reread(session).compact_requested
    ok(api.post(of(session, "/archive")))
    problem(api.post(of(session, "/compact")), 409, "session_archived")


def test_compact_takes_no_body_and_no_foreign_session(api: Api, session: Session) -> None:
    problem(api.post(of(session, "/compact"), {"at": 0.5}), 400, "invalid")
    problem(api.post(of(factories.session(), "/compact")), 404, "not_found")
