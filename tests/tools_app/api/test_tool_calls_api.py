"""The REST side of tool calls: reading, results with every code, replays, and progress of who claimed one."""

import dataclasses
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import control, ids
from sessions_app.models import Artifact, Entry, Session, SessionStatus
from tests import factories
from tests.factories import ACTOR
from tests.sessions_app.api.conftest import Api, ok, problem
from tests.tools_app.api.conftest import NewCall, at
from tools_app import claims
from tools_app.models import ToolCall

RESULT = {"outcome": "succeeded", "content": "TICKET-1"}


def entries_of(session: Session, kind: str) -> list[Entry]:
    return list(Entry.objects.filter(session=session, kind=kind).order_by("seq"))


def claim(call: ToolCall, seconds: float = 60) -> str:
    return claims.claim(
        project=call.project_id, names=None, limit=10, lease_seconds=seconds, actor=ACTOR
    ).token


# --- reading ---------------------------------------------------------------------------------------------


def test_a_call_is_shown_as_it_is(api: Api, new_call: NewCall) -> None:
    """The shape of api.md, before and after."""
    call = new_call(arguments={"title": "Broken"}, deadline=factories.database_now(60))
    shown = ok(api.get(at(call)))
    assert shown == {
        "id": ids.encode("tcl", call.pk),
        "session": ids.encode("ses", call.session_id),
        "turn": ids.encode("trn", call.turn_id),
        "name": "create_ticket",
        "class": "custom",
        "arguments": {"title": "Broken"},
        "state": "waiting",
        "outcome": None,
        "content": None,
        "approval": None,
        "deadline": shown["deadline"],
        "claim": None,
        "created_at": shown["created_at"],
        "completed_at": None,
    }
    assert shown["deadline"].endswith("Z")
    claim(call)
    assert list(ok(api.get(at(call)))["claim"]) == ["expires_at"]
    ok(api.post(at(call, "/result"), RESULT), 201)
    done = ok(api.get(at(call)))
    assert (done["state"], done["outcome"], done["claim"]) == ("completed", "succeeded", None)
    assert done["content"] == [{"type": "text", "text": "TICKET-1"}]
    assert done["completed_at"] >= done["created_at"]


def test_a_call_names_the_approval_that_it_awaits(api: Api, in_turn: Session) -> None:
    approval = factories.approval(in_turn)
    shown = ok(api.get(at(approval.tool_call)))
    assert shown["approval"] == ids.encode("apr", approval.pk)
    assert shown["state"] == "awaiting_approval"


def test_calls_of_others_and_missing_ones_are_the_same_not_found(
    api: Api, other_api: Api, new_call: NewCall
) -> None:
    """A85: at every door."""
    call = new_call()
    token = claim(call)
    doors: list[tuple[str, Any]] = [
        ("/result", RESULT),
        ("/extend", {"token": token, "lease_seconds": 5}),
        ("/release", {"token": token}),
        ("/progress", {"token": token, "content": "x"}),
    ]
    missing = f"/tool-calls/{ids.encode('tcl', ids.new_id())}"
    for client, base in ((other_api, at(call)), (api, missing), (api, "/tool-calls/tcl_x")):
        problem(client.get(base), 404, "not_found")
        for door, body in doors:
            problem(client.post(base + door, body), 404, "not_found")
    assert ok(api.get(at(call)))["state"] == "waiting"


@pytest.fixture
def some(in_turn: Session, new_call: NewCall) -> dict[str, ToolCall]:
    """One call of every kind, by a name of its own, oldest first."""
    return {
        "done": new_call("completed", name="done", tool_class="custom"),
        "first": new_call(name="first"),
        "second": new_call(name="second"),
        "asked": new_call("awaiting_approval", name="asked", tool_class="custom"),
        "human": new_call(name="human", tool_class="human"),
        "runs": new_call("running", name="runs"),
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["runs", "human", "asked", "second", "first", "done"]),
        ("state=waiting", ["first", "second", "human"]),
        ("state=waiting&class=custom", ["first", "second"]),
        ("state=completed", ["done"]),
        ("class=custom", ["asked", "second", "first", "done"]),
        ("name=human", ["human"]),
        ("name=nothing", []),
        ("claimed=true", ["first"]),
        ("state=waiting&class=custom&claimed=false", ["second"]),
    ],
)
def test_calls_are_listed_by_what_they_are(
    api: Api, other_api: Api, some: dict[str, ToolCall], query: str, names: list[str]
) -> None:
    """T6: what is open comes oldest first, as work is done."""
    claims.claim(project=api.project.pk, names=["first"], limit=1, lease_seconds=60, actor=ACTOR)
    page = ok(api.get(f"/tool-calls?{query}"))
    assert [row["name"] for row in page["data"]] == names
    assert page["next_cursor"] is None
    assert ok(other_api.get(f"/tool-calls?{query}"))["data"] == []


def test_calls_of_one_session_are_listed(api: Api, other_api: Api, some: dict[str, ToolCall]) -> None:
    session = ids.encode("ses", some["first"].session_id)
    assert len(ok(api.get(f"/tool-calls?session={session}"))["data"]) == len(some)
    other = factories.session(config=factories.config(project=api.project))
    assert ok(api.get(f"/tool-calls?session={ids.encode('ses', other.pk)}"))["data"] == []
    assert ok(other_api.get(f"/tool-calls?session={session}"))["data"] == []


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ("state=done", "/state", "not_allowed"),
        ("class=any", "/class", "not_allowed"),
        ("claimed=perhaps", "/claimed", "malformed"),
        ("limit=many", "/limit", "malformed"),
        ("limit=0", "/limit", "out_of_range"),
        ("turn=trn_1", "/turn", "unknown_field"),
    ],
)
def test_a_list_that_nobody_can_give_is_refused(api: Api, query: str, path: str, code: str) -> None:
    (error,) = problem(api.get(f"/tool-calls?{query}"), 400, "invalid")["errors"]
    assert (error["path"], error["code"]) == (path, code)


@pytest.mark.parametrize("query", ["state=waiting", ""])
def test_pages_follow_each_other(api: Api, some: dict[str, ToolCall], query: str) -> None:
    seen, cursor = [], ""
    while True:
        page = ok(api.get(f"/tool-calls?{query}&limit=2{cursor}"))
        seen += [row["name"] for row in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [row["name"] for row in ok(api.get(f"/tool-calls?{query}"))["data"]]
    if query:
        problem(api.get(f"/tool-calls?limit=2{cursor}"), 400, "invalid_cursor")


@pytest.mark.parametrize(
    ("query", "path"),
    [("state=open", "/state"), ("class=x", "/class"), ("claimed=maybe", "/claimed"), ("status=x", "/status")],
)
def test_wrong_filters_are_refused(api: Api, query: str, path: str) -> None:
    assert problem(api.get(f"/tool-calls?{query}"), 400, "invalid")["errors"][0]["path"] == path


# --- results ---------------------------------------------------------------------------------------------


def test_a_result_is_taken_and_its_session_goes_on(api: Api, new_call: NewCall) -> None:
    """T6, I8."""
    call = new_call()
    body = {"outcome": "failed", "content": "no such list", "actor": {"id": "u-7", "name": "Kim"}}
    shown = ok(api.post(at(call, "/result"), body), 201)
    assert (shown["state"], shown["outcome"]) == ("completed", "failed")
    assert shown["content"] == [{"type": "text", "text": "no such list"}]
    (entry,) = entries_of(call.session, "tool_result")
    assert entry.actor == {"kind": "external", "id": "u-7", "name": "Kim"}
    assert factories.reread(call.session).status == SessionStatus.QUEUED


def test_a_result_posted_twice_is_taken_once(api: Api, new_call: NewCall) -> None:
    """C102, C71, I4: no key or another key is 409 with the stored result; the same key the first answer again."""
    call = new_call()
    first = api.post(at(call, "/result"), RESULT, Idempotency_Key="one")
    ok(first, 201)
    for body, key in ((RESULT, None), (RESULT, "two"), (RESULT | {"content": "other"}, None)):
        headers = {"Idempotency_Key": key} if key else {}
        refused = problem(api.post(at(call, "/result"), body, **headers), 409, "tool_call_completed")
        assert refused["current"] == ok(api.get(at(call)))
        assert refused["current"]["content"] == [{"type": "text", "text": "TICKET-1"}]
    again = api.post(at(call, "/result"), RESULT, Idempotency_Key="one")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (201, first.content, "true")
    problem(
        api.post(at(call, "/result"), RESULT | {"content": "other"}, Idempotency_Key="one"),
        409,
        "idempotency_conflict",
    )
    assert len(entries_of(call.session, "tool_result")) == 1
    assert entries_of(call.session, "tool_call_updated") == []
    assert factories.reread(call.session).work_rev == 1


@pytest.mark.parametrize(
    ("state", "tool_class", "code"),
    [
        ("awaiting_approval", "custom", "tool_call_not_ready"),
        ("waiting", "human", "tool_call_not_custom"),
        ("running", "outside", "tool_call_not_custom"),
        ("completed", "outside", "tool_call_completed"),
    ],
)
def test_what_can_have_no_result_says_why(
    api: Api, new_call: NewCall, state: str, tool_class: str, code: str
) -> None:
    """A85."""
    call = new_call(state, tool_class=tool_class)
    before = ok(api.get(at(call)))
    assert problem(api.post(at(call, "/result"), RESULT), 409, code)["current"] == before
    assert ok(api.get(at(call))) == before
    assert entries_of(call.session, "tool_result") == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        [],
        [{"type": "text", "text": ""}],
        [{"type": "data", "value": {"id": 7, "tags": []}}],
        [{"type": "media", "data": "aGVsbG8=", "media_type": "image/png"}, {"type": "text", "text": "seen"}],
    ],
    ids=["no text", "no blocks", "empty text", "data", "media"],
)
def test_every_kind_of_content_is_taken(api: Api, new_call: NewCall, content: Any) -> None:
    """A85."""
    call = new_call()
    shown = ok(api.post(at(call, "/result"), {"outcome": "succeeded", "content": content}), 201)
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    stored = [block for block in shown["content"] if block["type"] != "media"]
    assert stored == [block for block in content if block["type"] != "media"]
    for block in shown["content"]:
        if block["type"] == "media":
            assert ok(api.get(f"/artifacts/{block['artifact']}"))["size"] == 5


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ('[{"type": "data", "value": {"ratio": NaN}}]', "/content/0/value/ratio"),
        ('[{"type": "data", "value": {"max": Infinity}}]', "/content/0/value/max"),
        ('[{"type": "data", "value": [1, -Infinity]}]', "/content/0/value/1"),
    ],
)
def test_what_is_no_number_is_refused_with_its_place(
    api: Api, new_call: NewCall, raw: str, path: str
) -> None:
    """C33, S8: nothing is stored and the call stays open."""
    call = new_call()
    body = b'{"outcome": "succeeded", "content": ' + raw.encode() + b"}"
    (error,) = problem(api.post(at(call, "/result"), body), 400, "invalid")["errors"]
    assert (error["path"], error["code"]) == (path, "nan")
    assert ok(api.get(at(call)))["state"] == "waiting"
    assert entries_of(call.session, "tool_result") == []
    ok(api.post(at(call, "/result"), RESULT), 201)


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"outcome": "cancelled"}, "/outcome", "not_allowed"),
        ({"outcome": None}, "/outcome", None),
        ({"content": 7}, "/content", "wrong_type"),
        ({"content": {"a": 1}}, "/content", "wrong_type"),
        ({"content": [{"type": "reasoning", "text": "x"}]}, "/content/0/type", "not_allowed"),
        ({"content": [{"type": "media", "data": "?", "media_type": "image/png"}]}, "/content/0/data", None),
        ({"output": {}}, "/output", "unknown_field"),
        ({"actor": {"name": "x"}}, "/actor/id", "required"),
    ],
)
def test_a_malformed_result_leaves_the_call_open(
    api: Api, new_call: NewCall, change: dict[str, Any], path: str, code: str | None
) -> None:
    call = new_call()
    errors = problem(api.post(at(call, "/result"), RESULT | change), 400, "invalid")["errors"]
    assert errors[0]["path"] == path
    assert code is None or errors[0]["code"] == code
    assert ok(api.get(at(call)))["state"] == "waiting"


def test_characters_that_cannot_be_stored_are_replaced(api: Api, new_call: NewCall) -> None:
    """C71, S8: such a result is stored, not refused by the database again and again."""
    call = new_call()
    body = json.dumps({"outcome": "succeeded", "content": "a\x00b\ud800c"}).encode()
    shown = ok(api.post(at(call, "/result"), body), 201)
    assert shown["content"][0]["text"] == "a\ufffdb\ufffdc"


def test_a_long_result_is_cut_and_kept_whole(api: Api, new_call: NewCall, settings: Any) -> None:
    """S8."""
    settings.TENURE = dataclasses.replace(settings.TENURE, tool_output_limit=1000)
    call = new_call()
    shown = ok(api.post(at(call, "/result"), RESULT | {"content": "x" * 5000}), 201)
    assert len(shown["content"][0]["text"]) <= 1000
    assert Artifact.objects.get(project=api.project).size == 5000


def test_a_result_costs_so_many_statements(api: Api, new_call: NewCall) -> None:
    """The hot path, with everything around it: the key, the idempotency record, the result and its answer."""
    call = new_call()
    with CaptureQueriesContext(connection) as queries:
        ok(api.post(at(call, "/result"), RESULT, Idempotency_Key="k"), 201)
    sent = [item["sql"] for item in queries if not item["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    assert len(sent) == 13, sent


def test_an_allowed_call_waits_for_its_backend(api: Api, in_turn: Session) -> None:
    """T7, A90: no result before, one after."""
    approval = factories.approval(in_turn, tool_class="custom")
    call = approval.tool_call
    problem(api.post(at(call, "/result"), RESULT), 409, "tool_call_not_ready")
    path = f"/approvals/{ids.encode('apr', approval.pk)}/decision"
    ok(api.post(path, {"decision": "allow"}))
    shown = ok(api.get("/tool-calls?state=waiting&class=custom"))["data"]
    assert [row["id"] for row in shown] == [ids.encode("tcl", call.pk)]
    assert ok(api.post(at(call, "/result"), RESULT), 201)["outcome"] == "succeeded"


# --- late ones -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_late_result_is_refused_and_visible(api: Api, new_call: NewCall, end: str) -> None:
    """C103: 409, and what was done is in the log, once."""
    call = new_call(deadline=factories.database_now(-1) if end == "deadline" else None)
    if end == "deadline":
        factories.waiting(call.session)
    else:
        control.cancel(session=call.session_id, actor=ACTOR)
    for key in ("one", "one", "two"):
        refused = problem(
            api.post(at(call, "/result"), RESULT, Idempotency_Key=key), 409, "tool_call_completed"
        )
        assert ("expired" if end == "deadline" else "cancelled") in refused["detail"]
        assert refused["current"]["state"] == "completed"
    (entry,) = ok(api.get(f"/sessions/{ids.encode('ses', call.session_id)}/entries"))["data"][-1:]
    assert entry["kind"] == "tool_call_updated"
    assert entry["data"]["tool_call"] == ids.encode("tcl", call.pk)
    assert entry["data"]["content"] == [{"type": "text", "text": "TICKET-1"}]
    assert entry["actor"]["kind"] == "key"
    assert len(entries_of(call.session, "tool_call_updated")) == 1


# --- claims ----------------------------------------------------------------------------------------------


def test_a_claim_is_extended_told_of_and_given_back(api: Api, new_call: NewCall) -> None:
    """T6."""
    call = new_call()
    token = claim(call)
    longer = ok(api.post(at(call, "/extend"), {"token": token, "lease_seconds": "10m"}))
    assert longer["claim"]["expires_at"] > ok(api.get(at(call)))["created_at"]
    assert list(longer["claim"]) == ["expires_at"]
    shown = ok(api.post(at(call, "/progress"), {"token": token, "content": "half way"}))
    assert shown["state"] == "waiting"
    (entry,) = entries_of(call.session, "tool_call_updated")
    assert (entry.data["update"], entry.actor["kind"]) == ("progress", "key")
    assert ok(api.post(at(call, "/release"), {"token": token}))["claim"] is None
    for door, more in (("/extend", {"lease_seconds": 5}), ("/release", {}), ("/progress", {"content": "x"})):
        lost = problem(api.post(at(call, door), {"token": token} | more), 409, "claim_lost")
        assert lost["current"] == ok(api.get(at(call)))


def test_a_repeated_request_of_a_claim_is_answered_as_the_first(api: Api, new_call: NewCall) -> None:
    """I4: a release whose answer got lost."""
    call = new_call()
    body = {"token": claim(call)}
    ok(api.post(at(call, "/release"), body, Idempotency_Key="r"))
    claim(call)
    again = api.post(at(call, "/release"), body, Idempotency_Key="r")
    assert (again.status_code, again["Idempotency-Replayed"]) == (200, "true")
    assert ok(api.get(at(call)))["claim"] is not None


@pytest.mark.parametrize(
    ("door", "body", "path"),
    [
        ("/extend", {"token": "t"}, "/lease_seconds"),
        ("/extend", {"token": "t", "lease_seconds": 0}, "/lease_seconds"),
        ("/extend", {"token": "t", "lease_seconds": 86401}, "/lease_seconds"),
        ("/extend", {"token": "t", "lease_seconds": True}, "/lease_seconds"),
        ("/extend", {"token": "t", "lease_seconds": "soon"}, "/lease_seconds"),
        ("/release", {}, "/token"),
        ("/release", {"token": 7}, "/token"),
        ("/progress", {"token": "t"}, "/content"),
        ("/progress", {"token": "t", "content": " "}, "/content"),
    ],
)
def test_wrong_bodies_are_refused(
    api: Api, new_call: NewCall, door: str, body: dict[str, Any], path: str
) -> None:
    assert problem(api.post(at(new_call(), door), body), 400, "invalid")["errors"][0]["path"] == path
