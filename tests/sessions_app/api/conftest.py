"""Clients of the API: with a key of a fresh project, of another one, and nobody's."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from sessions_app import ids, keys
from sessions_app.models import AgentConfig, KeyRole, Project, Session
from tests import factories


class Api:
    """The test client with a bearer key, below /api/v1; bodies are JSON unless they are bytes."""

    def __init__(self, key: str | None = None, project: Project | None = None) -> None:
        self.key = key
        self.project = project
        self.client = Client(raise_request_exception=False)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        content_type = headers.pop("content_type", "application/json")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key is not None:
            named.setdefault("Authorization", f"Bearer {self.key}")
        target = path if path.startswith(("/api/", "/healthz", "/readyz")) else f"/api/v1{path}"
        if body is None:
            return self.client.generic(method, target, headers=named)
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.client.generic(method, target, body, content_type=content_type, headers=named)

    def get(self, path: str, **headers: str) -> Any:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("POST", path, body, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("PATCH", path, body, **headers)

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("PUT", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self.send("DELETE", path, **headers)


@pytest.fixture
def new_api(db: None) -> Callable[..., Api]:
    def make(name: str, role: str = KeyRole.ADMIN) -> Api:
        project, _ = Project.objects.get_or_create(name=name)
        _, text = keys.create_key(project=project.pk, name=f"key of {name}", role=role)
        return Api(text, project)

    return make


@pytest.fixture
def api(new_api: Callable[..., Api]) -> Api:
    return new_api("ours")


@pytest.fixture
def other_api(new_api: Callable[..., Api]) -> Api:
    return new_api("theirs")


@pytest.fixture
def anybody(db: None) -> Api:
    return Api()


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer that has to be one."""
    assert response["Content-Type"] == "application/problem+json", response.content[:300]
    document = response.json()
    assert (response.status_code, document["status"], document["code"]) == (status, status, code), document
    assert set(document) >= {"type", "title", "status", "code", "detail", "request_id", "errors"}
    assert document["request_id"] == response["X-Request-Id"] != ""
    assert ("current" in document) == (status == 409)
    return document


@pytest.fixture
def config(api: Api) -> AgentConfig:
    return factories.config(project=api.project)


@pytest.fixture
def session(config: AgentConfig) -> Session:
    return factories.session(config=config)


def of(session: Session, rest: str = "") -> str:
    return f"/sessions/{ids.encode('ses', session.pk)}{rest}"


def ok(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.content
    return answer.json()
