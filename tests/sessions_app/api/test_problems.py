"""Every error is a problem document, whoever raised it."""

import json
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from django.db import DataError, IntegrityError, OperationalError
from django.test import Client, RequestFactory

from sessions_app import ids
from sessions_app.api import problems
from tests import factories
from tests.sessions_app.api.conftest import Api, problem


def test_unknown_paths_are_problems_also_without_a_key(api: Api, anybody: Api) -> None:
    for client in (api, anybody):
        for path in ("/nothing", "/me/", "/api/v2/me", "/profiles/x/y/z"):
            problem(client.get(path), 404, "not_found")
    assert "text/html" in anybody.client.get("/nothing-at-all")["Content-Type"]


def test_wrong_methods_are_405_and_name_the_right_ones(api: Api) -> None:
    answer = api.delete("/me")
    problem(answer, 405, "method_not_allowed")
    assert "GET" in answer["Allow"]
    problem(api.post("/healthz"), 405, "method_not_allowed")


def test_what_cannot_be_answered_in_is_406(api: Api) -> None:
    session = ids.encode("ses", factories.session(config=factories.config(project=api.project)).pk)
    for path in ("/me", f"/sessions/{session}/wait?for=idle", f"/sessions/{session}/export"):
        problem(api.get(path, Accept="text/html"), 406, "not_acceptable")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""]
)
def test_other_bodies_than_json_are_415(api: Api, content_type: str) -> None:
    problem(api.post("/api-keys", b"name=x", content_type=content_type), 415, "unsupported_media_type")


def test_a_request_id_of_the_client_is_kept_where_it_is_a_plain_word(api: Api) -> None:
    assert api.get("/me", X_Request_Id="trace-1.2_3")["X-Request-Id"] == "trace-1.2_3"
    assert api.get("/me", X_Request_Id='a"b<script>')["X-Request-Id"].startswith("req_")
    assert api.get("/me", X_Request_Id="x" * 101)["X-Request-Id"].startswith("req_")
    assert api.get("/me")["X-Request-Id"] != api.get("/me")["X-Request-Id"]


def test_unknown_fields_are_errors_with_their_place(api: Api) -> None:
    document = problem(api.post("/api-keys", {"name": "x", "rôle": "admin", "a/b": 1}), 400, "invalid")
    assert document["errors"] == [
        {"path": "/rôle", "code": "unknown_field", "message": "unknown field"},
        {"path": "/a~1b", "code": "unknown_field", "message": "unknown field"},
    ]


@pytest.mark.parametrize("body", [[], "text", 5, None, True])
def test_a_body_that_is_no_object_is_400(api: Api, body: Any) -> None:
    document = problem(api.post("/api-keys", json.dumps(body).encode()), 400, "invalid")
    assert document["errors"][0]["path"] == ""


def test_types_are_not_bent(api: Api) -> None:
    document = problem(
        api.post("/api-keys", {"name": 5, "role": "owner", "expires_at": "soon"}), 400, "invalid"
    )
    assert [(item["path"], item["code"]) for item in document["errors"]] == [
        ("/name", "wrong_type"),
        ("/role", "not_allowed"),
        ("/expires_at", "malformed"),
    ]


def test_unknown_and_repeated_parameters_are_400(api: Api) -> None:
    assert problem(api.get("/profiles?limt=5"), 400, "invalid")["errors"][0]["path"] == "/limt"
    problem(api.get("/profiles?limit=5&limit=6"), 400, "invalid")
    problem(api.get("/profiles?limit=0"), 400, "invalid")
    problem(api.get("/profiles?limit=201"), 400, "invalid")
    problem(api.get("/profiles?limit=%00"), 400, "invalid")
    problem(api.get("/profiles?limit=" + "9" * 5000), 400, "invalid")


def _broken(state: str | None) -> OperationalError:
    cause = psycopg.OperationalError("gone")
    if state is not None:
        cause = psycopg.errors.lookup(state)("gone")
    error = OperationalError("gone")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("state", [None, "57P01", "08006", "40001", "40P01", "55P03"])
def test_a_database_that_is_away_is_503_with_retry_after(api: Api, state: str | None) -> None:
    """C71: connection errors, shutdowns, deadlocks and serialisation failures may pass."""
    with patch("sessions_app.access.by_key", side_effect=_broken(state)):
        answer = api.get("/me")
    problem(answer, 503, "database_unavailable")
    assert int(answer["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("kind", "state", "status"),
    [(DataError, "22P05", 400), (DataError, "22021", 400), (IntegrityError, "23505", 409)],
)
def test_what_the_database_refuses_for_good_is_the_requests_fault(
    api: Api, kind: type[Exception], state: str, status: int
) -> None:
    """C71: classes 22 and 23 are final; a client that repeats them gets the same 4xx."""
    error = kind("refused")
    error.__cause__ = psycopg.errors.lookup(state)("refused")
    with patch("sessions_app.profiles.profiles_of", side_effect=error):
        answer = api.get("/profiles")
    problem(answer, status, {400: "invalid", 409: "conflict"}[status])


def test_a_crash_of_ours_is_a_problem_without_its_traceback(api: Api, settings: Any) -> None:
    for debug in (False, True):
        settings.DEBUG = debug
        with patch("sessions_app.profiles.profiles_of", side_effect=RuntimeError("secret words")):
            answer = api.get("/profiles")
        problem(answer, 500, "internal_error")
        assert b"secret words" not in answer.content


def test_a_refused_host_is_a_problem(api: Api, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["tenure.example"]
    problem(api.get("/me", Host="evil.example"), 400, "malformed")


def test_a_csrf_failure_outside_drf_is_a_problem_under_the_api_only(db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    answer: Any = problems.csrf_failure(RequestFactory().post("/api/v1/other"), reason="no token")
    assert (answer.status_code, answer["Content-Type"]) == (403, problems.MEDIA_TYPE)
    assert json.loads(answer.content)["code"] == "csrf_failed"
    page = client.post("/admin/login/", {"username": "x"})
    assert page.status_code == 403
    assert page["Content-Type"].startswith("text/html")


def test_every_error_class_has_a_known_status_and_a_text() -> None:
    from sessions_app.errors import TenureError

    def below(kind: type[TenureError]) -> list[type[TenureError]]:
        return [kind] + [found for child in kind.__subclasses__() for found in below(child)]

    for kind in below(TenureError):
        assert kind.status in problems.CODES, kind
        assert kind.__doc__, kind


def test_the_reference_lists_every_code_once_and_no_422(anybody: Api) -> None:
    table = problems.code_table()
    codes = [code for code, _, _ in table]
    assert len(codes) == len(set(codes))
    assert {"idempotency_conflict", "idempotency_in_progress", "not_found", "session_archived"} <= set(codes)
    assert not [row for row in table if row[1] == 422 or not row[2]]
    text = anybody.get("/schema", Accept="application/json").json()["info"]["description"]
    assert all(f"| `{code}` | {status} |" in text for code, status, _ in table if code in codes)
