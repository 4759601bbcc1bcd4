"""Secrets go in and never come out."""

import dataclasses
from typing import Any

import pytest

from sessions_app import secrets
from sessions_app.models import Secret
from tests.sessions_app.api.conftest import Api, problem


def test_a_secret_is_stored_encrypted_and_never_returned(api: Api) -> None:
    made = api.put("/secrets/openai-prod", {"value": "sk-very-secret"})
    assert made.status_code == 201, made.content
    assert set(made.json()) == {"name", "created_at", "updated_at"}
    replaced = api.put("/secrets/openai-prod", {"value": "sk-other"})
    assert replaced.status_code == 200
    assert replaced.json()["updated_at"] > made.json()["updated_at"]
    assert replaced.json()["created_at"] == made.json()["created_at"]
    for answer in (made, replaced, api.get("/secrets"), api.get("/secrets/openai-prod")):
        assert b"sk-" not in answer.content
    assert "sk-" not in Secret.objects.get().ciphertext
    assert secrets.reveal(api.project.pk, "openai-prod") == "sk-other"
    assert api.get("/secrets").json()["data"] == [api.get("/secrets/openai-prod").json()]
    assert api.delete("/secrets/openai-prod").status_code == 204
    problem(api.get("/secrets/openai-prod"), 404, "not_found")
    problem(api.delete("/secrets/openai-prod"), 404, "not_found")


@pytest.mark.parametrize("name", [".x", "a%20b", "x" * 101, "%00", "a%C3%A9"])
def test_names_that_no_config_could_use_are_refused(api: Api, name: str) -> None:
    problem(api.put(f"/secrets/{name}", {"value": "x"}), 400, "invalid")
    problem(api.get(f"/secrets/{name}"), 404, "not_found")
    problem(api.delete(f"/secrets/{name}"), 404, "not_found")


def test_a_value_that_would_be_changed_by_storing_is_refused_without_being_repeated(api: Api) -> None:
    answer = api.put("/secrets/x", b'{"value": "sk-\\u0000"}')
    problem(answer, 400, "invalid")
    assert b"sk-" not in answer.content
    for value in ("", 5, None, "x" * 65537):
        answer = api.put("/secrets/x", {"value": value})
        problem(answer, 400, "invalid")
        assert b"xxxx" not in answer.content


def test_without_a_key_ring_a_deployment_says_so(api: Api, settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, secret_keys=(), debug=False)
    problem(api.put("/secrets/x", {"value": "y"}), 503, "no_secret_keys")
