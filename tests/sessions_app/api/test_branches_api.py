"""Import, fork, rewind, retry, branch listing and export through the API."""

import asyncio
import base64
import json
from typing import Any

import pytest
from django.db import transaction

from sessions_app import ids, leases, log
from sessions_app.entry_kinds import SYSTEM
from sessions_app.log import NewEntry
from sessions_app.models import AgentConfig, Artifact, Entry, Input, Session
from tests import factories
from tests.sessions_app.api.conftest import Api, ok, problem

pytestmark = pytest.mark.django_db

PIXEL = base64.b64encode(b"a picture, in a way").decode()


def start(api: Api, config: AgentConfig, status: int = 201, **body: Any) -> Any:
    return ok(api.post("/sessions", {"config": ids.encode("cfg", config.pk), **body}), status)


def history(*messages: Any) -> dict[str, Any]:
    return {"format": "tenure", "messages": list(messages)}


def user(text: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(*calls: str, text: str = "") -> dict[str, Any]:
    said = [{"type": "text", "text": text}] if text else []
    return {
        "role": "assistant",
        "content": said + [{"type": "tool_call", "id": call, "name": "find", "args": {}} for call in calls],
    }


def kinds(api: Api, session: str, query: str = "") -> list[str]:
    return [entry["kind"] for entry in ok(api.get(f"/sessions/{session}/entries{query}"))["data"]]


def row_of(session: str) -> Session:
    return Session.objects.get(pk=ids.decode("ses", session))


def write(session: str, *entries: NewEntry) -> None:
    """Append to the log as a worker would."""
    with transaction.atomic():
        row = leases.lock_session(ids.decode("ses", session))
        assert row is not None
        log.append(row, *entries)
        row.save()


def turn_of(session: str, *texts: str) -> None:
    """A finished turn in which these were said, with a reply."""
    row = row_of(session)
    turn = factories.open_turn(row)
    write(session, NewEntry(kind="turn_started", data={"number": row.turn_count}, turn=turn.pk))
    for text in texts:
        content = [{"type": "text", "text": text}]
        data = {"input": "inp_x", "delivery": "queued", "content": content}
        write(session, NewEntry(kind="user_message", data=data, turn=turn.pk, actor=SYSTEM))
    data = {"model_call": "mcl_x", "content": [{"type": "text", "text": "yes"}], "stop": "done"}
    write(session, NewEntry(kind="assistant_message", data=data, turn=turn.pk))
    end = {"number": row.turn_count, "status": "succeeded", "reason": "done", "error": None}
    write(session, NewEntry(kind="turn_ended", data=end, turn=turn.pk))
    Session.objects.filter(pk=row.pk).update(turn=None, last_turn=turn)
    turn.status, turn.reason, turn.ended_at = "succeeded", "done", factories.database_now()
    turn.save()


# --- import ----------------------------------------------------------------------------------------------


def test_a_history_becomes_the_first_entries_of_a_session(api: Api, config: AgentConfig) -> None:
    """S9: stored with the session, repaired, the repair named; the session does not speak by itself."""
    made = start(api, config, history=history(user(), reply("c1"), user("and?"), reply(text="done")))
    assert (made["status"], made["last_seq"], made["output"]) == (
        "idle",
        6,
        [{"type": "text", "text": "done"}],
    )
    entries = ok(api.get(f"/sessions/{made['id']}/entries"))["data"]
    assert [entry["kind"] for entry in entries] == [
        "session_created",
        "user_message",
        "assistant_message",
        "tool_result",
        "user_message",
        "assistant_message",
    ]
    call = entries[2]["data"]["content"][0]["tool_call"]
    assert entries[0]["data"]["repaired_tool_calls"] == [call]
    assert entries[0]["data"]["imported"] == {"format": "tenure", "messages": 4, "left_out": 0}
    assert (entries[3]["data"]["tool_call"], entries[3]["data"]["outcome"]) == (call, "interrupted")
    assert (entries[1]["data"]["input"], entries[2]["data"]["model_call"]) == (None, None)
    assert entries[1]["actor"]["kind"] == "key"


def test_files_in_a_history_become_artifacts(api: Api, config: AgentConfig) -> None:
    content = [{"type": "media", "media_type": "image/png", "data": PIXEL}]
    made = start(api, config, history=history({"role": "user", "content": content}))
    (block,) = ok(api.get(f"/sessions/{made['id']}/entries"))["data"][1]["data"]["content"]
    artifact = Artifact.objects.get(pk=ids.decode("art", block["artifact"]))
    assert (artifact.project_id, artifact.media_type) == (row_of(made["id"]).project_id, "image/png")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (history(user(), user(), user(), {"role": "user", "content": [7]}), "/history/messages/3/content/0"),
        (
            history(
                {"role": "user", "content": [{"type": "media", "artifact": ids.encode("art", ids.new_id())}]}
            ),
            "/history/messages/0/content/0/artifact",
        ),
        (
            history({"role": "user", "content": [{"type": "media", "media_type": "no", "data": PIXEL}]}),
            "/history/messages/0/content/0/media_type",
        ),
        (history(), "/history/messages"),
        ({"format": "other", "messages": []}, "/history/format"),
        ({"format": "tenure"}, "/history/messages"),
    ],
)
def test_a_mistake_in_a_history_is_told_with_its_place_and_nothing_is_stored(
    api: Api, config: AgentConfig, given: Any, path: str
) -> None:
    body = {"config": ids.encode("cfg", config.pk), "history": given}
    document = problem(api.post("/sessions", body), 400, "invalid")
    assert [error["path"] for error in document["errors"]] == [path]
    assert Session.objects.count() == 0


def test_an_import_is_replayed_and_not_done_twice(api: Api, config: AgentConfig) -> None:
    """I4: the same key and history give the first answer again."""
    body = {"config": ids.encode("cfg", config.pk), "history": history(user())}
    first = api.post("/sessions", body, Idempotency_Key="once")
    again = api.post("/sessions", body, Idempotency_Key="once")
    assert (first.json()["id"], again["Idempotency-Replayed"]) == (again.json()["id"], "true")
    assert Session.objects.count() == 1


# --- fork ------------------------------------------------------------------------------------------------


def test_a_fork_shows_where_it_comes_from_and_runs_as_its_parent_does(api: Api, config: AgentConfig) -> None:
    parent = start(api, config, history=history(user(), reply(text="yes")))
    fork = ok(api.post("/sessions", {"fork": {"session": parent["id"], "at_seq": 2}}), 201)
    assert fork["forked_from"] == {"session": parent["id"], "seq": 2}
    assert (fork["config"], fork["last_seq"], fork["status"]) == (parent["config"], 1, "idle")
    assert kinds(api, fork["id"]) == ["session_created"]
    whole = ok(api.post("/sessions", {"fork": {"session": parent["id"]}}), 201)
    assert whole["forked_from"]["seq"] == 3
    assert Entry.objects.count() == 5  # nothing was copied


@pytest.mark.parametrize("at_seq", [99, 4])
def test_a_fork_needs_an_entry_of_its_parent(api: Api, config: AgentConfig, at_seq: int) -> None:
    parent = start(api, config, history=history(user(), reply(text="yes")))
    answer = api.post("/sessions", {"fork": {"session": parent["id"], "at_seq": at_seq}})
    assert problem(answer, 400, "invalid")["errors"][0]["path"] == "/fork/at_seq"


def test_a_session_of_another_project_can_not_be_forked(
    api: Api, other_api: Api, config: AgentConfig
) -> None:
    parent = start(api, config)
    theirs = ids.encode("cfg", factories.config(project=other_api.project).pk)
    body = {"config": theirs, "fork": {"session": parent["id"], "at_seq": 1}}
    problem(other_api.post("/sessions", body), 404, "not_found")


def test_history_and_fork_exclude_each_other(api: Api, config: AgentConfig) -> None:
    parent = start(api, config)
    body = {"fork": {"session": parent["id"]}, "history": history(user())}
    problem(api.post("/sessions", body), 400, "invalid")


# --- rewind and retry ------------------------------------------------------------------------------------


def test_a_rewind_is_an_entry_and_moves_the_head(api: Api, config: AgentConfig) -> None:
    session = start(api, config, history=history(user(), reply(text="one"), user(), reply(text="two")))["id"]
    moved = ok(api.post(f"/sessions/{session}/rewind", {"to_seq": 3}))
    assert (moved["status"], moved["last_seq"], moved["output"]) == (
        "idle",
        6,
        [{"type": "text", "text": "one"}],
    )
    (entry,) = ok(api.get(f"/sessions/{session}/entries?after=5"))["data"]
    assert (entry["kind"], entry["parent_seq"]) == ("branch_moved", 3)
    assert entry["data"] == {"to_seq": 3, "from_seq": 5}
    assert kinds(api, session, "?branch=current") == [
        "session_created",
        "user_message",
        "assistant_message",
        "branch_moved",
    ]


def test_a_rewind_needs_an_entry_of_the_session(api: Api, config: AgentConfig) -> None:
    session = start(api, config)["id"]
    answer = api.post(f"/sessions/{session}/rewind", {"to_seq": 2})
    assert problem(answer, 400, "invalid")["errors"][0]["path"] == "/to_seq"
    problem(api.post(f"/sessions/{session}/rewind", {"to_seq": -1}), 400, "invalid")


@pytest.mark.parametrize("action", ["rewind", "retry"])
def test_a_turn_that_runs_is_not_pulled_from_under_its_worker(
    api: Api, config: AgentConfig, action: str
) -> None:
    session = start(api, config)["id"]
    turn_of(session, "one")
    row = row_of(session)
    factories.open_turn(row)
    factories.leased(row, factories.worker())
    body = {"to_seq": 1} if action == "rewind" else {}
    document = problem(api.post(f"/sessions/{session}/{action}", body), 409, "session_busy")
    assert document["current"]["status"] == "running"


def test_a_turn_that_waits_is_cancelled_by_a_rewind(api: Api, config: AgentConfig) -> None:
    session = start(api, config)["id"]
    turn_of(session, "one")
    row = row_of(session)
    factories.open_turn(row)
    factories.tool_call(row, state="waiting")
    row.status = "waiting"
    row.save()
    moved = ok(api.post(f"/sessions/{session}/rewind", {"to_seq": 1}))
    assert (moved["status"], moved["turn"], moved["last_turn"]["status"]) == ("idle", None, "cancelled")
    assert kinds(api, session)[-3:] == ["tool_result", "turn_ended", "branch_moved"]


def test_a_retry_says_the_same_again_in_one_input(api: Api, config: AgentConfig) -> None:
    session = start(api, config)["id"]
    turn_of(session, "one")
    turn_of(session, "two", "and steered")
    retried = ok(api.post(f"/sessions/{session}/retry"))
    assert (retried["status"], retried["queued_inputs"]) == ("queued", 1)
    waiting = Input.objects.get()
    assert [block["text"] for block in waiting.content] == ["two", "and steered"]
    assert kinds(api, session, "?branch=current") == [
        "session_created",
        "turn_started",
        "user_message",
        "assistant_message",
        "turn_ended",
        "branch_moved",
        "input_received",
    ]
    problem(api.post(f"/sessions/{session}/retry"), 409, "session_busy")


def test_there_is_nothing_to_retry_before_the_first_turn(api: Api, config: AgentConfig) -> None:
    session = start(api, config, history=history(user(), reply(text="yes")))["id"]
    problem(api.post(f"/sessions/{session}/retry"), 409, "nothing_to_retry")


def test_a_retry_gives_a_session_that_crashed_too_often_a_new_chance(
    api: Api, config: AgentConfig, settings: Any
) -> None:
    """R9: the counter is reset and inherited inputs go first, in order."""
    session = start(api, config)["id"]
    turn_of(session, "poison")
    row = row_of(session)
    row.crash_count = settings.TENURE.crash_limit
    row.status = "waiting"
    row.save()
    inherited = factories.received_input(row, text="inherited")
    retried = ok(api.post(f"/sessions/{session}/retry"))
    assert (retried["status"], row_of(session).crash_count) == ("queued", 0)
    first, last = Input.objects.order_by("rank")
    assert (first.pk, last.content[0]["text"]) == (inherited.pk, "poison")


def test_a_retry_goes_before_inputs_that_wait(api: Api, config: AgentConfig) -> None:
    session = start(api, config)["id"]
    turn_of(session, "one")
    row = row_of(session)
    factories.open_turn(row)
    turn = row.turn_id
    data = {"input": "inp_y", "delivery": "queued", "content": [{"type": "text", "text": "two"}]}
    write(session, NewEntry(kind="turn_started", data={"number": 2}, turn=turn))
    write(session, NewEntry(kind="user_message", data=data, turn=turn))
    row = row_of(session)
    factories.tool_call(row, state="waiting")
    factories.received_input(row, text="later")
    row.status = "waiting"
    row.save()
    ok(api.post(f"/sessions/{session}/retry"))
    assert [item.content[0]["text"] for item in Input.objects.order_by("rank")] == ["two", "later"]


@pytest.mark.parametrize("action", ["rewind", "retry", "export", "entries?branch=current"])
def test_sessions_of_others_do_not_exist(api: Api, other_api: Api, config: AgentConfig, action: str) -> None:
    session = start(api, config)["id"]
    path = f"/sessions/{session}/{action}"
    if action in {"rewind", "retry"}:
        answer = other_api.post(path, {"to_seq": 0} if action == "rewind" else None)
    else:
        answer = other_api.get(path)
    problem(answer, 404, "not_found")


@pytest.mark.django_db(transaction=True)
def test_an_archived_session_is_forked_and_exported_but_not_rewound(api: Api, config: AgentConfig) -> None:
    session = start(api, config, history=history(user()))["id"]
    Session.objects.update(archived_at=factories.database_now(), status="archived")
    problem(api.post(f"/sessions/{session}/rewind", {"to_seq": 1}), 409, "session_archived")
    problem(api.post(f"/sessions/{session}/retry"), 409, "session_archived")
    ok(api.post("/sessions", {"fork": {"session": session, "at_seq": 2}}), 201)
    assert len(exported(api, session)) == 3


# --- the branch, in pages --------------------------------------------------------------------------------


def test_the_branch_of_a_fork_is_paged_by_place(api: Api, config: AgentConfig) -> None:
    """Every page size gives the same entries in order, forwards and backwards, each with its own session."""
    parent = start(api, config, history=history(*[user(str(number)) for number in range(5)]))["id"]
    ok(api.post(f"/sessions/{parent}/rewind", {"to_seq": 3}))
    write(parent, NewEntry(kind="note", data={"text": "n"}))
    fork = ok(api.post("/sessions", {"fork": {"session": parent}}), 201)["id"]
    write(fork, NewEntry(kind="note", data={"text": "m"}))
    path = f"/sessions/{fork}/entries?branch=current"
    whole = ok(api.get(path))
    found = [(entry["session"], entry["seq"], entry["place"]) for entry in whole["data"]]
    expected = [(parent, seq) for seq in (1, 2, 3, 7, 8)] + [(fork, 1), (fork, 2)]
    assert found == [(*entry, place) for place, entry in enumerate(expected, start=1)]
    assert whole["has_more"] is False
    for limit in (1, 2, 3, 7):
        pages, after, more = [], 0, True
        while more:
            page = ok(api.get(f"{path}&limit={limit}&after={after}"))
            pages += page["data"]
            after, more = page["data"][-1]["place"], page["has_more"]
        assert pages == whole["data"]
        pages, before, more = [], len(found) + 1, True
        while more:
            page = ok(api.get(f"{path}&limit={limit}&before={before}"))
            pages = page["data"] + pages
            before, more = page["data"][0]["place"], page["has_more"]
        assert pages == whole["data"]
    assert ok(api.get(f"{path}&after=99")) == {"data": [], "has_more": False}
    between = ok(api.get(f"{path}&after=2&before=5"))
    assert [entry["place"] for entry in between["data"]] == [3, 4]


def test_without_a_branch_entries_are_paged_by_seq_as_ever(api: Api, config: AgentConfig) -> None:
    session = start(api, config, history=history(user()))["id"]
    entries = ok(api.get(f"/sessions/{session}/entries?after=1"))["data"]
    assert [(entry["seq"], "place" in entry) for entry in entries] == [(2, False)]
    problem(api.get(f"/sessions/{session}/entries?branch=main"), 400, "invalid")


# --- export ----------------------------------------------------------------------------------------------


def streamed(answer: Any) -> bytes:
    assert answer.status_code == 200, answer.content

    async def read() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return asyncio.run(read()) if answer.is_async else b"".join(answer.streaming_content)


def exported(api: Api, session: str) -> list[Any]:
    answer = api.get(f"/sessions/{session}/export")
    assert answer["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in streamed(answer).splitlines()]


@pytest.mark.django_db(transaction=True)
def test_an_export_is_the_session_and_every_entry_of_all_branches(api: Api, config: AgentConfig) -> None:
    parent = start(api, config, history=history(user("one"), user("two")))["id"]
    fork = ok(api.post("/sessions", {"fork": {"session": parent, "at_seq": 2}}), 201)["id"]
    write(fork, NewEntry(kind="note", data={"text": "left"}))
    ok(api.post(f"/sessions/{fork}/rewind", {"to_seq": 1}))
    lines = exported(api, fork)
    assert lines[0]["type"] == "session"
    assert lines[0]["session"]["id"] == fork
    assert [(line["entry"]["session"], line["entry"]["seq"]) for line in lines[1:]] == [
        (parent, 1),
        (parent, 2),
        (fork, 1),
        (fork, 2),
        (fork, 3),
    ]


@pytest.mark.django_db(transaction=True)
def test_exported_messages_are_a_history_that_can_be_imported(api: Api, config: AgentConfig) -> None:
    given = history(
        user("one"),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s", "provider": "anthropic"},
                {"type": "tool_call", "id": "c1", "name": "find", "args": {"q": 1}},
            ],
            "provider": "anthropic",
        },
        {"role": "tool_result", "id": "c1", "name": "find", "error": True, "content": "no"},
        {"role": "checkpoint", "content": "so far"},
        {"role": "user", "content": [{"type": "media", "media_type": "image/png", "data": PIXEL}]},
    )
    first = start(api, config, history=given)["id"]
    document = json.loads(streamed(api.get(f"/sessions/{first}/export?format=messages")))
    assert document["format"] == "tenure"
    roles = [message["role"] for message in document["messages"]]
    assert roles == ["user", "assistant", "tool_result", "checkpoint", "user"]
    second = start(api, config, history=document)["id"]
    again = json.loads(streamed(api.get(f"/sessions/{second}/export?format=messages")))
    for message in (*document["messages"], *again["messages"]):
        for block in message["content"] if isinstance(message["content"], list) else ():
            block.pop("tool_call", None)
    assert again == document


@pytest.mark.django_db(transaction=True)
def test_an_export_of_messages_follows_the_branch(api: Api, config: AgentConfig) -> None:
    parent = start(api, config, history=history(user("one"), reply(text="a"), user("two")))["id"]
    fork = ok(api.post("/sessions", {"fork": {"session": parent, "at_seq": 3}}), 201)["id"]
    document = json.loads(streamed(api.get(f"/sessions/{fork}/export?format=messages")))
    assert [message["role"] for message in document["messages"]] == ["user", "assistant"]
    problem(api.get(f"/sessions/{fork}/export?format=xml"), 400, "invalid")
