"""A session's page: what it shows of the log, that all of it is text, and that it costs the same for long ones."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app import artifacts, ids
from sessions_app.console import timeline
from sessions_app.models import AgentConfig, Child, Project, Session, SessionStatus
from tests import factories
from tests.sessions_app.console.conftest import HTMX
from tests.sessions_app.console.logs import EVIL, reply, said, text, write


@pytest.fixture
def session(config: AgentConfig) -> Session:
    return factories.session(config=config, name="Triage")


def address(session: Session, more: str = "") -> str:
    return f"/sessions/{ids.encode('ses', session.pk)}{more}"


def body(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.content[:500]
    return str(answer.content.decode())


def shown(page: str) -> list[int]:
    """The seqs of the entries in the order in which they stand there."""
    return [int(seq) for seq in re.findall(r'id="entry-(\d+)"', page)]


def is_harmless(page: str) -> bool:
    return "<script>alert" not in page and "<img src=x" not in page


def test_the_page_has_the_last_entries_and_earlier_ones_on_request(browser: Client, session: Session) -> None:
    write(session, *(said(f"number {number}") for number in range(timeline.PAGE + 30)))
    page = body(browser.get(address(session)))
    assert shown(page) == list(range(31, timeline.PAGE + 31))
    assert f'data-last="{timeline.PAGE + 30}"' in page
    earlier = body(browser.get(address(session, "/entries"), {"before": "31"}, headers=HTMX))
    assert shown(earlier) == list(range(1, 31))
    assert 'id="earlier"' in page
    assert 'id="earlier"' not in earlier


def test_what_came_since_is_told_once_and_in_order(browser: Client, session: Session) -> None:
    """F1: a page that asks behind its last entry gets every later one exactly once."""
    write(session, *(said(f"number {number}") for number in range(timeline.MOST_AT_ONCE + 5)))
    at, seen = 2, []
    for _ in range(2):
        since = body(browser.get(address(session, "/entries"), {"after": at}, headers=HTMX))
        seen += shown(since)
        at = int(re.findall(r'data-last="(\d+)"', since)[0])
    assert seen == list(range(3, timeline.MOST_AT_ONCE + 6))
    assert 'data-more="false"' in since
    nothing = body(browser.get(address(session, "/entries"), {"after": at}, headers=HTMX))
    assert shown(nothing) == []
    assert f'data-last="{at}"' in nothing


@pytest.mark.parametrize(
    "entry",
    [
        said(EVIL),
        reply(text(EVIL)),
        reply({"type": "reasoning", "text": EVIL}, stop=EVIL, raw_stop=EVIL, model=EVIL),
        reply({"type": "tool_call", "tool_call": "", "id": EVIL, "name": EVIL, "arguments": {EVIL: EVIL}}),
        reply({"type": "data", "value": {EVIL: EVIL}}, invalid_output=EVIL),
        reply({"type": EVIL, EVIL: EVIL}, output=[{"type": "data", "value": EVIL}]),
        ("tool_result", {"tool_call": "", "name": EVIL, "outcome": EVIL, "content": [text(EVIL)]}),
        ("tool_call_updated", {"tool_call": EVIL, "update": EVIL, "content": [text(EVIL)]}),
        ("checkpoint", {"summary": EVIL, "covers_seq": 1, "messages": 3}),
        ("note", {"text": EVIL}),
        ("session_updated", {"changes": {EVIL: EVIL}}),
        ("session_resumed", {"attempt": 2, "reason": EVIL, "repaired_tool_calls": []}),
        ("turn_ended", {"number": 1, "status": "failed", "reason": EVIL, "error": {"detail": EVIL}}),
        ("model_call_failed", {"category": EVIL, "status": 500, "detail": EVIL, "may_be_billed": True}),
        ("retry_scheduled", {"retry": 1, "delay": 3.0, "reason": EVIL}),
        (
            "approval_requested",
            {"approval": EVIL, "tool_call": None, "name": EVIL, "arguments": {EVIL: EVIL}},
        ),
        ("question_asked", {"question": EVIL, "tool_call": EVIL, "questions": [{"text": EVIL}]}),
        ("limit_warning", {"limit": f"turn.{EVIL}", "used": EVIL, "of": EVIL}),
        ("limit_reached", {"limit": EVIL, "used": EVIL, "of": EVIL}),
        ("child_ended", {"child": "", "status": "failed", "reason": EVIL}),
        ("command_updated", {"command": EVIL, "state": EVIL}),
    ],
    ids=lambda entry: entry[0],
)
def test_nothing_in_an_entry_becomes_markup(
    browser: Client, session: Session, entry: tuple[str, dict[str, Any]]
) -> None:
    (seq,) = write(session, entry)
    for page in (
        body(browser.get(address(session))),
        body(browser.get(address(session, "/entries"), {"after": "0"}, headers=HTMX)),
        body(browser.get(address(session, f"/entries/{seq}"), headers=HTMX)),
    ):
        assert is_harmless(page)
    assert shown(body(browser.get(address(session)))) == [seq]


def test_names_labels_todos_and_what_is_queued_are_text(browser: Client, config: AgentConfig) -> None:
    row = factories.session(
        config=config, name=EVIL, labels={EVIL: EVIL}, todos=[{"text": EVIL, "state": EVIL}]
    )
    factories.received_input(row, text=EVIL)
    page = body(browser.get(address(row)))
    assert is_harmless(page)
    assert page.count("&lt;script&gt;alert(1)") >= 5


def test_markdown_of_a_model_is_rendered_and_that_of_a_person_is_not(
    browser: Client, session: Session
) -> None:
    write(session, said("**mine**"), reply(text("**yours**")))
    page = body(browser.get(address(session)))
    assert "**mine**" in page
    assert "<strong>yours</strong>" in page


def test_messages_that_take_long_to_render_hold_up_no_page(browser: Client, session: Session) -> None:
    """A page spends so much on markdown and no more, however many messages are written to be slow."""
    write(
        session, reply(text("*yours* " * 20_000)), reply(text("*theirs* " * 20_000)), reply(text("*short*"))
    )
    page = body(browser.get(address(session)))
    assert "<em>yours</em>" in page
    assert "<pre>*theirs* *theirs*" in page
    assert "<em>short</em>" in page


def test_recovery_and_retries_are_told_as_what_they_are(browser: Client, session: Session) -> None:
    write(
        session,
        ("session_resumed", {"attempt": 2, "reason": "crash", "repaired_tool_calls": ["tcl_x"]}),
        (
            "model_call_failed",
            {"category": "overloaded", "status": 529, "detail": "busy", "may_be_billed": True},
        ),
        ("retry_scheduled", {"retry": 3, "delay": 12.5, "reason": "overloaded"}),
        ("limit_warning", {"limit": "turn.model_calls", "used": "7", "of": "10"}),
        ("turn_ended", {"number": 1, "status": "failed", "reason": "retries_exhausted", "error": None}),
    )
    page = body(browser.get(address(session)))
    for words in (
        "Resumed as attempt 2",
        "its worker died; 1 interrupted call settled",
        "the provider is overloaded, HTTP 529, it may be billed",
        "Retry 3",
        "7 of 10 model calls of the turn",
        "every retry failed",
    ):
        assert words in page
    assert re.search(r"again\s+<time [^>]*data-relative>in \d+ s", page)


def test_what_a_rewind_left_behind_is_marked(browser: Client, session: Session) -> None:
    write(session, said("one"), said("two"), said("three"))
    session.head_seq = 1
    session.rewound = True
    write(session, ("branch_moved", {"to_seq": 1, "from_seq": 3}), said("four"))
    page = body(browser.get(address(session)))
    left = re.findall(r'<li class="entry[^"]*is-left[^"]*"\s+id="entry-(\d+)"', page)
    assert left == ["2", "3"]
    since = body(browser.get(address(session, "/entries"), {"after": "5"}, headers=HTMX))
    assert 'data-left="2-3"' in since


def test_images_come_from_here_and_only_images_are_shown(
    browser: Client, session: Session, project: Project
) -> None:
    kept = {
        name: ids.encode(
            "art", artifacts.store(project=project.pk, name=name, media_type=media_type, data=b"x").pk
        )
        for name, media_type in (("a.png", "image/png"), ("b.svg", "image/svg+xml"), ("c.html", "text/html"))
    }
    media = [{"type": "media", "artifact": key} for key in kept.values()]
    write(session, reply(*media, {"type": "media", "artifact": ids.encode("art", ids.new_id())}))
    page = body(browser.get(address(session)))
    assert re.findall(r'<img src="([^"]+)"', page) == [f"/files/{kept['a.png']}"]
    assert page.count(f'href="/files/{kept["c.html"]}"') == 1
    assert "is gone" in page
    file = browser.get(f"/files/{kept['c.html']}")
    assert file.status_code == 200
    assert b"".join(file) == b"x"
    assert file["Content-Disposition"].startswith("attachment")
    assert "sandbox" in file["Content-Security-Policy"]
    assert file["X-Content-Type-Options"] == "nosniff"


def test_files_of_other_projects_are_not_shown(browser: Client, session: Session) -> None:
    row = artifacts.store(project=factories.project().pk, name="s.png", media_type="image/png", data=b"x")
    write(session, reply({"type": "media", "artifact": ids.encode("art", row.pk)}))
    assert "/files/" not in body(browser.get(address(session)))


def test_subagents_and_the_one_above_are_linked(browser: Client, session: Session) -> None:
    child = factories.session(config=session.config, name="Look it up", parent=session, tree=session.pk)
    session.tree = session.pk
    turn = factories.open_turn(session)
    Child.objects.create(session=child, parent=session, tool_call=ids.new_id(), turn=turn.pk)
    write(session, ("child_started", {"child": ids.encode("ses", child.pk), "tool_call": "", "name": "Look"}))
    above = body(browser.get(address(session)))
    assert above.count(f'href="{address(child)}"') == 2
    assert f'href="{address(session)}"' in body(browser.get(address(child)))


def test_the_inspector_shows_the_entry_as_the_api_does(browser: Client, session: Session) -> None:
    (seq,) = write(session, said("hello"))
    page = body(browser.get(address(session, f"/entries/{seq}"), headers=HTMX))
    assert "&quot;kind&quot;: &quot;user_message&quot;" in page
    assert "data-copy=" in page


@pytest.mark.parametrize("more", ["", "/entries", "/entries/1"])
def test_what_is_not_there_is_not_found(
    browser: Client, project: Project, session: Session, more: str
) -> None:
    for text_id in (ids.encode("ses", ids.new_id()), "ses_x", ids.encode("trn", session.pk)):
        assert browser.get(f"/sessions/{text_id}{more}").status_code == 404
    assert browser.get(address(session, "/entries/99")).status_code == 404


@pytest.mark.parametrize("more", ["", "/entries", "/entries/1"])
def test_only_staff_see_it(session: Session, more: str) -> None:
    write(session, said("secret"))
    client = Client()
    assert client.get(address(session, more)).status_code == 302
    client.force_login(User.objects.create_user("mallory"))
    answer = client.get(address(session, more))
    assert answer.status_code == 403
    assert b"secret" not in answer.content


def test_files_are_for_staff(project: Project) -> None:
    row = artifacts.store(project=project.pk, name="a.png", media_type="image/png", data=b"x")
    client = Client()
    client.force_login(User.objects.create_user("mallory"))
    assert client.get(f"/files/{ids.encode('art', row.pk)}").status_code == 403


def test_a_page_in_the_background_does_not_move_the_switcher(
    browser: Client, project: Project, session: Session
) -> None:
    other = factories.session(config=factories.config(), name="Elsewhere")
    body(browser.get(address(other, "/entries"), headers=HTMX))
    assert browser.session.get("console_project") != ids.encode("prj", other.project_id)
    body(browser.get(address(other)))
    assert browser.session["console_project"] == ids.encode("prj", other.project_id)


def test_it_costs_the_same_for_a_long_log(browser: Client, session: Session) -> None:
    def cost(path: str, **query: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            body(browser.get(path, query, headers=HTMX))
        return len(queries)

    browser.get(address(session))  # chooses the project
    write(session, said("one"), reply(text("two")))
    page, since = cost(address(session)), cost(address(session, "/entries"), after="0")
    factories.received_input(session)
    write(session, *(pair for number in range(20) for pair in (said(str(number)), reply(text("x")))))
    assert cost(address(session)) == page
    assert cost(address(session, "/entries"), after="0") == since
    assert page <= 7  # login, user, projects, the session, its entries, its queue; what waits in the inbox
    assert since <= 5  # login, user, the session, its entries, its queue


def test_the_page_says_what_can_be_done(browser: Client, config: AgentConfig) -> None:
    running = factories.running(factories.worker(), config=config)
    idle = factories.session(config=config)
    archived = factories.session(
        config=config, status=SessionStatus.ARCHIVED, archived_at=factories.database_now()
    )
    assert 'id="stop"' in body(browser.get(address(running)))
    assert 'id="stop"' not in body(browser.get(address(idle)))
    page = body(browser.get(address(archived)))
    assert 'id="restore"' in page
    assert 'data-status="archived"' in page


def test_a_fork_shows_what_it_took_over_and_nothing_else(
    browser: Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To be read: one can fork from there, but not rewind to it."""
    monkeypatch.setattr(timeline, "PAGE", 3)
    write(session, *(said(f"number {number}") for number in range(1, 8)))
    fork = factories.session(config=session.config, forked_from=session, forked_from_seq=5)
    write(fork, ("session_created", {"forked_from": {"session": "", "seq": 5}}), said("its own"))
    page = body(browser.get(address(fork)))
    assert shown(page) == [1, 2]
    above = ids.encode("ses", session.pk)
    assert re.findall(rf'id="entry-{above}-(\d+)"', page) == ["3", "4", "5"]
    assert "number 6" not in page
    assert page.count(f'hx-post="{address(session, "/fork")}"') == 3
    assert f'hx-post="{address(session, "/rewind")}"' not in page
    earlier = body(browser.get(address(fork, "/entries"), {"inherited": "2"}, headers=HTMX))
    assert re.findall(rf'id="entry-{above}-(\d+)"', earlier) == ["1", "2"]
    assert 'id="earlier"' not in earlier
    since = body(browser.get(address(fork, "/entries"), {"after": "2"}, headers=HTMX))
    assert "number" not in since.partition("data-parts")[0]
