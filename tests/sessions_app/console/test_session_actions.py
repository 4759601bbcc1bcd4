"""What people do on a session's page: the same services as over the API, with their refusals told."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app import artifacts, ids
from sessions_app.models import AgentConfig, Entry, Input, Project, Session, TurnStatus
from tests import factories
from tests.sessions_app.console.conftest import HTMX
from tests.sessions_app.console.logs import EVIL, reply, said, text, write


@pytest.fixture
def session(config: AgentConfig) -> Session:
    return factories.session(config=config, name="Triage")


def address(session: Session, more: str) -> str:
    return f"/sessions/{ids.encode('ses', session.pk)}/{more}"


def queue(session: Session) -> list[tuple[str, str]]:
    rows = Input.objects.filter(session=session, state="received").order_by("rank")
    return [(row.content[0]["text"], row.delivery) for row in rows]


def test_what_is_written_is_queued_or_steers(browser: Client, session: Session) -> None:
    for body in ({"text": "one"}, {"text": "two", "delivery": "steering", "cancel_open": "1"}):
        answer = browser.post(address(session, "inputs"), body, headers=HTMX)
        assert answer.status_code == 204
    assert queue(session) == [("one", "queued"), ("two", "steering")]
    assert Input.objects.first().actor["name"] == "ada"
    entry = Entry.objects.get(session=session, seq=2)
    assert entry.data["cancel_open"] is True


def test_a_message_whose_answer_was_lost_is_not_said_twice(browser: Client, session: Session) -> None:
    """I4: the key in the form is an idempotency key."""
    for _ in range(2):
        answer = browser.post(address(session, "inputs"), {"text": "once", "key": "k1"}, headers=HTMX)
        assert answer.status_code == 204
    other = browser.post(address(session, "inputs"), {"text": "other", "key": "k1"}, headers=HTMX)
    assert other.status_code == 409
    assert "has arrived after all" in other["HX-Trigger"]
    assert queue(session) == [("once", "queued")]


def test_a_message_carries_files_of_this_project_only(
    browser: Client, session: Session, project: Project
) -> None:
    mine = artifacts.store(project=project.pk, name="a.png", media_type="image/png", data=b"x")
    key = ids.encode("art", mine.pk)
    body = {"text": "", "artifact": [key]}
    assert browser.post(address(session, "inputs"), body, headers=HTMX).status_code == 204
    assert Input.objects.get().content == [{"type": "media", "artifact": key}]
    foreign = artifacts.store(project=factories.project().pk, name="b.png", media_type="image/png", data=b"y")
    for wrong in (ids.encode("art", foreign.pk), "art_x", EVIL):
        answer = browser.post(address(session, "inputs"), {"text": "x", "artifact": wrong}, headers=HTMX)
        assert answer.status_code == 400
        assert json.loads(answer["HX-Trigger"])["console:toast"]["tone"] == "bad"
    assert Input.objects.count() == 1


def test_nothing_to_say_is_refused_with_words(browser: Client, session: Session) -> None:
    answer = browser.post(address(session, "inputs"), {"text": "  \n"}, headers=HTMX)
    assert answer.status_code == 400
    assert "nothing in the message" in answer["HX-Trigger"]


def test_an_archived_session_takes_nothing(browser: Client, session: Session) -> None:
    assert browser.post(address(session, "archive"), headers=HTMX).status_code == 204
    answer = browser.post(address(session, "inputs"), {"text": "x"}, headers=HTMX)
    assert answer.status_code == 409
    assert "archived" in answer["HX-Trigger"]
    assert browser.post(address(session, "restore"), headers=HTMX).status_code == 204
    assert browser.post(address(session, "inputs"), {"text": "x"}, headers=HTMX).status_code == 204


def test_a_turn_is_stopped_and_tried_again(browser: Client, config: AgentConfig) -> None:
    row = factories.session(config=config)
    turn = factories.open_turn(row)
    write(row, ("turn_started", {"number": 1}), said("Do it."))
    answer = browser.post(address(row, "cancel"), headers=HTMX)
    assert answer.status_code == 204
    turn.refresh_from_db()
    assert turn.status == TurnStatus.CANCELLED
    assert browser.post(address(row, "retry"), headers=HTMX).status_code == 204
    assert queue(row) == [("Do it.", "queued")]
    answer = browser.post(address(row, "retry"), headers=HTMX)
    assert answer.status_code == 409  # it is due already
    assert "HX-Trigger" in answer


def test_a_rewind_goes_back_and_a_fork_leads_to_its_page(browser: Client, session: Session) -> None:
    write(session, said("one"), reply(text("two")), said("three"))
    answer = browser.post(address(session, "rewind"), {"to_seq": "2"}, headers=HTMX)
    assert answer.status_code == 204
    assert factories.reread(session).rewound
    assert factories.reread(session).head_seq == 4
    answer = browser.post(address(session, "fork"), {"at_seq": "1"}, headers=HTMX)
    made = Session.objects.get(forked_from=session)
    assert answer["HX-Redirect"] == f"/sessions/{ids.encode('ses', made.pk)}"
    assert (made.name, made.forked_from_seq) == ("Triage (fork)", 1)
    for wrong in ("", "x", "-1", "99", "9" * 30):
        assert browser.post(address(session, "rewind"), {"to_seq": wrong}, headers=HTMX).status_code == 400
        assert browser.post(address(session, "fork"), {"at_seq": wrong}, headers=HTMX).status_code == 400


def test_the_queue_is_moved_promoted_and_taken_back(browser: Client, session: Session) -> None:
    """I3: each of it while it waits; afterwards the refusal says what became of it."""
    rows = {name: factories.received_input(session, text=name) for name in "abc"}

    def change(name: str, what: str) -> int:
        path = f"/inputs/{ids.encode('inp', rows[name].pk)}/{what}"
        return browser.post(path, headers=HTMX).status_code

    assert change("c", "up") == 204
    assert [name for name, _ in queue(session)] == ["a", "c", "b"]
    assert change("a", "up") == 204  # it is the first
    assert change("a", "down") == 204
    assert [name for name, _ in queue(session)] == ["c", "a", "b"]
    assert change("b", "promote") == 204
    assert dict(queue(session))["b"] == "steering"
    assert change("b", "demote") == 204
    assert change("c", "cancel") == 204
    assert queue(session) == [("a", "queued"), ("b", "queued")]
    assert change("c", "promote") == 409
    assert change("a", "explode") == 404


@pytest.mark.parametrize(
    "path",
    ["inputs", "cancel", "archive", "restore", "compact", "retry", "rewind", "fork"],
)
def test_actions_are_for_staff_with_a_token(session: Session, staff: User, path: str) -> None:
    stranger = Client()
    stranger.force_login(User.objects.create_user("mallory"))
    assert stranger.post(address(session, path), {"text": "x"}, headers=HTMX).status_code == 403
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(staff)
    assert forged.post(address(session, path), {"text": "x"}, headers=HTMX).status_code == 403
    assert Client().post(address(session, path), headers=HTMX).status_code == 401
    assert not Entry.objects.filter(session=session).exists()


def test_what_is_not_there_is_not_found(browser: Client, session: Session) -> None:
    nobody = ids.encode("ses", ids.new_id())
    for path in (
        f"/sessions/{nobody}/inputs",
        f"/sessions/{nobody}/cancel",
        address(session, "explode"),
        f"/inputs/{ids.encode('inp', ids.new_id())}/cancel",
        "/inputs/inp_x/cancel",
    ):
        assert browser.post(path, {"text": "x"}, headers=HTMX).status_code == 404
    assert browser.get(address(session, "cancel")).status_code == 405


def test_without_scripts_an_action_leads_back_to_the_page(browser: Client, session: Session) -> None:
    answer = browser.post(address(session, "inputs"), {"text": "x"})
    assert answer.status_code == 302
    assert answer["Location"] == address(session, "")[:-1]
