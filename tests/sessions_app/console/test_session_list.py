"""The list of sessions: what it finds, what it says, and that it costs the same for many."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Func, TextField, Value
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app import ids
from sessions_app.console import session_list
from sessions_app.models import AgentConfig, AgentProfile, Entry, Project, Session, TurnStatus
from tests import factories
from tests.sessions_app.console.conftest import HTMX

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def text(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.content.decode())


def said(session: Session, words: str, *, kind: str = "user_message") -> None:
    Entry.objects.create(
        session=session,
        project_id=session.project_id,
        seq=session.next_seq,
        parent_seq=session.next_seq - 1,
        kind=kind,
        actor=factories.ACTOR,
        data={"content": [{"type": "text", "text": words}]},
    )
    Session.objects.filter(pk=session.pk).update(next_seq=session.next_seq + 1)
    session.next_seq += 1


def test_names_and_labels_are_text_whatever_they_hold(browser: Client, config: AgentConfig) -> None:
    factories.session(config=config, name=EVIL, labels={EVIL: EVIL, "a": '"><script>'})
    for headers in ({}, HTMX):
        body = text(browser.get("/", headers=headers))
        assert "<script>alert" not in body
        assert "<img" not in body
        assert '"><script>' not in body
        assert "&lt;script&gt;alert(1)" in body


def test_what_was_searched_for_is_shown_as_text(browser: Client, project: Project) -> None:
    body = text(browser.get("/", {"q": EVIL, "label": f"x:{EVIL}", "profile": EVIL, "cursor": EVIL}))
    assert "<script>alert" not in body
    assert "<img" not in body


def test_htmx_gets_the_rows_and_people_the_page(browser: Client, config: AgentConfig) -> None:
    factories.session(config=config, name="Digest")
    page, rows = text(browser.get("/")), text(browser.get("/", headers=HTMX))
    assert "Digest" in page
    assert "Digest" in rows
    assert "<nav" in page
    assert "<html" not in rows


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, {"digest", "refund", "triage"}),
        ({"q": "DIG"}, {"digest"}),
        ({"q": "acme"}, {"refund"}),  # the value of a label
        ({"q": "team"}, set()),  # the key of one is no text of it
        ({"label": "team:support"}, {"refund", "triage"}),
        ({"label": ["team:support", "customer:ACME"]}, {"refund"}),
        ({"status": "waiting"}, {"refund"}),
        ({"status": ["waiting", "queued"]}, {"refund", "triage"}),
        ({"profile": "Nightly"}, {"digest"}),
        ({"failed": "1"}, {"digest"}),
        ({"archived": "1"}, {"old"}),
        ({"q": '50 % "off" wörd'}, set()),
        ({"q": '50 % "off" wörd', "messages": "1"}, {"triage"}),
        ({"q": "content", "messages": "1"}, set()),  # a word of the stored form, not of a message
        ({"status": "nonsense"}, {"digest", "refund", "triage"}),
    ],
)
def test_filters_and_search(
    browser: Client, config: AgentConfig, query: dict[str, Any], found: set[str]
) -> None:
    nightly = AgentProfile.objects.create(project=config.project, name="Nightly", config=config)
    digest = factories.session(config=config, name="digest", profile=nightly)
    turn = factories.open_turn(digest)
    turn.status, turn.reason, turn.ended_at = TurnStatus.FAILED, "quota", factories.database_now()
    turn.save()
    digest.turn, digest.last_turn = None, turn
    digest.save()
    factories.session(
        config=config,
        name="refund",
        labels={"team": "support", "customer": "ACME"},
        status="waiting",
        waiting_on=[{"kind": "approval", "id": "apr_x"}],
    )
    triage = factories.due(config=config, name="triage", labels={"team": "support"})
    said(triage, 'Is it 50 % "off" Wörd?\nYes.', kind="assistant_message")
    factories.session(config=config, name="old", status="archived", archived_at=factories.database_now())
    factories.session(name="foreign", labels={"team": "support", "customer": "ACME"})
    body = text(browser.get("/", query, headers=HTMX))
    assert {
        name
        for name in ("digest", "refund", "triage", "old", "foreign")
        if f">\n                {name}\n" in body
    } == found


def test_an_id_finds_its_session(browser: Client, config: AgentConfig) -> None:
    wanted, other = factories.session(config=config), factories.session(config=config)
    body = text(browser.get("/", {"q": ids.encode("ses", wanted.pk)}, headers=HTMX))
    assert f"/sessions/{ids.encode('ses', wanted.pk)}" in body
    assert f"/sessions/{ids.encode('ses', other.pk)}" not in body


def test_statuses_are_words_with_what_is_behind_them(browser: Client, config: AgentConfig) -> None:
    factories.session(config=config, status="waiting", waiting_on=[{"kind": "tool"}, {"kind": "question"}])
    later = factories.database_now(90)
    factories.session(config=config, status="backing_off", retry_at=later, wake_at=later)
    body = text(browser.get("/", headers=HTMX))
    assert "Asks a question" in body  # what a person can answer comes first
    assert "and 1 more thing to wait for" in body
    assert "Retrying" in body
    assert "in 1 min" in body


def test_older_sessions_are_on_the_next_page(browser: Client, config: AgentConfig) -> None:
    made = [factories.session(config=config, name=f"no {number}") for number in range(51)]
    first = text(browser.get("/"))
    link = first.split('<a class="button" href="?cursor=')[1].split('"')[0]
    second = text(browser.get(f"/?cursor={link}", headers=HTMX))
    assert ids.encode("ses", made[0].pk) not in first
    assert ids.encode("ses", made[0].pk) in second
    assert ids.encode("ses", made[1].pk) not in second


def test_an_empty_project_says_how_to_begin_and_an_empty_search_how_to_go_on(
    browser: Client, project: Project
) -> None:
    assert "No sessions yet" in text(browser.get("/"))
    assert "No session fits" in text(browser.get("/", {"q": "x"}))


def test_a_page_costs_the_same_for_one_session_and_for_many(browser: Client, config: AgentConfig) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            text(browser.get("/"))
        return len([query for query in queries if "SAVEPOINT" not in query["sql"]])

    factories.due(config=config)
    one = cost()
    for number in range(20):
        made = factories.due(config=config, name=str(number), labels={"n": str(number)})
        factories.open_turn(made)
    assert cost() == one
    assert one <= 6  # login, user, projects, rows, profiles; what waits in the inbox


def test_a_search_that_takes_too_long_falls_back_and_says_so(
    browser: Client, config: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = factories.session(config=config, name="needle in the name")
    said(session, "hay")
    monkeypatch.setattr(session_list, "SEARCH_TIME", 1)
    slow = Func(Value(5.0), template="pg_sleep(%(expressions)s)::text", output_field=TextField())
    real = session_list.session_search.speaking_of

    def speaking_of(rows: Any, words: str, *, in_messages: bool) -> Any:
        found = real(rows, words, in_messages=in_messages)
        return found.annotate(slow=slow).filter(slow__isnull=False) if in_messages else found

    monkeypatch.setattr(session_list.session_search, "speaking_of", speaking_of)
    body = text(browser.get("/", {"q": "needle", "messages": "1"}, headers=HTMX))
    assert "took too long" in body
    assert "needle in the name" in body


def test_searching_messages_is_not_repeated_by_itself(browser: Client, config: AgentConfig) -> None:
    factories.session(config=config, name="x")
    assert "data-refresh" in text(browser.get("/", {"q": "x"}))
    assert "data-refresh" not in text(browser.get("/", {"q": "x", "messages": "1"}))


def test_the_session_shows_itself_in_whatever_project_it_is(
    browser: Client, choose: Callable[[Project], None]
) -> None:
    session = factories.session(name="There")
    assert "There" in text(browser.get(f"/sessions/{ids.encode('ses', session.pk)}"))
