"""The feeds over real sockets of a real web process."""

import json
import os
import signal
import socket as sockets
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client as Browser
from websockets.exceptions import InvalidStatus

from sessions_app import ids, keys, log, wakeups
from sessions_app.feed.cursors import ProjectCursor
from sessions_app.feed.snapshots import Snapshot
from sessions_app.models import Entry, Input, Project, Session
from tests import factories
from tests.acceptance import agents
from tests.processes.web import Client, Web, free_port, web
from tests.processes.workers import Workers
from tests.staging import another_connection, eventually, holding, wait_until_blocked

pytestmark = pytest.mark.processes

QUICK = {
    "TENURE_FEED_PING_INTERVAL": "1",
    "TENURE_FEED_SLOW_AFTER": "1",
    "TENURE_FEED_RECHECK_INTERVAL": "0.3",
    "TENURE_FEED_POLL_INTERVAL": "0.5",
}


@pytest.fixture(scope="module")
def served(process_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web(process_environment | QUICK, tmp_path_factory.mktemp("web")) as made:
        yield made


@pytest.fixture
def project(transactional_db: None) -> Project:
    return factories.project()


@pytest.fixture
def key(project: Project) -> str:
    return keys.create_key(project=project.pk, name="feed")[1]


@pytest.fixture
def session(project: Project) -> Session:
    return factories.session(config=factories.config(project=project))


def write(session: Session, *texts: str, ring: bool = True) -> None:
    """Notes in the log, one transaction, and their doorbell."""
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session.pk)
        log.append(row, *(log.NewEntry(kind="note", data={"text": text}) for text in texts))
        row.save()
    if ring:
        wakeups.ring_entries([session.pk])


def name(session: Session) -> str:
    return ids.encode("ses", session.pk)


def texts(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["entry"]["data"]["text"] for frame in frames if frame["type"] == "entry"]


def refused(client: Client) -> tuple[int, str]:
    """The close code and the error's code of a socket that was accepted only to say why not."""
    frames, code = client.rest()
    assert code is not None
    return code, frames[-1]["code"]


# --- the feed --------------------------------------------------------------------------------------------


def test_a_socket_gets_what_was_there_then_what_comes(served: Web, key: str, session: Session) -> None:
    """F1: all behind the cursor in order, one caught_up, then live; a reconnect repeats and misses nothing."""
    write(session, "one", "two", "three")
    with served.socket(f"/sessions/{name(session)}?after=1", key=key) as client:
        first = client.until("caught_up")
        assert texts(first) == ["two", "three"]
        assert first[-1] == {"type": "caught_up", "cursor": "3"}
        write(session, "four", "five")
        live = client.entries(2)
        assert texts(live) == ["four", "five"]
        assert [frame["cursor"] for frame in live] == ["4", "5"]
    write(session, "six")
    with served.socket(f"/sessions/{name(session)}?after={live[-1]['cursor']}", key=key) as client:
        assert texts(client.until("caught_up")) == ["six"]
    with served.socket(f"/sessions/{name(session)}?after=now", key=key) as client:
        assert [frame["type"] for frame in client.until("ping")] == ["caught_up", "ping"]


def test_a_cursor_can_be_used_again_after_a_cut_before_anything_came(
    served: Web, key: str, session: Session
) -> None:
    """C135, F1"""
    write(session, *"1234567")
    for _ in range(2):
        with served.socket(f"/sessions/{name(session)}?after=7", key=key):
            pass  # cut before any entry
    write(session, "8")
    with served.socket(f"/sessions/{name(session)}?after=7", key=key) as client:
        assert texts(client.until("caught_up")) == ["8"]


def test_a_project_socket_follows_all_of_its_sessions(served: Web, key: str, session: Session) -> None:
    """F2"""
    other = factories.session(config=session.config)
    write(session, "a1")
    write(other, "b1", "b2")
    write(factories.session(), "not ours")
    with served.socket("/project", key=key) as client:
        first = client.until("caught_up")
        assert sorted(texts(first)) == ["a1", "b1", "b2"]
        write(session, "a2")
        (live,) = client.entries(1)
        assert texts([live]) == ["a2"]
    write(other, "b3")
    with served.socket(f"/project?after={live['cursor']}", key=key) as client:
        assert texts(client.until("caught_up")) == ["b3"]


def test_a_project_socket_filters_by_kind_label_and_session(served: Web, key: str, session: Session) -> None:
    """F2"""
    labelled = factories.session(config=session.config, labels={"team": "blue"})
    write(session, "plain")
    write(labelled, "labelled")
    for query, wanted in [
        ("kinds=note", ["labelled", "plain"]),
        ("kinds=turn_ended", []),
        ("label=team:blue", ["labelled"]),
        ("label=team:red", []),
        (f"session={name(session)}", ["plain"]),
        (f"session={name(session)},{name(labelled)}&label=team:blue", ["labelled"]),
    ]:
        with served.socket(f"/project?{query}", key=key) as client:
            assert sorted(texts(client.until("caught_up"))) == wanted, query
    with served.socket("/project?label=team:blue&after=now", key=key) as client:
        client.until("caught_up")
        write(session, "plain again")
        write(labelled, "labelled again")
        assert texts(client.entries(1)) == ["labelled again"]


def test_a_transaction_that_commits_late_is_not_skipped(served: Web, key: str, session: Session) -> None:
    """C131, F2: the later number is committed first; the reader gets both, and waits for nobody else's."""
    late = factories.session(config=session.config)
    with served.socket("/project?after=now", key=key) as client:
        client.until("caught_up")
        with another_connection() as slow, another_connection() as idle:
            idle.execute("SELECT pg_current_xact_id()")  # stands about in a transaction, for ever as it seems
            _insert_note(slow, late, "late")
            write(session, "early")
            live = client.entries(1)
            assert texts(live) == ["early"]
            slow.commit()
            wakeups.ring_entries([late.pk])
            live += client.entries(1)
            assert texts(live) == ["early", "late"]
            write(session, "after")
            live += client.entries(1)
    for place, frame in enumerate(live, start=1):
        with served.socket(f"/project?after={frame['cursor']}", key=key) as client:
            assert texts(client.until("caught_up")) == ["early", "late", "after"][place:]


def _insert_note(slow: Any, session: Session, text: str) -> None:
    slow.execute(
        "UPDATE sessions_app_session SET next_seq = 2, head_seq = 1 WHERE id = %s",
        [session.pk],
    )
    slow.execute(
        "INSERT INTO sessions_app_entry (id, session_id, project_id, seq, parent_seq, kind, actor, data)"
        " VALUES (%s, %s, %s, 1, 0, 'note', '{}', %s)",
        [uuid4(), session.pk, session.project_id, json.dumps({"text": text})],
    )


def test_an_entry_of_any_size_arrives(served: Web, key: str, session: Session) -> None:
    """C133, F3: a doorbell carries an id, so an entry far beyond 8,000 bytes neither fails nor is cut."""
    with served.socket(f"/sessions/{name(session)}", key=key) as client:
        client.until("caught_up")
        write(session, "x" * 20_000, "€" * 3000)
        assert texts(client.entries(2)) == ["x" * 20_000, "€" * 3000]


def test_a_doorbell_that_was_never_rung_costs_no_more_than_the_poll(
    served: Web, key: str, session: Session
) -> None:
    """F3"""
    with (
        served.socket(f"/sessions/{name(session)}", key=key) as one,
        served.socket("/project", key=key) as all_of_it,
    ):
        one.until("caught_up")
        all_of_it.until("caught_up")
        write(session, "nobody rang", ring=False)
        assert texts(one.entries(1)) == ["nobody rang"]
        assert texts(all_of_it.entries(1)) == ["nobody rang"]


def test_a_listener_whose_connection_was_cut_hears_again(served: Web, key: str, session: Session) -> None:
    """C87: what was written meanwhile comes at once, because everybody is woken after the new LISTEN."""
    with served.socket(f"/sessions/{name(session)}", key=key) as client:
        client.until("caught_up")

        def listeners() -> list[int]:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'tenure listen'"
                    " AND datname = current_database()"
                )
                return [pid for (pid,) in cursor.fetchall()]

        before = eventually(listeners)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) AS pid", [before])
        write(session, "while it was deaf", ring=False)
        assert texts(client.entries(1)) == ["while it was deaf"]
        eventually(lambda: set(listeners()) - set(before))
        write(session, "by doorbell")
        assert texts(client.entries(1)) == ["by doorbell"]


def test_no_connection_to_the_database_is_held_for_an_idle_feed(
    served: Web, key: str, session: Session
) -> None:
    """F5: with many idle sockets the web process has the listener's connection and what its pool keeps."""
    with served.socket(f"/sessions/{name(session)}", key=key) as first:
        first.until("caught_up")
        listening = _activity(
            "application_name = 'tenure listen'"
        )  # other processes of the run may listen too
        with _many(served, f"/sessions/{name(session)}", key, 30):
            # Only a look that happens to be under way is not idle: a poll is one statement for all.
            eventually(lambda: _activity("state <> 'idle'") == 0)
            assert _activity("application_name = 'tenure listen'") == listening


def _activity(condition: str) -> int:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "
    with connection.cursor() as cursor:
        cursor.execute(count + condition)
        return int(cursor.fetchone()[0])


@contextmanager
def _many(served: Web, path: str, key: str, count: int) -> Iterator[list[Client]]:
    if count == 0:
        yield []
        return
    with served.socket(path, key=key) as client, _many(served, path, key, count - 1) as others:
        client.until("caught_up")
        yield [client, *others]


# --- slow consumers --------------------------------------------------------------------------------------


def test_a_consumer_that_stops_reading_is_closed_with_its_cursor_and_misses_nothing(
    served: Web, key: str, session: Session
) -> None:
    """C137, F4: closed with 4408 and the cursor of the last entry; others are not slowed; the rest comes later."""
    big = "x" * 100_000
    path = f"/sessions/{name(session)}"
    with (
        served.socket(path, key=key) as quick,
        served.socket(path, key=key, max_queue=1) as slow,
    ):
        quick.until("caught_up")
        slow.until("caught_up")
        for number in range(30):
            write(session, *(f"{number}.{place} {big}" for place in range(10)))
            assert len(quick.entries(10)) == 10
        # Its own buffers and the kernel's are full by now; what else there is stays in the database.
        eventually(lambda: "slow_consumer" in served.log.read_text(), within=20)
        got, code = slow.rest()
        assert code == 4408
        assert (got[-1]["type"], got[-1]["code"]) == ("error", "slow_consumer")
        entries = [frame for frame in got if frame["type"] == "entry"]
        assert got[-1]["cursor"] == entries[-1]["cursor"]
        seqs = [frame["entry"]["seq"] for frame in entries]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) < 300
    with served.socket(f"{path}?after={got[-1]['cursor']}", key=key) as again:
        rest = [frame["entry"]["seq"] for frame in again.until("caught_up") if frame["type"] == "entry"]
    assert seqs + rest == list(range(1, 301))


# --- server-sent events ----------------------------------------------------------------------------------


@contextmanager
def events(served: Web, path: str, **headers: str) -> Iterator[Iterator[list[str]]]:
    """The frames of a stream, as lists of lines that end at CR LF, LF or CR only."""
    with httpx2.stream(
        "GET", f"{served.address}/api/v1{path}", headers=headers, trust_env=False, timeout=15
    ) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"

        def frames() -> Iterator[list[str]]:
            text = b""
            for part in answer.iter_bytes():
                text += part
                while b"\n\n" in text:
                    frame, text = text.split(b"\n\n", 1)
                    yield frame.decode().split("\n")

        yield frames()


def next_event(frames: Iterator[list[str]]) -> list[str]:
    return next(frame for frame in frames if not frame[0].startswith(":"))


def test_server_sent_events_are_the_same_feed(served: Web, key: str, session: Session) -> None:
    """A137, F1: the first frame is a comment, then entries with their cursor as id, then live; pings are comments."""
    write(session, "one", "two")
    path = f"/sessions/{name(session)}/stream"
    with events(served, path, Authorization=f"Bearer {key}", **{"Last-Event-ID": "1"}) as frames:
        assert next(frames)[0].startswith(":")
        entry = next(frames)
        assert entry[:2] == ["id: 2", "event: note"]
        assert json.loads(entry[2].removeprefix("data: "))["data"] == {"text": "two"}
        assert next(frames)[:2] == ["id: 2", "event: caught_up"]
        assert next(frames) == [": ping"]
        write(session, "three")
        assert next_event(frames)[0] == "id: 3"


def test_separators_of_lines_in_an_entry_do_not_split_its_event(
    served: Web, key: str, session: Session
) -> None:
    """C59: also for a client that takes U+2028, U+2029 and U+0085 for the end of a line."""
    text = "a\u2028b\u2029c\u0085d\r\ne"
    write(session, text)
    with events(served, f"/sessions/{name(session)}/stream", Authorization=f"Bearer {key}") as frames:
        event = next_event(frames)
    lines = "\n".join(event).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["id", "event", "data"]
    assert json.loads(lines[2].removeprefix("data: "))["data"]["text"] == text


def test_a_project_stream_goes_on_from_the_id_of_its_last_event(
    served: Web, key: str, session: Session
) -> None:
    """F1, F2"""
    write(session, "one", "two", "three")
    with events(served, "/stream", Authorization=f"Bearer {key}") as frames:
        identity = next_event(frames)[0].removeprefix("id: ")
    with events(
        served, "/stream?after=0", Authorization=f"Bearer {key}", **{"Last-Event-ID": identity}
    ) as frames:
        assert '"two"' in next_event(frames)[2]
        assert '"three"' in next_event(frames)[2]


def test_a_stream_that_its_client_left_is_given_up(served: Web, key: str, session: Session) -> None:
    """The web process stops following when nobody listens any more, so a key's revocation is nobody's news."""
    with events(served, f"/sessions/{name(session)}/stream", Authorization=f"Bearer {key}") as frames:
        next_event(frames)
        assert _open_sockets(served) >= 1
    eventually(lambda: _open_sockets(served) == 0, within=10)


def _open_sockets(served: Web) -> int:
    found = subprocess.run(
        ["ss", "-Htn", "state", "established", f"( sport = :{served.port} )"],
        capture_output=True,
        text=True,
        check=False,
    )
    return len(found.stdout.splitlines())


def test_a_stream_that_can_not_begin_answers_with_a_problem(served: Web, key: str, session: Session) -> None:
    """F1"""
    headers = {"Authorization": f"Bearer {key}"}
    path = f"{served.address}/api/v1/sessions/{name(session)}/stream"
    for query, status, code in [
        ("?after=999", 400, "invalid_cursor"),
        ("?after=x", 400, "invalid_cursor"),
        ("?befor=1", 400, "invalid"),
        (f"?key={key}", 401, "key_in_url"),
    ]:
        answer = httpx2.get(path + query, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (status, code), query
    answer = httpx2.get(path, trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


def test_a_stream_whose_key_is_revoked_ends_with_an_error(
    served: Web, project: Project, session: Session
) -> None:
    """F6"""
    row, key = keys.create_key(project=project.pk, name="revoked")
    with events(served, f"/sessions/{name(session)}/stream", Authorization=f"Bearer {key}") as frames:
        assert next_event(frames)[1] == "event: caught_up"
        keys.revoke_key(project=project.pk, key=row.pk)
        last = next_event(frames)
        assert last[0] == "event: error"
        assert json.loads(last[1].removeprefix("data: "))["code"] == "invalid_key"
        assert next(frames, None) is None


# --- cursors ---------------------------------------------------------------------------------------------


def test_wrong_cursors_close_the_socket_and_say_how_they_are_wrong(
    served: Web, key: str, session: Session
) -> None:
    """F1: foreign, future and malformed ones, code 4400."""
    write(session, "one")
    ours, theirs = session.project_id, uuid4()
    future = ProjectCursor(Snapshot(1 << 60)).text(ours)
    for path, why in [
        (f"/sessions/{name(session)}?after=2", "future"),
        (f"/sessions/{name(session)}?after=-1", "malformed"),
        (f"/sessions/{name(session)}?after=one", "malformed"),
        (f"/sessions/{name(session)}?after={future}", "foreign"),
        ("/project?after=1", "malformed"),
        (f"/project?after={future}", "future"),
        (f"/project?after={ProjectCursor(Snapshot(5)).text(theirs)}", "foreign"),
        (f"/project?after={'A' * 1000}", "malformed"),
    ]:
        with served.socket(path, key=key) as client:
            frame = client.next()
            assert (frame["type"], frame["code"]) == ("error", "invalid_cursor"), path
            assert frame["errors"][0]["code"] == why, path
            assert client.rest() == ([], 4400)


# --- access ----------------------------------------------------------------------------------------------


def _cookie(staff: bool = True) -> tuple[str, Any]:
    user = get_user_model().objects.create_user(f"user {uuid4()}", is_staff=staff)
    browser = Browser()
    browser.force_login(user)
    return f"sessionid={browser.cookies['sessionid'].value}", user


def test_a_cookie_opens_a_socket_for_pages_of_this_site_only(
    served: Web, project: Project, session: Session
) -> None:
    """C139: a foreign, missing or null Origin is refused before the socket is accepted."""
    cookie, _ = _cookie()
    path = f"/sessions/{name(session)}?project={ids.encode('prj', project.pk)}"
    own = f"http://127.0.0.1:{served.port}"
    for origin in ("https://evil.example", "null", None):
        headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
        with pytest.raises(InvalidStatus) as refusal, served.socket(path, headers=headers):
            pass
        assert refusal.value.response.status_code == 403
    with served.socket(path, headers={"Cookie": cookie, "Origin": own}) as client:
        client.until("caught_up")
    plain, _ = _cookie(staff=False)
    with served.socket(path, headers={"Cookie": plain, "Origin": own}) as client:
        assert refused(client) == (4403, "forbidden")


def test_a_key_opens_sockets_without_an_origin_and_never_from_a_url(
    served: Web, key: str, session: Session
) -> None:
    """C139, F6"""
    path = f"/sessions/{name(session)}"
    with served.socket(path, key=key) as client:
        client.until("caught_up")
    for query in (f"key={key}", "token=abc", f"after={key}"):
        with served.socket(f"{path}?{query}", key=key) as client:
            assert refused(client) == (4401, "key_in_url")
    assert key not in served.log.read_text()
    with served.socket(path) as client:
        assert refused(client) == (4401, "unauthenticated")
    with served.socket(path, key="tnk_" + "x" * 43) as client:
        assert refused(client) == (4401, "invalid_key")
    with served.socket(f"/sessions/{name(factories.session())}", key=key) as client:
        assert refused(client) == (4404, "not_found")
    with served.socket("/sessions/nonsense", key=key) as client:
        assert refused(client) == (4404, "not_found")


def test_a_ticket_opens_one_socket_once(served: Web, key: str, session: Session) -> None:
    """F6: one use, also under a race, and only for what it was made for."""

    def ticket(**body: Any) -> str:
        answer = httpx2.post(
            f"{served.address}/api/v1/tickets",
            json=body,
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
        )
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["ticket"]
        return found

    path = f"/sessions/{name(session)}?ticket="
    one = ticket(session=name(session))
    with served.socket(path + one) as client:
        client.until("caught_up")
    with served.socket(path + one) as client:
        assert refused(client) == (4401, "invalid_ticket")
    other = ticket(session=name(factories.session(config=session.config)))
    with served.socket(path + other) as client:
        assert refused(client) == (4403, "forbidden")

    raced = ticket()
    barrier = threading.Barrier(4)

    def outcome(_: int) -> str:
        barrier.wait(10)
        with served.socket(path + raced) as client:
            kind: str = client.next()["type"]
            return kind

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(outcome, range(4))) == ["caught_up", "error", "error", "error"]


def test_an_open_socket_ends_when_its_right_does(served: Web, project: Project, session: Session) -> None:
    """F6: a revoked key, a user who left or logged out, a session that is gone: 4401, 4403, 4404."""
    row, key = keys.create_key(project=project.pk, name="revoked")
    path = f"/sessions/{name(session)}"
    own = {"Origin": f"http://127.0.0.1:{served.port}"}
    with_project = f"{path}?project={ids.encode('prj', project.pk)}"
    first, left = _cookie()
    second, _ = _cookie()
    with (
        served.socket(path, key=key) as by_key,
        served.socket(with_project, headers={"Cookie": first, **own}) as by_user,
        served.socket(with_project, headers={"Cookie": second, **own}) as by_login,
    ):
        for client in (by_key, by_user, by_login):
            client.until("caught_up")
        keys.revoke_key(project=project.pk, key=row.pk)
        left.is_active = False
        left.save()
        from django.contrib.sessions.models import Session as Login

        Login.objects.filter(pk=second.partition("=")[2]).delete()
        assert refused(by_key) == (4401, "invalid_key")
        assert refused(by_user) == (4403, "forbidden")
        assert refused(by_login) == (4401, "unauthenticated")
    kept = keys.create_key(project=project.pk, name="kept")[1]
    gone = factories.session(config=session.config)
    with served.socket(f"/sessions/{name(gone)}", key=kept) as client:
        client.until("caught_up")
        gone.delete()
        assert refused(client) == (4404, "not_found")


# --- what clients say ------------------------------------------------------------------------------------


def test_inputs_and_cancel_go_over_the_socket_by_the_rules_of_rest(
    served: Web, key: str, session: Session
) -> None:
    """I4, A141: one input for one key, whichever way it came; errors name the frame and leave the socket open."""
    number = uuid4().hex
    with served.socket(f"/sessions/{name(session)}", key=key) as client:
        client.say(type="input", content="hello", idempotency_key=number, ref=7)
        ack = client.until("ack")[-1]
        assert (ack["ref"], ack["replayed"], ack["input"]["state"]) == (7, False, "received")
        again = httpx2.post(
            f"{served.address}/api/v1/sessions/{name(session)}/inputs",
            json={"content": "hello"},
            headers={"Authorization": f"Bearer {key}", "Idempotency-Key": number},
            trust_env=False,
        )
        assert again.json()["id"] == ack["input"]["id"]
        assert again.headers["Idempotency-Replayed"] == "true"
        client.say(type="input", content="other", idempotency_key=number, ref="b")
        error = client.until("error")[-1]
        assert (error["ref"], error["code"], error["status"]) == ("b", "idempotency_conflict", 409)
        assert Input.objects.filter(session=session).count() == 1
        client.say(type="input", content="no key", ref=1)
        assert client.until("error")[-1]["errors"][0]["path"] == "/idempotency_key"
        client.say(type="nonsense", ref=2)
        assert client.until("error")[-1]["ref"] == 2
        client.connection.send("not json")
        assert client.until("error")[-1]["code"] == "invalid"
        client.say(type="pong")
        client.say(type="cancel", ref=3)
        ack = client.until("ack")[-1]
        assert (ack["ref"], ack["session"]["id"]) == (3, name(session))


def test_what_can_not_be_sent_or_stored_is_replaced_in_a_frame_and_its_answer(
    served: Web, key: str, session: Session
) -> None:
    """A141: half of a character in `ref` ends nothing, and frames are read as strictly as bodies (S8)."""
    with served.socket(f"/sessions/{name(session)}", key=key) as client:
        client.until("caught_up")
        client.connection.send('{"type": "nonsense", "ref": "a\\ud800"}')
        assert client.until("error")[-1]["ref"] == "a\N{REPLACEMENT CHARACTER}"
        client.connection.send('{"type": "nonsense", "ref": NaN}')
        assert client.until("error")[-1]["errors"][0] == {
            "path": "/ref",
            "code": "nan",
            "message": "NaN is not a JSON number",
        }
        client.connection.send('{"type": "cancel", "ref": 1, "ref": 2}')
        assert client.until("error")[-1]["errors"][0]["code"] == "duplicate_key"
        client.connection.send('{"type": "nonsense", "ref": ' + "[" * 500 + "]" * 500 + "}")
        assert client.until("error")[-1]["errors"][0]["code"] == "too_deep"
        text = '{"type": "input", "content": "a\\u0000b", "idempotency_key": "k", "ref": 3}'
        client.connection.send(text)
        assert client.until("ack")[-1]["ref"] == 3
    assert Input.objects.get(session=session).content[0]["text"] == "a\N{REPLACEMENT CHARACTER}b"


def test_frames_that_wait_for_a_lock_hold_up_no_feed(served: Web, key: str, session: Session) -> None:
    """F3, L10: however many there are; each is answered once the lock is free."""
    other = factories.session(config=session.config)
    path = f"/sessions/{name(session)}"
    with (
        served.socket(f"/sessions/{name(other)}", key=key) as beside,
        _many(served, path, key, 6) as clients,
    ):
        beside.until("caught_up")
        with holding("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", session.pk):
            for number, client in enumerate(clients):
                client.say(type="input", content="hello", idempotency_key=uuid4().hex, ref=number)
            wait_until_blocked(2)
            write(other, "one")
            assert texts(beside.entries(1)) == ["one"]
        assert [client.until("ack")[-1]["ref"] for client in clients] == list(range(6))


def test_a_frame_that_is_too_large_closes_the_socket_with_a_code(
    served: Web, key: str, session: Session
) -> None:
    """F4: no client fills the memory; 1009 tells it why."""
    with served.socket(f"/sessions/{name(session)}", key=key) as client:
        client.until("caught_up")
        client.say(type="input", content="x" * 2**20, idempotency_key=uuid4().hex)
        assert client.rest()[1] == 1009
    assert not Input.objects.filter(session=session).exists()


def test_what_a_revoked_key_says_is_refused_at_once(
    process_environment: dict[str, str], tmp_path: Path, project: Project, session: Session
) -> None:
    """F6: the feed may go on until the next look; a frame is asked about like any call of REST."""
    row, key = keys.create_key(project=project.pk, name="revoked")
    with (
        web(process_environment | QUICK | {"TENURE_FEED_RECHECK_INTERVAL": "30"}, tmp_path) as slow,
        slow.socket(f"/sessions/{name(session)}", key=key) as client,
    ):
        client.until("caught_up")
        keys.revoke_key(project=project.pk, key=row.pk)
        client.say(type="input", content="hello", idempotency_key=uuid4().hex, ref=1)
        error = client.until("error")[-1]
        assert (error["ref"], error["code"], error["status"]) == (1, "invalid_key", 401)
    assert not Input.objects.filter(session=session).exists()


# --- restart ---------------------------------------------------------------------------------------------


def test_a_planned_restart_says_so_and_the_cursor_goes_on(
    process_environment: dict[str, str], tmp_path: Path, key: str, session: Session
) -> None:
    """F1: 1012 when the server stops; the same cursor at the next one."""
    port = free_port()
    with web(process_environment | QUICK, tmp_path, port=port) as first:
        with first.socket(f"/sessions/{name(session)}", key=key) as client:
            write(session, "one")
            (entry,) = client.entries(1)
            os.kill(first.process.pid, signal.SIGTERM)
            assert client.rest()[1] == 1012
        assert first.process.wait(20) == 0
        write(session, "while it was away")
    with (
        web(process_environment | QUICK, tmp_path, port=port) as second,
        second.socket(f"/sessions/{name(session)}?after={entry['cursor']}", key=key) as client,
    ):
        assert texts(client.until("caught_up")) == ["while it was away"]


def test_a_socket_at_a_path_that_nobody_serves_is_refused(served: Web) -> None:
    with sockets.create_connection(("127.0.0.1", served.port), timeout=20) as wire:
        wire.sendall(
            b"GET /ws/v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert wire.recv(1000).startswith(b"HTTP/1.1 403 ")


# --- previews --------------------------------------------------------------------------------------------


def test_a_reply_is_seen_on_its_way_and_then_as_its_entry(served: Web, workers: Workers) -> None:
    """S6: pieces without gaps while it streams, then the saved entry with the same text and the same call."""
    text = "All that is said here is seen while it is being said. " * 12
    one = agents.start({"text": text, "tokens_per_second": 100})
    row = agents.row(one)
    _, key = keys.create_key(project=row.project_id, name="viewer")
    with served.socket(f"/sessions/{name(row)}?deltas=1", key=key) as client:
        client.until("caught_up")
        workers.start()
        frames = []
        while not frames or frames[-1].get("entry", {}).get("kind") != "assistant_message":
            frames.append(client.next())
    deltas = [frame for frame in frames if frame["type"] == "delta"]
    entry = frames[-1]["entry"]
    assert [delta["n"] for delta in deltas] == list(range(len(deltas)))
    assert len(deltas) >= 5
    assert {(d["model_call"], d["block"], d["kind"]) for d in deltas} == {
        (entry["data"]["model_call"], 0, "text")
    }
    said = "".join(delta["text"] for delta in deltas)
    assert len(said) > 100
    assert entry["data"]["content"][0]["text"].startswith(said)


# --- tools and people ------------------------------------------------------------------------------------


def test_what_happens_to_a_tool_call_comes_once_and_after_its_commit(served: Web, workers: Workers) -> None:
    """A139: also where people decide and answer over the socket, by the rules of REST (H2)."""
    one = agents.start(
        {"tool_calls": [agents.call("dev_append", file=f"{uuid4()}")]},
        {
            "tool_calls": [
                agents.call("ask_user", questions=[{"text": "Sure?", "options": [{"label": "yes"}]}])
            ]
        },
        {"text": "done"},
        permissions=[{"tool": "dev_append", "then": "ask"}],
    )
    row = agents.row(one)
    _, key = keys.create_key(project=row.project_id, name="person")
    _, other_key = keys.create_key(project=row.project_id, name="somebody else")
    elsewhere = factories.session(config=row.config)
    workers.start()
    with (
        served.socket(f"/sessions/{name(row)}", key=key) as client,
        served.socket("/project?after=now", key=other_key) as other,
        served.socket(f"/sessions/{name(elsewhere)}", key=key) as beside,
    ):
        seen = _one(client)
        while seen[-1]["kind"] != "approval_requested":
            seen += _one(client)
        approval = seen[-1]["data"]["approval"]
        beside.say(type="decision", approval=approval, decision="allow", ref=0)
        assert (
            beside.until("error")[-1]["code"] == "not_found"
        )  # another session's socket decides nothing here
        client.say(type="decision", approval=approval, decision="maybe", ref=1)
        assert _reply(client, 1, seen)["code"] == "invalid"
        client.say(type="decision", approval=approval, decision="allow", ref=2)
        assert _reply(client, 2, seen)["approval"]["state"] == "allowed"
        other.say(type="decision", approval=approval, decision="deny", ref=3)
        assert _reply(other, 3, [])["code"] == "approval_decided"
        while seen[-1]["kind"] != "question_asked":
            seen += _one(client)
        question = seen[-1]["data"]["question"]
        client.say(type="answer", question=question, answers=[{"options": [0]}], ref=4)
        assert _reply(client, 4, seen)["question"]["state"] == "answered"
        while seen[-1]["kind"] != "turn_ended":
            seen += _one(client)
    assert [entry["seq"] for entry in seen] == list(range(1, len(seen) + 1))
    kinds = [entry["kind"] for entry in seen]
    for kind, times in {
        "approval_requested": 1,
        "approval_decided": 1,
        "tool_started": 1,
        "question_asked": 1,
        "question_answered": 1,
        "tool_result": 2,
        "assistant_message": 3,
    }.items():
        assert kinds.count(kind) == times, kinds


def _one(client: Client) -> list[dict[str, Any]]:
    """The next entry; it is there in the database when its frame is."""
    entry = client.entries(1)[0]["entry"]
    assert Entry.objects.filter(pk=ids.decode("ent", entry["id"])).exists()
    return [entry]


def _reply(client: Client, ref: int, seen: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a frame of ours; entries that come before it are kept."""
    while (frame := client.next()).get("ref") != ref:
        if frame["type"] == "entry":
            seen.append(frame["entry"])
    return frame
