"""Skills over the API: written as a whole, read by version, never changed."""

from typing import Any

import pytest

from sessions_app import ids
from tests import factories
from tests.sessions_app.api.conftest import Api, ok, problem
from tools_app import skills

TEXT = {"description": "How we write release notes.", "instructions": "Write them short."}


def test_a_skill_is_written_as_a_whole_and_read_by_version(api: Api) -> None:
    made = ok(api.put("/skills/release-notes", TEXT), 201)
    assert set(made) == {
        "name",
        "version",
        "description",
        "instructions",
        "created_by",
        "reviewed_by",
        "created_at",
    }
    assert (made["name"], made["version"], made["reviewed_by"]) == ("release-notes", 1, None)
    assert (made["created_by"]["kind"], made["instructions"]) == ("key", "Write them short.")
    body = TEXT | {"instructions": "Longer.", "actor": {"id": "u1", "name": "Ada"}}
    second = ok(api.put("/skills/release-notes", body))
    assert (second["version"], second["created_by"]["name"]) == (2, "Ada")
    assert ok(api.put("/skills/release-notes", body)) == second  # the same text makes no version
    assert ok(api.get("/skills/release-notes")) == second
    assert ok(api.get("/skills/release-notes?version=1")) == made
    problem(api.get("/skills/release-notes?version=3"), 404, "not_found")


def test_lists_show_the_newest_and_leave_the_texts_out(api: Api) -> None:
    ok(api.put("/skills/a", TEXT), 201)
    ok(api.put("/skills/b", TEXT), 201)
    ok(api.put("/skills/a", TEXT | {"instructions": "Longer."}))
    first = ok(api.get("/skills?limit=1"))
    assert [(row["name"], row["version"]) for row in first["data"]] == [("a", 2)]
    assert "instructions" not in first["data"][0]
    rest = ok(api.get(f"/skills?cursor={first['next_cursor']}"))
    assert [(row["name"], row["version"]) for row in rest["data"]] == [("b", 1)]
    versions = ok(api.get("/skills/a/versions"))["data"]
    assert [row["version"] for row in versions] == [2, 1]
    assert "instructions" not in versions[0]


def test_a_deleted_skill_is_gone_and_its_numbers_are_not_used_again(api: Api) -> None:
    ok(api.put("/skills/a", TEXT), 201)
    assert api.delete("/skills/a").status_code == 204
    for answer in (
        api.get("/skills/a"),
        api.get("/skills/a?version=1"),
        api.get("/skills/a/versions"),
        api.delete("/skills/a"),
    ):
        problem(answer, 404, "not_found")
    assert ok(api.get("/skills"))["data"] == []
    assert ok(api.put("/skills/a", TEXT), 201)["version"] == 2


def test_skills_of_another_project_do_not_exist(api: Api, other_api: Api) -> None:
    ok(api.put("/skills/a", TEXT), 201)
    problem(other_api.get("/skills/a"), 404, "not_found")
    problem(other_api.delete("/skills/a"), 404, "not_found")
    assert ok(other_api.put("/skills/a", TEXT), 201)["version"] == 1


@pytest.mark.parametrize(
    ("name", "change", "path"),
    [
        ("a@2", {}, "/name"),
        ("x" * 101, {}, "/name"),
        ("a", {"description": None}, "/description"),
        ("a", {"description": "  "}, "/description"),
        ("a", {"instructions": ""}, "/instructions"),
        ("a", {"instructions": "x" * 60_001}, "/instructions"),
        ("a", {"instruction": "x"}, "/instruction"),
    ],
)
def test_what_is_no_skill_is_refused_with_its_place(
    api: Api, name: str, change: dict[str, Any], path: str
) -> None:
    found = problem(api.put(f"/skills/{name}", TEXT | change), 400, "invalid")
    assert path in [error["path"] for error in found["errors"]]
    problem(api.get(f"/skills/{name}"), 404, "not_found")


def test_who_wrote_and_who_reviewed_is_shown(api: Api) -> None:
    agent = {"kind": "system", "id": ids.encode("ses", ids.new_id()), "name": "an agent"}
    skills.put_skill(project=api.project.pk, name="a", actor=agent, reviewed_by=factories.ACTOR, **TEXT)
    found = ok(api.get("/skills/a"))
    assert (found["created_by"], found["reviewed_by"]) == (agent, factories.ACTOR)
