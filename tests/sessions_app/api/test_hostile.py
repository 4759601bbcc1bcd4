"""What somebody sends who wants to find a page of HTML, a crash, or a request that costs more than it should."""

import gzip
import json
import logging
import time

import pytest
from django.conf import settings
from django.test import Client

from config import logs
from sessions_app.agent_config.shape import MAX_PROBLEMS
from sessions_app.models import ApiKey, Artifact
from tests.sessions_app.api.conftest import Api, problem


def test_problems_of_the_schema_are_json_whatever_its_answers_are(anybody: Api) -> None:
    problem(anybody.post("/schema", {}), 405, "method_not_allowed")
    problem(anybody.post("/schema", {}, Accept="application/yaml"), 405, "method_not_allowed")
    problem(anybody.get("/schema", Accept="text/html"), 406, "not_acceptable")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_wrong_method_of_a_health_check_is_no_matter_of_csrf(path: str) -> None:
    problem(Client(enforce_csrf_checks=True).post(path), 405, "method_not_allowed")


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_times_that_no_calendar_holds_in_utc_are_refused_with_their_place(api: Api, moment: str) -> None:
    document = problem(api.post("/api-keys", {"name": "k", "expires_at": moment}), 400, "invalid")
    assert document["errors"][0]["path"] == "/expires_at"


def test_a_key_that_stands_twice_among_many_is_found_at_once(api: Api) -> None:
    body = b"{" + b",".join(b'"%d":1' % number for number in range(200_000)) + b',"199999":2}'
    begun = time.process_time()
    document = problem(api.post("/api-keys", body), 400, "malformed")
    assert document["errors"][0] == {
        "path": "/199999",
        "code": "duplicate_key",
        "message": "stands twice in one object",
    }
    assert time.process_time() - begun < 10  # it took minutes


def test_an_answer_lists_the_first_of_very_many_mistakes(api: Api) -> None:
    answer = api.post("/api-keys", {"name": "k", **{f"x{number}": 1 for number in range(5000)}})
    errors = problem(answer, 400, "invalid")["errors"]
    assert len(errors) == MAX_PROBLEMS + 1
    assert errors[-1] == {
        "path": "",
        "code": "too_many",
        "message": f"and {5000 - MAX_PROBLEMS} more problems",
    }


def test_compressed_bodies_are_415_and_nothing_is_stored(api: Api) -> None:
    before = ApiKey.objects.count()
    body = gzip.compress(json.dumps({"name": "k"}).encode())
    for path, kind in (
        ("/api-keys", "application/json"),
        ("/configs", "application/json"),
        ("/configs", "application/yaml"),
        ("/artifacts", "text/plain"),
    ):
        answer = api.post(path, body, content_type=kind, Content_Encoding="gzip")
        problem(answer, 415, "unsupported_media_type")
    assert ApiKey.objects.count() == before
    assert not Artifact.objects.exists()


def test_people_who_open_the_address_alone_find_the_console(anybody: Api) -> None:
    assert anybody.client.get("/")["Location"] == "/login?next=/"
    assert anybody.client.get("/admin")["Location"] == "/admin/"


def test_a_line_of_django_is_logged_by_one_handler_only() -> None:
    """Django brings one of its own for `django`, which is silent unless DEBUG is on."""
    assert logs.configure(level="INFO", as_json=False)["loggers"]["django"]["handlers"] == []
    assert settings.LOGGING["loggers"]["django"]["handlers"] == []
    assert logging.getLogger("django").handlers == []
