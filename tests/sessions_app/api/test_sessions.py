"""Sessions, inputs, entries and turns through the API: shapes, filters, paging, isolation, replays."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions_app import ids, leases, log
from sessions_app.log import NewEntry
from sessions_app.models import AgentConfig, AgentProfile, Entry, Input, Session, Turn
from tests import factories
from tests.sessions_app.api.conftest import Api, of, ok, problem
from tests.staging import Contender, holding, wait_until_blocked

pytestmark = pytest.mark.django_db

USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cached_tokens": 0,
    "reasoning_tokens": 0,
    "model_calls": 0,
    "tool_calls": 0,
}


def replied(session: Session, *blocks: dict[str, Any], stop: str = "done") -> None:
    """A reply saved in the open turn."""
    with transaction.atomic():
        row = leases.lock_session(session.pk)
        assert row is not None
        data = {"model_call": "mcl_x", "content": list(blocks), "stop": stop}
        (placed,) = log.append(row, NewEntry(kind="assistant_message", data=data, turn=row.turn_id))
        row.output_seq = placed.seq
        row.save()
        Turn.objects.filter(pk=row.turn_id).update(output_seq=placed.seq)


def ended(session: Session, status: str = "succeeded", reason: str = "done") -> None:
    with transaction.atomic():
        row = leases.lock_session(session.pk)
        assert row is not None
        from sessions_app.turns import end_turn_locked

        end_turn_locked(row, status=status, reason=reason)
        row.save()


# --- starting and reading --------------------------------------------------------------------------------


def test_a_session_starts_with_every_field_of_its_shape(api: Api, config: AgentConfig) -> None:
    body = {
        "config": ids.encode("cfg", config.pk),
        "name": "triage",
        "labels": {"team": "a"},
        "metadata": {"ticket": [1, None]},
        "priority": -3,
        "input": {"content": "hello", "actor": {"id": "u1", "name": "Ada"}},
    }
    made = ok(api.post("/sessions", body), 201)
    row = Session.objects.get()
    expected = {
        "id": ids.encode("ses", row.pk),
        "name": "triage",
        "status": "queued",
        "waiting_on": [],
        "profile": None,
        "config": body["config"],
        "turn": None,
        "last_turn": None,
        "output": [],
        "last_seq": 2,
        "attempt": 0,
        "queued_inputs": 1,
        "retry_at": None,
        "priority": -3,
        "usage": USAGE,
        "cost": None,
        "labels": {"team": "a"},
        "metadata": {"ticket": [1, None]},
        "todos": [],
        "parent": None,
        "forked_from": None,
        "archived_at": None,
    }
    assert {key: made[key] for key in expected} == expected
    assert set(made) - set(expected) == {"created_at", "updated_at"}
    assert made["created_at"].endswith("Z")
    assert ok(api.get(f"/sessions/{made['id']}")) == made
    actors = [entry["actor"]["kind"] for entry in ok(api.get(f"/sessions/{made['id']}/entries"))["data"]]
    assert actors == ["key", "external"]  # I8


def test_a_profile_is_taken_by_id_and_by_name(api: Api, config: AgentConfig) -> None:
    profile = AgentProfile.objects.create(project=api.project, name="Triage", config=config)
    text = ids.encode("prf", profile.pk)
    for given in (text, "Triage", "triage"):
        made = ok(api.post("/sessions", {"profile": given}), 201)
        assert (made["profile"], made["config"]) == (text, ids.encode("cfg", config.pk))
    for wanted in (text, "TRIAGE"):
        assert len(ok(api.get(f"/sessions?profile={wanted}"))["data"]) == 3
    assert ok(api.get("/sessions?profile=other"))["data"] == []


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"config": None}, "/config", "required"),
        ({"profile": "triage"}, None, None),
        ({"config": "ses_01h455vb4pex5vsknk084sn02q"}, "/config", "malformed"),
        ({"nmae": "x"}, "/nmae", "unknown_field"),
        ({"name": "x" * 201}, "/name", "too_long"),
        ({"priority": 101}, "/priority", "out_of_range"),
        ({"priority": "1"}, "/priority", "wrong_type"),
        ({"labels": {"a": 1}}, "/labels/a", "wrong_type"),
        ({"metadata": []}, "/metadata", "wrong_type"),
        ({"input": {"content": []}}, "/input/content", "out_of_range"),
        ({"input": {}}, "/input/content", "required"),
        ({"input": {"content": "x", "delivery": "later"}}, "/input/delivery", "not_allowed"),
        ({"input": {"content": [{"type": "text"}]}}, "/input/content/0/text", "required"),
    ],
)
def test_a_wrong_start_says_what_is_wrong(
    api: Api, config: AgentConfig, change: dict[str, Any], path: str | None, code: str | None
) -> None:
    AgentProfile.objects.create(project=api.project, name="triage", config=config)
    answer = api.post("/sessions", {"config": ids.encode("cfg", config.pk)} | change)
    if path is None:
        path, code = "/config", "required"  # both profile and config
    errors = problem(answer, 400, "invalid")["errors"]
    assert (errors[0]["path"], errors[0]["code"]) == (path, code)
    assert not Session.objects.exists()


def test_a_session_may_have_limits_of_its_own(api: Api, config: AgentConfig) -> None:
    """R8: in the words of a config, told in the log; what is wrong is named with its place."""
    given = {
        "turn": {"model_calls": 3, "wall_time": "5m"},
        "session": {"cost_usd": "2.00"},
        "on_limit": "fail",
    }
    made = ok(api.post("/sessions", {"config": ids.encode("cfg", config.pk), "limits": given}), 201)
    assert Session.objects.get().limits == given
    (entry,) = ok(api.get(f"/sessions/{made['id']}/entries"))["data"]
    assert entry["data"]["limits"] == given
    fork = ok(api.post("/sessions", {"fork": {"session": made["id"]}}), 201)
    assert Session.objects.get(pk=ids.decode("ses", fork["id"])).limits == given
    ok(api.patch(f"/sessions/{made['id']}", {"limits": {"turn": {"model_calls": 9}}}))
    assert Session.objects.get(pk=ids.decode("ses", made["id"])).limits == {"turn": {"model_calls": 9}}


def test_sessions_whose_last_turn_failed_are_found_by_that_and_by_the_reason(
    api: Api, config: AgentConfig
) -> None:
    """R9, S7: with the reason and the error that each one shows."""
    found = {}
    for status, reason in (("failed", "limit"), ("failed", "auth"), ("succeeded", "done")):
        row = factories.session(config=config)
        factories.open_turn(row)
        ended(row, status, reason)
        found[reason] = ids.encode("ses", row.pk)

    def listed(query: str) -> set[str]:
        return {row["id"] for row in ok(api.get(f"/sessions?{query}"))["data"]}

    assert listed("failed=true") == {found["limit"], found["auth"]}
    assert listed("failed=true&reason=limit") == {found["limit"]}
    assert listed("failed=false") == {found["done"]}
    assert listed("reason=auth") == {found["auth"]}
    assert listed("failed=true&reason=done") == set()
    (shown,) = ok(api.get("/sessions?reason=limit"))["data"]
    assert (shown["last_turn"]["status"], shown["last_turn"]["reason"]) == ("failed", "limit")
    problem(api.get("/sessions?reason=bad_luck"), 400, "invalid")


@pytest.mark.parametrize(
    ("limits", "path", "code"),
    [
        ({"turn": {"model_calls": 0}}, "/limits/turn/model_calls", "out_of_range"),
        ({"turn": {"wall_time": "soon"}}, "/limits/turn/wall_time", "malformed"),
        ({"session": {"cost_usd": 2}}, "/limits/session/cost_usd", "malformed"),
        ({"session": {"requests": 2}}, "/limits/session/requests", "unknown_field"),
        ({"on_limit": "cry"}, "/limits/on_limit", "not_allowed"),
        ([], "/limits", "wrong_type"),
    ],
)
def test_wrong_limits_are_refused_with_their_place(
    api: Api, config: AgentConfig, limits: Any, path: str, code: str
) -> None:
    answer = api.post("/sessions", {"config": ids.encode("cfg", config.pk), "limits": limits})
    errors = problem(answer, 400, "invalid")["errors"]
    assert [(error["path"], error["code"]) for error in errors] == [(path, code)]
    assert not Session.objects.exists()


def test_configs_of_other_projects_do_not_exist(api: Api, other_api: Api, config: AgentConfig) -> None:
    answer = other_api.post("/sessions", {"config": ids.encode("cfg", config.pk)})
    problem(answer, 404, "not_found")
    problem(api.post("/sessions", {"profile": "none"}), 404, "not_found")


def test_turns_and_output_follow_the_log(api: Api, session: Session) -> None:
    """S7: the open turn, the last ended one and the last reply are read with the session."""
    turn = factories.open_turn(session)
    replied(
        session,
        {"type": "reasoning", "text": "hm", "provider": "openai", "signature": "secret"},
        {"type": "text", "text": "hello", "provider": "openai", "details": {"id": "msg_1"}},
        {"type": "tool_call", "id": "c1", "tool_call": "tcl_1", "name": "look", "arguments": {"a": 1}},
    )
    said = [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "hello"},
        {"type": "tool_call", "id": "c1", "tool_call": "tcl_1", "name": "look", "arguments": {"a": 1}},
    ]
    shown = ok(api.get(of(session)))
    assert (shown["output"], shown["turn"]["output"], shown["last_turn"]) == (said, said, None)
    assert (shown["turn"]["status"], shown["turn"]["reason"], shown["turn"]["ended_at"]) == (
        "running",
        None,
        None,
    )
    ended(session)
    shown = ok(api.get(of(session)))
    assert (shown["output"], shown["turn"]) == (said, None)
    last = shown["last_turn"]
    assert last == ok(api.get(f"/turns/{ids.encode('trn', turn.pk)}"))
    assert (last["status"], last["reason"], last["number"]) == ("succeeded", "done", 1)
    assert set(last) == {
        "id",
        "session",
        "number",
        "status",
        "reason",
        "error",
        "started_at",
        "ended_at",
        "usage",
        "cost",
        "output",
    }
    entry = ok(api.get(of(session, "/entries")))["data"][0]
    assert entry["data"]["content"] == said
    second = factories.open_turn(factories.reread(session))
    shown = ok(api.get(of(session)))
    assert (shown["turn"]["id"], shown["turn"]["output"]) == (ids.encode("trn", second.pk), [])
    assert shown["output"] == said


def test_a_reply_cut_by_the_length_limit_is_shown_everywhere_without_calls(
    api: Api, session: Session
) -> None:
    """A43, R4: a succeeded turn with the text that there is."""
    turn = factories.open_turn(session)
    unfinished = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {}}
    replied(session, {"type": "text", "text": "so far"}, unfinished, stop="length")
    ended(session, "succeeded", "length")
    said = [{"type": "text", "text": "so far"}]
    for read in (
        ok(api.get(of(session))),
        ok(api.get(of(session)))["last_turn"],
        ok(api.get("/sessions"))["data"][0],
        ok(api.get(of(session, "/turns")))["data"][0],
        ok(api.get(f"/turns/{ids.encode('trn', turn.pk)}")),
    ):
        assert read["output"] == said
    assert ok(api.get(of(session)))["last_turn"]["reason"] == "length"


# --- changing --------------------------------------------------------------------------------------------


def test_given_fields_are_replaced_and_logged(api: Api, session: Session) -> None:
    changed = ok(api.patch(of(session), {"name": "new", "labels": {"a": "b"}, "priority": 5}))
    assert (changed["name"], changed["labels"], changed["priority"]) == ("new", {"a": "b"}, 5)
    (entry,) = ok(api.get(of(session, "/entries")))["data"]
    assert entry["kind"] == "session_updated"
    assert entry["actor"]["kind"] == "key"
    errors = problem(api.patch(of(session), {"status": "idle"}), 400, "invalid")["errors"]
    assert errors == [{"path": "/status", "code": "unknown_field", "message": "unknown field"}]


def test_an_archived_session_can_be_read_and_nothing_else(api: Api, session: Session) -> None:
    """I6, A142: reads work; writes are conflicts that show the session; an old key still gets its first answer."""
    first = api.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="k1")
    Input.objects.update(state="cancelled")
    Session.objects.update(status="archived", wake_at=None, archived_at=factories.database_now())
    shown = ok(api.get(of(session)))
    assert shown["status"] == "archived"
    for path in ("/entries", "/inputs", "/turns"):
        ok(api.get(of(session, path)))
    for answer in (
        api.patch(of(session), {"name": "x"}),
        api.post(of(session, "/inputs"), {"content": "x"}),
        api.post(of(session, "/cancel")),
    ):
        assert problem(answer, 409, "session_archived")["current"] == shown
    again = api.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="k1")
    assert (ok(again, 202), again["Idempotency-Replayed"]) == (first.json(), "true")


# --- lists -----------------------------------------------------------------------------------------------


def test_sessions_are_filtered(api: Api, config: AgentConfig) -> None:
    now = factories.database_now()
    plain = factories.session(config=config, name="alpha", labels={"team": "a", "env": "x:y"})
    child = factories.session(config=config, name="Beta 50%", parent=plain, labels={"team": "a"})
    waiting = factories.session(config=config, name="gamma", status="waiting")
    old = factories.session(
        config=config, name="old", status="archived", archived_at=now, created_at=now - timedelta(days=3)
    )
    names = {
        "": [waiting, child, plain, old],
        "status=waiting": [waiting],
        "status=waiting,archived": [waiting, old],
        "label=team:a": [child, plain],
        "label=team:a&label=env:x:y": [plain],
        "label=team:b": [],
        f"parent={ids.encode('ses', plain.pk)}": [child],
        "q=beta": [child],
        "q=50%25": [child],
        "q=%25": [child],
        "archived=true": [old],
        "archived=false": [waiting, child, plain],
        f"created_before={(now - timedelta(days=1)):%Y-%m-%dT%H:%M:%SZ}": [old],
        f"created_after={(now - timedelta(days=1)):%Y-%m-%dT%H:%M:%SZ}": [waiting, child, plain],
    }
    for query, expected in names.items():
        found = [row["name"] for row in ok(api.get(f"/sessions?{query}"))["data"]]
        assert found == [row.name for row in expected], query


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("status=busy", "/status"),
        ("label=team", "/label/0"),
        ("parent=x", "/parent"),
        ("archived=perhaps", "/archived"),
        ("created_after=yesterday", "/created_after"),
        ("limit=201", "/limit"),
        ("stauts=idle", "/stauts"),
    ],
)
def test_a_wrong_filter_is_an_error_and_not_ignored(api: Api, query: str, path: str) -> None:
    answer = api.get(f"/sessions?{query}")
    assert problem(answer, 400, "invalid")["errors"][0]["path"] == path


def test_sessions_page_by_cursor(api: Api, config: AgentConfig) -> None:
    made = [ids.encode("ses", factories.session(config=config).pk) for _ in range(5)]
    found, cursor, pages = [], "", 0
    while True:
        page = ok(api.get(f"/sessions?limit=2{cursor}"))
        found += [row["id"] for row in page["data"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert (found, pages) == (made[::-1], 3)


def busy_session(config: AgentConfig) -> Session:
    """A session with an ended turn, an open one, replies and inputs."""
    session = factories.session(config=config)
    factories.open_turn(session)
    replied(session, {"type": "text", "text": "one"})
    ended(session)
    session = factories.reread(session)
    factories.open_turn(session)
    replied(session, {"type": "text", "text": "two"})
    for _ in range(3):
        factories.received_input(session)
    return session


@pytest.mark.parametrize("path", ["/sessions", "{}/entries", "{}/inputs", "{}/turns"])
def test_lists_cost_a_constant_number_of_queries(api: Api, config: AgentConfig, path: str) -> None:
    """The key, the session where there is one, and the page."""
    session = busy_session(config)
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            ok(api.get(path.format(of(session))))
        counts.append(len(queries))
        for _ in range(3):
            busy_session(config)
            factories.received_input(session)
        replied(session, {"type": "text", "text": "more"})
    assert counts == [2, 2] if path == "/sessions" else [3, 3]


def test_entries_page_both_ways(api: Api, session: Session) -> None:
    with transaction.atomic():
        row = leases.lock_session(session.pk)
        assert row is not None
        log.append(row, *(NewEntry(kind="note", data={"text": str(number)}) for number in range(10)))
        row.save()

    def page(query: str) -> tuple[list[int], bool]:
        answer = ok(api.get(of(session, f"/entries?{query}")))
        assert set(answer) == {"data", "has_more"}
        return [entry["seq"] for entry in answer["data"]], answer["has_more"]

    assert page("") == (list(range(1, 11)), False)
    assert page("limit=4") == ([1, 2, 3, 4], True)
    assert page("after=8") == ([9, 10], False)
    assert page("after=4&limit=3") == ([5, 6, 7], True)
    assert page("before=4") == ([1, 2, 3], False)
    assert page("before=8&limit=3") == ([5, 6, 7], True)
    assert page("after=2&before=6") == ([3, 4, 5], False)
    assert page("after=10") == ([], False)
    entry = ok(api.get(of(session, "/entries?limit=1")))["data"][0]
    assert set(entry) == {
        "id",
        "session",
        "seq",
        "parent_seq",
        "kind",
        "turn",
        "attempt",
        "actor",
        "created_at",
        "data",
    }
    for query in ("after=-1", "before=0", "limit=501", "after=x", "cursor=x"):
        problem(api.get(of(session, f"/entries?{query}")), 400, "invalid")


# --- inputs ----------------------------------------------------------------------------------------------


def test_an_input_is_taken_with_202_and_listed_with_its_place(api: Api, session: Session) -> None:
    first = ok(api.post(of(session, "/inputs"), {"content": "one"}), 202)
    actor = {"id": "u1", "name": "Ada"}
    second = ok(
        api.post(of(session, "/inputs"), {"content": "two", "delivery": "steering", "actor": actor}), 202
    )
    assert first | {"created_at": "", "id": ""} == {
        "id": "",
        "session": ids.encode("ses", session.pk),
        "content": [{"type": "text", "text": "one"}],
        "delivery": "queued",
        "state": "received",
        "position": 1,
        "actor": {
            "kind": "key",
            "id": first["actor"]["id"],
            "name": "key of ours",
        },
        "turn": None,
        "created_at": "",
    }
    assert (second["position"], second["actor"]) == (2, {"kind": "external"} | actor)
    assert ok(api.get(of(session, "/inputs")))["data"] == [first, second]
    assert ok(api.get(of(session)))["queued_inputs"] == 2
    cancelled = ok(api.post(f"/inputs/{first['id']}/cancel"))
    assert (cancelled["state"], cancelled["position"]) == ("cancelled", None)
    listed = ok(api.get(of(session, "/inputs?state=received")))["data"]
    assert [(row["id"], row["position"]) for row in listed] == [(second["id"], 1)]


def test_a_taken_input_is_a_conflict_that_shows_it(api: Api, session: Session) -> None:
    """I3: once taken, 409 with the input as it is."""
    made = ok(api.post(of(session, "/inputs"), {"content": "one"}), 202)
    turn = factories.open_turn(factories.reread(session))
    Input.objects.update(state="delivered", turn=turn)
    current = problem(api.post(f"/inputs/{made['id']}/cancel"), 409, "input_taken")["current"]
    assert (current["state"], current["turn"]) == ("delivered", ids.encode("trn", turn.pk))


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"content": "x", "cancel_open": True}, "invalid", "/cancel_open"),  # A57
        ({"content": "x", "actor": {"name": "Ada"}}, "invalid", "/actor/id"),
        ({"content": None}, "invalid", "/content"),
    ],
)
def test_a_wrong_input_is_refused_whole(
    api: Api, session: Session, body: dict[str, Any], code: str, path: str
) -> None:
    assert problem(api.post(of(session, "/inputs"), body), 400, code)["errors"][0]["path"] == path
    assert not Input.objects.exists()


def test_text_that_cannot_be_stored_is_replaced_and_nan_refused(api: Api, session: Session) -> None:
    """S8, at the door."""
    body = rb'{"content": [{"type": "data", "value": {"k\u0000": "\ud800"}}]}'
    made = ok(api.post(of(session, "/inputs"), body), 202)
    assert made["content"] == [{"type": "data", "value": {"k\ufffd": "\ufffd"}}]
    answer = api.post(of(session, "/inputs"), b'{"content": [{"type": "data", "value": NaN}]}')
    assert answer.status_code == 400
    assert Input.objects.count() == 1


def test_a_replayed_input_is_answered_and_not_stored_again(api: Api, session: Session) -> None:
    """A141, I4: the first response again; a changed body or actor is a conflict, nothing of it is stored."""
    body = {"content": "hello", "actor": {"id": "u1", "name": "Ada"}}
    first = api.post(of(session, "/inputs"), body, Idempotency_Key="k1")
    again = api.post(of(session, "/inputs"), body, Idempotency_Key="k1")
    assert (again.status_code, again["Idempotency-Replayed"]) == (202, "true")
    assert again.content == first.content
    assert "Idempotency-Replayed" not in first
    for change in ({"content": "bye"}, {"actor": {"id": "u2", "name": "Bob"}}):
        answer = api.post(of(session, "/inputs"), body | change, Idempotency_Key="k1")
        problem(answer, 409, "idempotency_conflict")
    assert Input.objects.count() == 1
    assert Entry.objects.count() == 1


def test_a_replayed_start_is_the_same_session(api: Api, config: AgentConfig) -> None:
    """I4: 201 and the same body again, also when the session has moved on since."""
    body = {"config": ids.encode("cfg", config.pk), "input": {"content": "hello"}}
    first = api.post("/sessions", body, Idempotency_Key="k1")
    Session.objects.update(name="moved on")
    again = api.post("/sessions", body, Idempotency_Key="k1")
    assert (again.status_code, again["Idempotency-Replayed"]) == (201, "true")
    assert again.content == first.content
    assert (Session.objects.count(), Input.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_concurrent_twins_store_one_input(api: Api, session: Session) -> None:
    """A141: one executes behind the session's lock, the other waits and gets its answer."""
    lock = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"

    def post() -> Any:
        twin = Api(api.key, api.project)
        return twin.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="k1")

    with holding(lock, session.pk):
        first = Contender(post)
        wait_until_blocked(1)
        second = Contender(post)
        wait_until_blocked(2)
    answers = [first.result(), second.result()]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert [answer.get("Idempotency-Replayed") for answer in answers] == [None, "true"]
    assert Input.objects.count() == 1


# --- cancelling a turn -----------------------------------------------------------------------------------


def test_cancel_answers_with_the_session_at_rest(api: Api, session: Session) -> None:
    """I6, I8: the turn ended by the caller; again it is a no-op."""
    factories.open_turn(session)
    factories.leased(session, factories.worker())
    for _ in range(2):
        shown = ok(api.post(of(session, "/cancel")))
        assert (shown["status"], shown["turn"], shown["last_turn"]["status"]) == ("idle", None, "cancelled")
    (entry,) = ok(api.get(of(session, "/entries")))["data"]
    assert (entry["kind"], entry["actor"]["name"]) == ("turn_ended", "key of ours")
    problem(api.post(of(session, "/cancel"), {"force": True}), 400, "invalid")


def test_a_replayed_cancel_leaves_the_next_turn_alone(api: Api, session: Session) -> None:
    """I4: a client that repeats a cancel whose answer got lost doesn't hit what began since."""
    factories.open_turn(session)
    first = ok(api.post(of(session, "/cancel"), Idempotency_Key="k1"))
    turn = factories.open_turn(factories.reread(session))
    assert ok(api.post(of(session, "/cancel"), Idempotency_Key="k1")) == first
    turn.refresh_from_db()
    assert turn.status == "running"


# --- isolation -------------------------------------------------------------------------------------------


def test_nothing_of_another_project_exists(api: Api, other_api: Api, config: AgentConfig) -> None:
    """Missing and foreign are the same 404, on every path; lists show nothing of it."""
    session = busy_session(config)
    turn = Turn.objects.filter(session=session).first()
    input_id = Input.objects.filter(session=session).values_list("pk", flat=True)[0]
    assert turn is not None

    def paths(session: Any, turn: Any, item: Any) -> list[tuple[str, str, Any]]:
        of_session = f"/sessions/{ids.encode('ses', session)}"
        return [
            ("GET", of_session, None),
            ("PATCH", of_session, {"name": "x"}),
            ("GET", f"{of_session}/entries", None),
            ("GET", f"{of_session}/inputs", None),
            ("GET", f"{of_session}/turns", None),
            ("GET", f"{of_session}/wait?for=idle", None),
            ("POST", f"{of_session}/inputs", {"content": "x"}),
            ("POST", f"{of_session}/cancel", None),
            ("GET", f"/turns/{ids.encode('trn', turn)}", None),
            ("POST", f"/inputs/{ids.encode('inp', item)}/cancel", None),
        ]

    foreign = paths(session.pk, turn.pk, input_id)
    missing = paths(ids.new_id(), ids.new_id(), ids.new_id())
    before = Entry.objects.count()
    for there, nowhere in zip(foreign, missing, strict=True):
        first = problem(other_api.send(*there), 404, "not_found")
        second = problem(other_api.send(*nowhere), 404, "not_found")
        assert first | {"request_id": ""} == second | {"request_id": ""}
        malformed = there[1].replace(ids.encode("ses", session.pk), "ses_nonsense")
        if malformed != there[1]:
            problem(other_api.send(there[0], malformed, there[2]), 404, "not_found")
    assert ok(other_api.get("/sessions"))["data"] == []
    assert Entry.objects.count() == before
    assert Turn.objects.get(pk=turn.pk).status == turn.status


def test_every_path_asks_who_is_there(anybody: Api, session: Session) -> None:
    for path in ("/sessions", of(session), of(session, "/entries"), of(session, "/wait?for=idle")):
        problem(anybody.get(path), 401, "unauthenticated")


def test_unknown_methods_are_told(api: Api, session: Session) -> None:
    for send, path in ((api.delete, of(session)), (api.post, of(session, "/wait?for=idle"))):
        assert problem(send(path), 405, "method_not_allowed")


def test_paths_are_in_the_openapi_document() -> None:
    from drf_spectacular.generators import SchemaGenerator

    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    documented = {
        (method, path.removeprefix("/api/v1")) for path, methods in paths.items() for method in methods
    }
    assert documented >= {
        ("post", "/sessions"),
        ("get", "/sessions"),
        ("get", "/sessions/{session}"),
        ("patch", "/sessions/{session}"),
        ("post", "/sessions/{session}/cancel"),
        ("get", "/sessions/{session}/entries"),
        ("post", "/sessions/{session}/inputs"),
        ("get", "/sessions/{session}/inputs"),
        ("get", "/sessions/{session}/turns"),
        ("get", "/sessions/{session}/wait"),
        ("get", "/turns/{turn}"),
        ("post", "/inputs/{input}/cancel"),
    }
    assert "security" in paths["/api/v1/sessions/{session}/wait"]["get"]
