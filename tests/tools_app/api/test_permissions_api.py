"""Permissions over the API: what the rules say of a call, and what is remembered, listed and revoked."""

from typing import Any

import pytest

from sessions_app import ids
from sessions_app.models import AgentConfig, Entry, Session
from tests import factories
from tests.sessions_app.api.conftest import Api, ok, problem
from tools_app.models import Approval, RememberedDecision, ToolCall

pytestmark = pytest.mark.django_db

RULES = [
    {"tool": "dev_append", "arguments": {"file": {"equals": "secret"}}, "then": "deny"},
    {"tool": "dev_append", "arguments": {"file": {"starts_with": ["report"]}}, "then": "ask"},
    {"tool": "dev_append", "then": "ask", "expires_after": "2d", "on_expiry": "deny"},
]
DOCUMENT = {
    "instructions": "Be brief.",
    "model": "scripted:x",
    "tools": {
        "dev_append": {},
        "dev_lookup": {},
        "ask_user": {},
        "order": {"class": "outside", "method": "POST", "url": "https://example.com/{sku}"},
    },
    "permissions": RULES,
}
EXPLAIN = "/permissions/explain"
REMEMBERED = "/permissions/remembered"


@pytest.fixture
def config(api: Api) -> str:
    answer = api.post("/configs", DOCUMENT)
    return str(answer.json()["id"])


@pytest.fixture
def session(api: Api, config: str) -> Session:
    return factories.session(config=AgentConfig.objects.get(pk=ids.decode("cfg", config)))


def explained(api: Api, tool: str, arguments: dict[str, Any], **where: str) -> dict[str, Any]:
    found: dict[str, Any] = ok(api.post(EXPLAIN, {"tool": tool, "arguments": arguments, **where}))
    return found


def allow(api: Api, session: Session, scope: str, file: str, *, pattern: Any = None) -> dict[str, Any]:
    """Allow a call over the API and let it be remembered; the row as the API shows it."""
    approval = factories.approval(session, arguments={"file": file}, pattern=pattern)
    path = f"/approvals/{ids.encode('apr', approval.pk)}/decision"
    ok(api.post(path, {"decision": "allow", "remember": scope}))
    row: dict[str, Any] = ok(api.get(REMEMBERED))["data"][0]
    return row


@pytest.mark.parametrize(
    ("tool", "arguments", "then", "source", "rule", "tool_class"),
    [
        ("dev_append", {"file": "secret"}, "deny", "rule", 0, "outside"),
        ("dev_append", {"file": "report 1"}, "ask", "rule", 1, "outside"),
        ("dev_append", {"file": "a"}, "ask", "rule", 2, "outside"),
        ("dev_lookup", {"key": "a"}, "allow", "default", None, "outside"),
        ("order", {"sku": "a"}, "ask", "default", None, "outside"),
        ("ask_user", {"questions": [{"text": "Which?"}]}, "allow", "default", None, "human"),
    ],
)
def test_it_is_told_which_rule_decides(
    api: Api,
    config: str,
    session: Session,
    tool: str,
    arguments: dict[str, Any],
    then: str,
    source: str,
    rule: int | None,
    tool_class: str,
) -> None:
    """T7: of a config and of a session the same."""
    said = explained(api, tool, arguments, config=config)
    assert (said["then"], said["source"], said["rule"], said["class"]) == (then, source, rule, tool_class)
    assert said["why"]
    assert (said["config"], said["tool"], said["arguments"]) == (config, tool, arguments)
    assert explained(api, tool, arguments, session=ids.encode("ses", session.pk)) == said


def test_what_happens_on_expiry_is_told(api: Api, config: str) -> None:
    """T7"""
    said = explained(api, "dev_append", {"file": "a"}, config=config)
    assert (said["expires_after"], said["on_expiry"]) == (172800.0, "deny")
    said = explained(api, "dev_append", {"file": "report"}, config=config)
    assert (said["expires_after"], said["on_expiry"], said["remembered"]) == (None, None, None)


@pytest.mark.parametrize(
    ("tool", "arguments", "words", "tool_class"),
    [
        ("nix", {}, "There is no tool named 'nix'", None),
        ("set_label", {}, "disabled for this agent", None),
        ("mcp__linear__get", {}, "There is no tool named", None),
        ("dev_append", {}, "the arguments do not fit the tool's schema", "outside"),
        ("dev_append", {"file": 7}, "the arguments do not fit the tool's schema", "outside"),
    ],
)
def test_a_call_that_fails_before_it_asks_is_told_as_the_model_is_told(
    api: Api, config: str, tool: str, arguments: dict[str, Any], words: str, tool_class: str | None
) -> None:
    """T3, T7"""
    said = explained(api, tool, arguments, config=config)
    assert (said["then"], said["source"], said["rule"], said["class"]) == ("fail", "call", None, tool_class)
    assert words in said["why"]


def test_explaining_writes_nothing(api: Api, config: str, session: Session) -> None:
    """T7"""
    explained(api, "dev_append", {"file": "a"}, session=ids.encode("ses", session.pk))
    for model in (ToolCall, Approval, RememberedDecision, Entry):
        assert not model.objects.exists()


def test_equal_arguments_have_one_digest(api: Api, config: str) -> None:
    """T7, C99"""
    digests = {
        explained(api, "dev_append", arguments, config=config)["arguments_digest"]
        for arguments in ({"file": "a", "delay": 1}, {"delay": 1.0, "file": "a"})
    }
    assert len(digests) == 1
    assert explained(api, "dev_append", {"file": "b"}, config=config)["arguments_digest"] not in digests


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({"tool": "a", "arguments": {}}, "", "required"),
        ({"tool": "a", "config": "x", "arguments": {}}, "/config", "malformed"),
        ({"tool": "", "session": "ses_" + "0" * 26, "arguments": {}}, "/tool", "too_short"),
        ({"tool": "a", "session": "ses_" + "0" * 26, "arguments": []}, "/arguments", "wrong_type"),
        ({"tool": "a", "session": "ses_" + "0" * 26}, "/arguments", "required"),
        ({"tool": "a", "session": "ses_" + "0" * 26, "arguments": {}, "x": 1}, "/x", "unknown_field"),
    ],
)
def test_a_body_that_says_too_little_or_too_much_is_refused(
    api: Api, body: dict[str, Any], path: str, code: str
) -> None:
    """T7"""
    document = problem(api.post(EXPLAIN, body), 400, "invalid")
    assert [(error["path"], error["code"]) for error in document["errors"]] == [(path, code)]


def test_config_and_session_together_are_refused(api: Api, config: str, session: Session) -> None:
    """T7"""
    body = {"tool": "a", "arguments": {}, "config": config, "session": ids.encode("ses", session.pk)}
    problem(api.post(EXPLAIN, body), 400, "invalid")


def test_nothing_of_another_project_is_explained(other_api: Api, config: str, session: Session) -> None:
    """T7: what one may not see is not there."""
    for where in ({"config": config}, {"session": ids.encode("ses", session.pk)}):
        problem(other_api.post(EXPLAIN, {"tool": "a", "arguments": {}, **where}), 404, "not_found")


def test_a_remembered_decision_is_shown_with_all_it_covers(api: Api, session: Session) -> None:
    """T7"""
    row = allow(api, session, "session", "a")
    approval = Approval.objects.get()
    assert row["id"].startswith("rem_")
    assert row == {
        "id": row["id"],
        "decision": "allow",
        "scope": "session",
        "session": ids.encode("ses", session.pk),
        "tool": "dev_append",
        "pattern": None,
        "arguments": {"file": "a"},
        "approval": ids.encode("apr", approval.pk),
        "created_by": approval.decided_by,
        "created_at": row["created_at"],
        "expires_at": None,
        "revoked_by": None,
        "revoked_at": None,
    }
    assert ok(api.get(f"{REMEMBERED}/{row['id']}")) == row
    always = allow(api, session, "always", "report", pattern=RULES[1]["arguments"])
    assert (always["scope"], always["session"], always["arguments"]) == ("always", None, None)
    assert always["pattern"] == {"file": {"starts_with": ["report"]}}


def test_what_is_remembered_is_explained(api: Api, config: str, session: Session) -> None:
    """T7: an ask is answered, a deny is not."""
    row = allow(api, session, "session", "a")
    allow(api, session, "always", "report", pattern=RULES[1]["arguments"])
    allow(api, session, "always", "secret")
    here = {"session": ids.encode("ses", session.pk)}
    said = explained(api, "dev_append", {"file": "a"}, **here)
    assert (said["then"], said["source"], said["rule"], said["remembered"]) == ("allow", "remembered", 2, row)
    assert "key of ours has allowed the like in this session" in said["why"]
    assert explained(api, "dev_append", {"file": "a"}, config=config)["then"] == "ask"
    assert explained(api, "dev_append", {"file": "report 9"}, config=config)["source"] == "remembered"
    assert explained(api, "dev_append", {"file": "secret"}, **here)["then"] == "deny"


def test_the_list_shows_what_holds_and_is_filtered(
    api: Api, other_api: Api, session: Session, config: str
) -> None:
    """T7"""
    first, second = allow(api, session, "always", "a"), allow(api, session, "session", "b")
    expired, revoked = allow(api, session, "always", "c"), allow(api, session, "always", "d")
    RememberedDecision.objects.filter(pk=ids.decode("rem", expired["id"])).update(
        expires_at=factories.database_now(-1)
    )
    assert api.delete(f"{REMEMBERED}/{revoked['id']}").status_code == 204

    def listed(query: str = "", client: Api = api) -> list[str]:
        return [row["id"] for row in ok(client.get(f"{REMEMBERED}{query}"))["data"]]

    assert listed() == [second["id"], first["id"]]
    assert listed("?state=expired") == [expired["id"]]
    assert listed("?state=revoked") == [revoked["id"]]
    assert listed("?tool=dev_append&limit=1") == [second["id"]]
    assert listed("?tool=other") == []
    assert listed(f"?session={ids.encode('ses', session.pk)}") == [second["id"]]
    assert listed(client=other_api) == []
    page = ok(api.get(f"{REMEMBERED}?limit=1"))
    assert listed(f"?limit=1&cursor={page['next_cursor']}") == [first["id"]]
    problem(api.get(f"{REMEMBERED}?state=open"), 400, "invalid")


def test_a_revocation_holds_at_once_and_says_who(api: Api, config: str, session: Session) -> None:
    """T7: twice is once."""
    row = allow(api, session, "always", "a")
    for _ in range(2):
        assert api.delete(f"{REMEMBERED}/{row['id']}").status_code == 204
    assert explained(api, "dev_append", {"file": "a"}, config=config)["then"] == "ask"
    shown = ok(api.get(f"{REMEMBERED}/{row['id']}"))
    assert shown["revoked_by"]["name"] == "key of ours"
    assert shown["revoked_at"] is not None


@pytest.mark.parametrize(
    ("query", "left"), [("?id={a}&id={b}", "cd"), ("?session={session}", "acd"), ("?tool=dev_append", "")]
)
def test_several_are_revoked_at_once(api: Api, session: Session, query: str, left: str) -> None:
    """T7"""
    rows = {file: allow(api, session, "session" if file == "b" else "always", file) for file in "abcd"}
    named = {file: row["id"] for file, row in rows.items()} | {"session": ids.encode("ses", session.pk)}
    assert api.delete(REMEMBERED + query.format(**named)).status_code == 204
    assert {row["arguments"]["file"] for row in ok(api.get(REMEMBERED))["data"]} == set(left)


def test_all_of_them_are_never_meant_by_saying_nothing(api: Api, session: Session) -> None:
    """T7"""
    allow(api, session, "always", "a")
    problem(api.delete(REMEMBERED), 400, "invalid")
    problem(api.delete(f"{REMEMBERED}?id=rem_x"), 400, "invalid")
    problem(api.delete(f"{REMEMBERED}?tol=dev_append"), 400, "invalid")
    assert RememberedDecision.objects.filter(revoked_at=None).count() == 1


def test_what_another_project_remembers_cant_be_revoked(api: Api, other_api: Api, session: Session) -> None:
    """T7"""
    row = allow(api, session, "always", "a")
    for method in ("GET", "DELETE"):
        problem(other_api.send(method, f"{REMEMBERED}/{row['id']}"), 404, "not_found")
        problem(api.send(method, f"{REMEMBERED}/rem_x"), 404, "not_found")
    assert other_api.delete(f"{REMEMBERED}?id={row['id']}").status_code == 204
    assert ok(api.get(REMEMBERED))["data"] == [row]
