"""Configs and profiles over the API."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from sessions_app import configs, ids
from sessions_app.models import AgentConfig, Project, Secret
from tests.sessions_app.api.conftest import Api, problem

DOCUMENT = {"instructions": "Count.", "model": "scripted:x", "script": {"replies": [{"text": "one"}]}}
YAML = b"""
instructions: Count.
model: {name: x, provider: scripted}
script: {replies: [{text: one}]}
"""


def test_the_same_document_in_json_and_yaml_is_one_config(api: Api) -> None:
    made = api.post("/configs", DOCUMENT)
    assert made.status_code == 201, made.content
    assert set(made.json()) == {"id", "document", "warnings", "created_at"}
    assert made.json()["document"]["model"] == {"provider": "scripted", "name": "x"}
    for media_type in (
        "application/yaml",
        "text/yaml",
        "application/x-yaml",
        "application/yaml; charset=utf-8",
    ):
        known = api.post("/configs", YAML, content_type=media_type)
        assert known.status_code == 200, known.content
        assert known.json() == made.json()
    assert api.get(f"/configs/{made.json()['id']}").json() == made.json()


def test_mistakes_in_a_document_come_with_their_places(api: Api) -> None:
    broken = DOCUMENT | {"tools": {"a/b": {}}, "mode": 1, "limits": {"turn": {"model_calls": "many"}}}
    document = problem(api.post("/configs", broken), 400, "invalid_config")
    assert {item["path"] for item in document["errors"]} >= {"/mode", "/limits/turn/model_calls"}
    assert AgentConfig.objects.count() == 0


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"a: [", "application/yaml"),
        (b"a: 1\na: 2", "application/yaml"),
        (b"!!python/object/apply:os.system ['true']", "application/yaml"),
        (b'{"a": NaN}', "application/json"),
        (b'{"a": 1, "a": 2}', "application/json"),
        (b"\xff", "application/yaml"),
        (b"[" * 50_000, "application/json"),
        (b"- " * 5_000, "application/yaml"),
    ],
)
def test_unreadable_documents_are_400(api: Api, body: bytes, media_type: str) -> None:
    problem(api.post("/configs", body, content_type=media_type), 400, "malformed")


@pytest.mark.parametrize("value", [10**300, 2**64, -(2**70), 1e300])
def test_numbers_that_fit_nowhere_are_400_not_500(api: Api, value: Any) -> None:
    document = DOCUMENT | {"output_schema": {"type": "object", "properties": {"n": {"maximum": value}}}}
    assert api.post("/configs", document).status_code in {201, 400}
    assert api.post("/configs", DOCUMENT | {"version": value}).status_code == 400


def test_names_that_this_deployment_lacks_are_warnings_of_the_moment(api: Api) -> None:
    document = {"instructions": "x", "model": {"provider": "openai", "name": "x", "credential": "prod"}}
    made = api.post("/configs", document)
    assert made.status_code == 201, made.content
    assert [item["code"] for item in made.json()["warnings"]] == ["unknown_secret"]
    Secret.objects.create(project=api.project, name="prod", ciphertext="x")
    assert api.get(f"/configs/{made.json()['id']}").json()["warnings"] == []


@pytest.mark.django_db(transaction=True)
def test_twins_that_store_one_document_at_once_meet_in_one_row() -> None:
    project = Project.objects.create(name="twins")

    def store(_: int) -> tuple[Any, bool]:
        try:
            stored = configs.create_config(project=project.pk, document=DOCUMENT)
            return stored.row.pk, stored.is_new
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(store, range(24)))
    assert len({number for number, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


@pytest.fixture
def two(api: Api) -> tuple[str, str]:
    first = api.post("/configs", DOCUMENT).json()["id"]
    second = api.post("/configs", DOCUMENT | {"instructions": "Count on."}).json()["id"]
    return first, second


def test_a_profile_points_moves_and_keeps_its_history(api: Api, two: tuple[str, str]) -> None:
    made = api.post("/profiles", {"name": "Counter", "config": two[0]})
    assert made.status_code == 201, made.content
    profile = made.json()
    assert set(profile) == {"id", "name", "config", "version", "created_at", "updated_at"}
    path = f"/profiles/{profile['id']}"
    moved = api.post(f"{path}/config", {"config": two[1], "expected_config": two[0]})
    assert (moved.status_code, moved.json()["version"], moved.json()["config"]) == (200, 2, two[1])
    assert moved.json()["updated_at"] > profile["updated_at"]
    late = problem(
        api.post(f"{path}/config", {"config": two[0], "expected_config": two[0]}), 409, "profile_moved"
    )
    assert late["current"] == moved.json() == api.get(path).json()
    same = api.post(f"{path}/config", {"config": two[1], "expected_config": two[1]})
    assert (same.status_code, same.json()["version"]) == (200, 2)
    versions = api.get(f"{path}/versions").json()
    assert [(item["version"], item["config"]) for item in versions["data"]] == [(2, two[1]), (1, two[0])]
    assert versions["data"][0]["actor"]["kind"] == "key"
    assert versions["next_cursor"] is None


def test_profile_names_are_unique_until_deleted(api: Api, two: tuple[str, str]) -> None:
    made = api.post("/profiles", {"name": "Counter", "config": two[0]}).json()
    taken = problem(api.post("/profiles", {"name": "counter", "config": two[0]}), 409, "profile_exists")
    assert taken["current"] == made
    other = api.post("/profiles", {"name": "Other", "config": two[0]}).json()
    problem(api.patch(f"/profiles/{other['id']}", {"name": "COUNTER"}), 409, "profile_exists")
    assert api.patch(f"/profiles/{made['id']}", {"name": "COUNTER"}).json()["name"] == "COUNTER"
    assert api.delete(f"/profiles/{made['id']}").status_code == 204
    problem(api.get(f"/profiles/{made['id']}"), 404, "not_found")
    problem(api.delete(f"/profiles/{made['id']}"), 404, "not_found")
    assert api.post("/profiles", {"name": "counter", "config": two[0]}).status_code == 201


def test_a_profile_needs_a_config_of_its_project_and_a_name_that_is_no_id(
    api: Api, other_api: Api, two: tuple[str, str]
) -> None:
    theirs = other_api.post("/configs", DOCUMENT).json()["id"]
    for config in (theirs, ids.encode("cfg", ids.new_id())):
        problem(api.post("/profiles", {"name": "x", "config": config}), 404, "not_found")
    for name in ("", "  ", "x" * 101, "prf_" + "0" * 26):
        problem(api.post("/profiles", {"name": name, "config": two[0]}), 400, "invalid")
    for wrong in ("cfg_", "prf_" + "0" * 26, "cfg_" + "8" * 26, "cfg_" + "U" * 26, 7, None):
        problem(api.post("/profiles", {"name": "x", "config": wrong}), 400, "invalid")


def test_lists_page_by_cursor_without_gaps_or_repeats(api: Api, two: tuple[str, str]) -> None:
    made = [api.post("/profiles", {"name": f"p{n}", "config": two[0]}).json()["id"] for n in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = api.get(f"/profiles?limit=3{cursor}").json()
        seen += [item["id"] for item in page["data"]]
        if page["next_cursor"] is None:
            break
        assert len(page["next_cursor"]) <= 1024
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == made[::-1]


@pytest.mark.parametrize("cursor", ["x", "e30", "W10", "%00", "x" * 1025, "WyJwcm9maWxlcyIsIDEsIDJd", "é"])
def test_malformed_cursors_are_400(api: Api, cursor: str) -> None:
    assert api.get(f"/profiles?cursor={cursor}").status_code == 400
    assert api.get(f"/profiles?cursor={cursor}").json()["errors"][0]["path"] == "/cursor"


def test_a_cursor_of_another_list_is_an_error(api: Api, two: tuple[str, str]) -> None:
    for n in range(3):
        api.post("/profiles", {"name": f"p{n}", "config": two[0]})
    cursor = api.get("/profiles?limit=1").json()["next_cursor"]
    problem(api.get(f"/artifacts?cursor={cursor}"), 400, "invalid_cursor")


def test_a_list_takes_the_same_number_of_queries_however_long_it_is(
    api: Api, two: tuple[str, str], django_assert_num_queries: Any
) -> None:
    for n in range(12):
        with django_assert_num_queries(2):  # the key, the page
            assert len(api.get("/profiles?limit=200").json()["data"]) == n
        api.post("/profiles", {"name": f"p{n}", "config": two[0]})


def test_objects_of_another_project_are_the_same_404_as_missing_ones(
    api: Api, other_api: Api, two: tuple[str, str]
) -> None:
    profile = api.post("/profiles", {"name": "ours", "config": two[0]}).json()["id"]
    key = api.get("/api-keys").json()["data"][0]["id"]
    file = api.post("/artifacts?name=a", b"x", content_type="text/plain").json()["id"]
    api.put("/secrets/ours", {"value": "x"})
    move = {"config": two[0], "expected_config": two[0]}
    asked = [
        ("GET", "/configs/{}", two[0], None),
        ("GET", "/profiles/{}", profile, None),
        ("PATCH", "/profiles/{}", profile, {"name": "mine"}),
        ("POST", "/profiles/{}/config", profile, move),
        ("GET", "/profiles/{}/versions", profile, None),
        ("DELETE", "/profiles/{}", profile, None),
        ("GET", "/api-keys/{}", key, None),
        ("DELETE", "/api-keys/{}", key, None),
        ("GET", "/artifacts/{}", file, None),
        ("GET", "/artifacts/{}/content", file, None),
        ("GET", "/secrets/{}", "ours", None),
        ("DELETE", "/secrets/{}", "ours", None),
    ]
    for method, path, there, body in asked:
        missing = "none" if there == "ours" else ids.encode(there[:3], ids.new_id())
        foreign = problem(other_api.send(method, path.format(there), body), 404, "not_found")
        absent = problem(
            other_api.send(method, path.format(missing), body),
            404,
            "not_found",
        )
        malformed = problem(other_api.send(method, path.format(there + "!"), body), 404, "not_found")
        for document in (foreign, absent, malformed):
            document.pop("request_id")
        assert foreign == absent, path
        assert malformed["code"] == foreign["code"]
    assert api.get(f"/profiles/{profile}").status_code == 200
    assert other_api.get("/profiles").json()["data"] == other_api.get("/artifacts").json()["data"] == []
    assert json.dumps(other_api.get("/secrets").json()) == '{"data": [], "next_cursor": null}'
