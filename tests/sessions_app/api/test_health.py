"""What a balancer and an operator see, and the document of it all."""

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
import yaml
from django.core.management import CommandError, call_command
from django.db import OperationalError

from sessions_app import leases, own_connection, secrets
from sessions_app.models import ApiKey, Project, Worker
from tests.sessions_app.api.conftest import Api, problem


def test_a_live_process_says_so_without_a_key_and_without_the_database(
    anybody: Api, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        assert anybody.get("/healthz").json() == {"status": "ok"}


def test_without_workers_and_sweeper_it_is_not_ready_and_says_what_is_missing(anybody: Api) -> None:
    answer = anybody.get("/readyz")
    document = problem(answer, 503, "not_ready")
    assert "worker" in document["detail"]
    assert document["workers"] == 0
    assert "Retry-After" in answer


def test_a_worker_and_a_sweeper_make_it_ready(anybody: Api) -> None:
    worker = leases.register_worker(owner="w", capacity=1)
    with own_connection.connect(purpose="sweep") as sweeper:
        sweeper.execute("SELECT 1")
        answer = anybody.get("/readyz")
        assert answer.status_code == 200, answer.content
        assert answer.json()["workers"] == 1
        assert 0 <= answer.json()["sweeper_age"] < 30
        late = datetime.now(UTC) - timedelta(seconds=1)
        for gone in ({"draining": True}, {"draining": False, "expires_at": late}, {"dead": True}):
            Worker.objects.filter(pk=worker.pk).update(**gone)
            problem(anybody.get("/readyz"), 503, "not_ready")


def test_without_a_database_it_is_not_ready(anybody: Api) -> None:
    error = OperationalError("gone")
    error.__cause__ = psycopg.OperationalError("gone")
    with patch("sessions_app.readiness.check", side_effect=error):
        problem(anybody.get("/readyz"), 503, "database_unavailable")


def test_the_openapi_document_is_served_and_describes_every_path(anybody: Api) -> None:
    answer = anybody.get("/schema")
    assert answer["Content-Type"].startswith("application/yaml")
    document = yaml.safe_load(answer.content)
    assert document == anybody.get("/schema", Accept="application/json").json()
    assert set(document["paths"]) >= {
        "/api/v1/me",
        "/api/v1/artifacts/{artifact}/content",
        "/healthz",
        "/readyz",
    }
    known = set(document["components"]["schemas"])
    used = {word.split('"')[0] for word in json.dumps(document).split("#/components/schemas/")[1:]}
    assert used <= known
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (path, method)
            for status, response in operation["responses"].items():
                assert response["description"]
                assert status != "422"
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (path, method, status)


def test_an_answer_has_exactly_the_fields_that_the_document_says(api: Api) -> None:
    schemas = api.get("/schema", Accept="application/json").json()["components"]["schemas"]
    config = api.post("/configs", {"instructions": "x", "model": "scripted:x"}).json()
    seen = {
        "Me": api.get("/me").json(),
        "Key": api.get("/api-keys").json()["data"][0],
        "NewKey": api.post("/api-keys", {"name": "x"}).json(),
        "Config": config,
        "Profile": api.post("/profiles", {"name": "x", "config": config["id"]}).json(),
        "Secret": api.put("/secrets/x", {"value": "y"}).json(),
    }
    for name, answer in seen.items():
        assert set(answer) == set(schemas[name]["properties"]) == set(schemas[name]["required"]), name


def test_createkey_prints_a_key_that_works_in_each_form(db: None) -> None:
    def run(*words: str) -> str:
        out = io.StringIO()
        call_command("createkey", *words, stdout=out, stderr=io.StringIO())
        return out.getvalue().strip()

    assert Api(run()).get("/me").json()["role"] == "admin"
    assert Api(run("--quiet", "--role", "member", "--name", "x")).get("/me").json()["role"] == "member"
    found = json.loads(run("--json", "--project", "default"))
    assert Api(found["secret"]).get("/me").json()["key"]["id"] == found["id"]
    before = ApiKey.objects.count()
    with pytest.raises(CommandError, match="nowhere"):
        run("--project", "nowhere")
    assert ApiKey.objects.count() == before


def test_setsecret_reads_the_value_from_standard_input(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-secret\n"))
    out = io.StringIO()
    call_command("setsecret", "openai-prod", stdout=out)
    assert out.getvalue() == "stored openai-prod\n"
    assert secrets.reveal(Project.objects.get(name="default").pk, "openai-prod") == "sk-secret"
    for name, value in (("openai prod", "x"), ("x", "\n")):
        monkeypatch.setattr("sys.stdin", io.StringIO(value))
        with pytest.raises(CommandError):
            call_command("setsecret", name)
