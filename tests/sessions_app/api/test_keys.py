"""Keys and what they open."""

from sessions_app.models import ApiKey
from tests.sessions_app.api.conftest import Api, problem


def test_me_names_project_key_and_role(api: Api) -> None:
    answer = api.get("/me")
    assert answer.status_code == 200
    assert answer.json()["project"]["name"] == "ours"
    assert answer.json()["role"] == "admin"
    assert answer["X-Request-Id"].startswith("req_")


def test_a_created_key_works_and_its_text_is_nowhere_in_the_database(api: Api) -> None:
    made = api.post("/api-keys", {"name": "backend"}, Idempotency_Key="k-1")
    assert made.status_code == 201
    text = made.json()["secret"]
    assert Api(text).get("/me").json()["role"] == "member"
    assert not ApiKey.objects.filter(digest__contains=text).exists()
    again = api.post("/api-keys", {"name": "backend"}, Idempotency_Key="k-1")
    assert again.status_code == 201
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == made.json()
    problem(api.post("/api-keys", {"name": "else"}, Idempotency_Key="k-1"), 409, "idempotency_conflict")
