"""Idempotency-Key: one effect for equal requests, and the first answer again."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.test import Client

from sessions_app import idempotency, ids
from sessions_app.api import problems
from sessions_app.idempotency import Answer
from sessions_app.models import ApiKey, IdempotencyRecord, Project, Secret
from tests.sessions_app.api.conftest import Api, problem

DOCUMENT = {"instructions": "x", "model": "scripted:x"}


def create(api: Api, key: str, **changes: Any) -> Any:
    return api.post("/api-keys", {"name": "made", **changes}, Idempotency_Key=key)


def test_the_same_request_gets_the_first_answer_again(api: Api) -> None:
    """I4, A141: same status, same body, marked as a replay, one effect."""
    first, again = create(api, "k"), create(api, "k")
    assert (first.status_code, again.status_code) == (201, 201)
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert again.content == first.content
    assert ApiKey.objects.filter(name="made").count() == 1


def test_the_order_of_fields_and_white_space_make_no_other_request(api: Api) -> None:
    first = api.post("/api-keys", b'{"name": "made", "role": "admin"}', Idempotency_Key="k")
    again = api.post("/api-keys", b'{ "role":"admin","name":"made" }', Idempotency_Key="k")
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()


def test_another_request_with_the_key_is_a_conflict_and_stores_nothing(api: Api) -> None:
    """I4, A141: nothing of the changed request is stored."""
    create(api, "k")
    problem(create(api, "k", name="other"), 409, "idempotency_conflict")
    problem(create(api, "k", role="admin"), 409, "idempotency_conflict")
    assert not ApiKey.objects.filter(name="other").exists()


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "\u00e9", "a\tb", "\u20ac"])
def test_malformed_keys_are_400_before_any_effect(api: Api, key: str) -> None:
    problem(create(api, key), 400, "invalid")
    assert not ApiKey.objects.filter(name="made").exists()


def test_the_longest_key_is_taken(api: Api) -> None:
    assert create(api, "!" + "x" * 253 + "~").status_code == 201


def test_a_key_belongs_to_its_holder_and_operation(
    api: Api, other_api: Api, new_api: Callable[..., Api]
) -> None:
    """C120: the same key of another tenant, another key holder or on another path is another request."""
    found = [create(client, "k") for client in (api, other_api, new_api("ours"))]
    assert [answer.status_code for answer in found] == [201, 201, 201]
    assert len({answer.json()["id"] for answer in found}) == 3
    assert not any("Idempotency-Replayed" in answer for answer in found)
    assert api.post("/configs", DOCUMENT, Idempotency_Key="k").status_code == 201


def test_one_user_in_two_projects_is_two_holders(db: None) -> None:
    """C120"""
    client = Client()
    client.force_login(User.objects.create_user("ada", is_staff=True))
    made = []
    for name in ("one", "two"):
        project = ids.encode("prj", Project.objects.create(name=name).pk)
        headers = {"Tenure-Project": project, "Idempotency-Key": "k"}
        answer = client.post(
            "/api/v1/api-keys", {"name": "x"}, content_type="application/json", headers=headers
        )
        made.append(answer.json()["id"])
    assert len(set(made)) == 2


def test_errors_are_not_stored_so_the_key_can_be_used_again(api: Api) -> None:
    """I4: only answers of executed effects are kept."""
    problem(create(api, "k", role="owner"), 400, "invalid")
    assert create(api, "k").status_code == 201
    config = api.post("/configs", DOCUMENT).json()["id"]
    api.post("/profiles", {"name": "p", "config": config})
    problem(
        api.post("/profiles", {"name": "p", "config": config}, Idempotency_Key="p"), 409, "profile_exists"
    )
    profile = api.get("/profiles").json()["data"][0]["id"]
    api.delete(f"/profiles/{profile}")
    assert api.post("/profiles", {"name": "p", "config": config}, Idempotency_Key="p").status_code == 201


def test_the_text_of_a_new_key_is_not_readable_in_the_stored_answer(api: Api) -> None:
    text = create(api, "k").json()["secret"]
    record = IdempotencyRecord.objects.get(key="k")
    assert text not in str(record.body)
    assert create(api, "k").json()["secret"] == text


def test_answers_are_kept_for_the_retention_and_then_dropped(api: Api) -> None:
    create(api, "old")
    create(api, "young")
    IdempotencyRecord.objects.filter(key="old").update(created_at="2020-01-01T00:00:00Z")
    assert idempotency.delete_expired() == 1
    assert list(IdempotencyRecord.objects.values_list("key", flat=True)) == ["young"]


# --- real connections ------------------------------------------------------------------------------------


@pytest.fixture
def project(transactional_db: None) -> Project:
    return Project.objects.create(name="idempotency")


def once(project: Project, effect: Callable[[], Answer], *, key: str = "k", request: str = "r") -> Answer:
    return idempotency.once(holder="key:1", operation="POST /x", key=key, request=request, effect=effect)


def store(project: Project, name: str) -> Answer:
    Secret.objects.create(project=project, name=name, ciphertext="x")
    return Answer(201, {"name": name})


def test_of_fifty_twins_one_executes_and_the_others_get_its_answer(project: Project) -> None:
    """C117: one effect; the others get the stored answer or 409 in progress, never anything else."""
    ready = threading.Barrier(50, timeout=30)

    def twin(number: int) -> Any:
        ready.wait()
        try:
            return once(project, lambda: store(project, f"s{number}"))
        except idempotency.IdempotencyInProgress as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(twin, range(50)))
    answers = [item for item in found if isinstance(item, Answer)]
    assert Secret.objects.filter(project=project).count() == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert len({str(answer.body) for answer in answers}) == 1
    assert len(answers) + sum(isinstance(item, idempotency.IdempotencyInProgress) for item in found) == 50


@pytest.fixture
def held_twin(project: Project) -> Iterator[threading.Event]:
    """A twin that executes until the event is set."""
    started, finish = threading.Event(), threading.Event()

    def effect() -> Answer:
        answer = store(project, "slow")
        started.set()
        assert finish.wait(20)
        return answer

    def run() -> None:
        try:
            once(project, effect)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(10)
    yield finish
    finish.set()
    thread.join(20)


def test_a_twin_waits_for_a_while_and_is_then_told_to_come_back(
    project: Project, held_twin: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C117, I4: 409 `idempotency_in_progress` with Retry-After, in bounded time."""
    monkeypatch.setattr(idempotency, "TWIN_WAIT", 0.2)
    began = time.monotonic()
    with pytest.raises(idempotency.IdempotencyInProgress) as caught:
        once(project, lambda: store(project, "second"))
    assert time.monotonic() - began < 5
    assert (caught.value.status, caught.value.code) == (409, "idempotency_in_progress")
    told = problems.explain(caught.value)
    assert told is not None
    assert int(told.headers["Retry-After"]) >= 1
    assert list(Secret.objects.filter(project=project)) == []


def test_a_twin_that_waits_gets_the_answer_and_waits_for_nothing_else_differently(
    project: Project, held_twin: threading.Event
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        before = cursor.fetchone()
    threading.Timer(0.2, held_twin.set).start()
    answer = once(project, lambda: store(project, "second"))
    assert answer == Answer(201, {"name": "slow"}, replayed=True)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == before


def test_a_failed_effect_leaves_neither_effect_nor_record(project: Project) -> None:
    """I4, C118: both are one transaction."""

    def effect() -> Answer:
        store(project, "half")
        raise OperationalError("the server went away")

    with pytest.raises(OperationalError):
        once(project, effect)
    assert not Secret.objects.filter(project=project).exists()
    assert not IdempotencyRecord.objects.exists()
    assert once(project, lambda: store(project, "half")) == Answer(201, {"name": "half"})


_PROCESS = """
    import os, signal, sys
    import django
    django.setup()
    from sessions_app import idempotency
    from sessions_app.idempotency import Answer
    from sessions_app.models import Project, Secret

    at, key = sys.argv[1:]
    project = Project.objects.get(name="idempotency")

    def effect():
        Secret.objects.create(project=project, name=key, ciphertext="x")
        if at == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        return Answer(201, {"name": key})

    answer = idempotency.once(holder="key:1", operation="POST /x", key=key, request="r", effect=effect)
    if at == "after":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.processes
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_server_killed_around_the_commit_leaves_neither_or_both(
    project: Project, process_environment: dict[str, str], at: str
) -> None:
    """C118: killed before the commit the retry does the work, killed after it the retry is a replay."""
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROCESS), at, at],
        env=process_environment | {"PYTHONPATH": str(Path.cwd())},
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert Secret.objects.filter(project=project).count() == (0 if at == "before" else 1)
    answer = once(project, lambda: store(project, at), key=at)
    assert answer == Answer(201, {"name": at}, replayed=at == "after")
    assert Secret.objects.filter(project=project, name=at).count() == 1
