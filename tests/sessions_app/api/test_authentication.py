"""Who gets in, and where."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app import ids, keys
from sessions_app.models import ApiKey, Project
from tests.sessions_app.api.conftest import Api, problem


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "unauthenticated"),
        ("Basic dXNlcjpwYXNz", "unauthenticated"),
        ("Bearer", "invalid_key"),
        ("Bearer nonsense", "invalid_key"),
        ("Bearer tnk_" + "A" * 43, "invalid_key"),
        ("Bearer tnk_" + "A" * 42 + "\u00e9", "invalid_key"),
    ],
)
def test_without_a_good_key_it_is_401(anybody: Api, header: str | None, code: str) -> None:
    answer = anybody.get("/me") if header is None else anybody.get("/me", Authorization=header)
    problem(answer, 401, code)
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_expired_and_revoked_keys_are_401(api: Api) -> None:
    now = datetime.now(UTC)
    _, old = keys.create_key(project=api.project.pk, name="old", expires_at=now - timedelta(seconds=1))
    row, young = keys.create_key(project=api.project.pk, name="young", expires_at=now + timedelta(hours=1))
    problem(Api(old).get("/me"), 401, "invalid_key")
    assert Api(young).get("/me").status_code == 200
    path = f"/api-keys/{ids.encode('key', row.pk)}"
    assert api.delete(path).status_code == 204
    problem(Api(young).get("/me"), 401, "invalid_key")
    assert api.delete(path).status_code == 204  # repeating it changes nothing
    assert api.get(path).json()["revoked_at"] is not None


def test_only_the_hash_of_a_key_is_stored(api: Api) -> None:
    row = ApiKey.objects.get(project=api.project)
    assert api.key not in {str(value) for value in vars(row).values()}
    assert api.key.startswith(row.prefix)
    assert len(row.prefix) < len(api.key) / 3


@pytest.mark.parametrize("name", ["key", "api_key", "access_token", "anything"])
def test_a_key_in_the_url_is_refused_even_beside_a_good_header(api: Api, name: str) -> None:
    """C139: a long-lived key in a query string is refused."""
    problem(api.get(f"/me?{name}={api.key}"), 401, "key_in_url")
    problem(Api().get(f"/me?{name}={api.key}"), 401, "key_in_url")


def test_members_may_not_manage_keys(new_api: Any) -> None:
    member = new_api("ours", role="member")
    problem(member.get("/api-keys"), 403, "forbidden")
    problem(member.post("/api-keys", {"name": "x", "role": "admin"}), 403, "forbidden")
    assert member.get("/me").json()["role"] == "member"


@pytest.fixture
def staff(db: None) -> Client:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(User.objects.create_user("ada", is_staff=True))
    return client


@pytest.fixture
def project(db: None) -> str:
    return ids.encode("prj", Project.objects.get(name="default").pk)


def test_staff_name_the_project_by_header(staff: Client, project: str) -> None:
    answer = staff.get("/api/v1/me", headers={"Tenure-Project": project})
    assert answer.json() == {"project": {"id": project, "name": "default"}, "key": None, "role": "admin"}
    problem(staff.get("/api/v1/me"), 400, "invalid")
    other = ids.encode("prj", ids.new_id())
    for wrong in (other, "default", "prj_x"):
        problem(staff.get("/api/v1/me", headers={"Tenure-Project": wrong}), 404, "not_found")


def test_staff_need_a_csrf_token_to_write(staff: Client, project: str) -> None:
    path, body = "/api/v1/api-keys", {"name": "from the console"}

    def post(**headers: str) -> Any:
        named = {"Tenure-Project": project, **headers}
        return staff.post(path, body, content_type="application/json", headers=named)

    problem(post(), 403, "csrf_failed")
    problem(post(**{"X-CSRFToken": "x" * 32}), 403, "csrf_failed")
    staff.get("/admin/login/")  # sets the cookie
    staff.cookies["csrftoken"] = "a" * 32
    assert post(**{"X-CSRFToken": "a" * 32}).status_code == 201
    problem(post(**{"X-CSRFToken": "a" * 32, "Origin": "https://evil.example"}), 403, "csrf_failed")


def test_users_without_staff_rights_are_403(project: str, db: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve"))
    problem(client.get("/api/v1/me", headers={"Tenure-Project": project}), 403, "forbidden")


def test_a_key_is_looked_up_with_one_query(api: Api, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        api.get("/me")
