"""Speaking to an agent: now or after its turn, with files, and telling it to stop."""

import re

from playwright.sync_api import expect

from sessions_app.models import Input, Project
from tests.acceptance import agents
from tests.browser.scenery import start, until
from tests.browser.session_page import entries, open_session, preview, status, timeline
from tests.browser.visitors import Visitors
from tests.processes.workers import Workers

SLOW = {"text": "so " * 400, "tokens_per_second": 20}
"""Fifteen seconds of text, that nobody waits for."""


def test_a_message_waits_in_the_queue_and_is_taken_back_or_sent_at_once(
    people: Visitors, project: Project, workers: Workers
) -> None:
    """I1, I6: what is queued is seen by all who watch; it can be steered, moved and taken back."""
    session = start(project, SLOW, {"text": "second"}, {"text": "third"})
    workers.start()
    page, other = (open_session(people, session, name) for name in ("ada", "bob"))
    expect(preview(page)).to_be_visible()
    message = page.get_by_label("Message", exact=True)
    for text in ("first of two", "second of two"):
        message.fill(text)
        page.get_by_role("button", name="Send").click()
        expect(message).to_have_value("")
    queue = other.get_by_role("region", name="Waiting messages")
    expect(queue.get_by_role("listitem")).to_have_text([re.compile("first of"), re.compile("second of")])
    queue.get_by_role("button", name="Move down").click()
    expect(queue.get_by_role("listitem")).to_have_text([re.compile("second of"), re.compile("first of")])
    queue.get_by_role("button", name="Take it back").first.click()
    expect(queue.get_by_role("listitem")).to_have_text([re.compile("first of two")])
    mine = page.get_by_role("region", name="Waiting messages")
    expect(mine.get_by_role("listitem")).to_have_count(1)
    mine.get_by_role("button", name="Steer now").click()
    expect(queue).to_contain_text("Steers")
    message.fill("and this joins the turn")
    page.get_by_text("Steer", exact=True).click()
    page.get_by_role("button", name="Send").click()
    expect(queue.get_by_role("listitem")).to_have_count(2)
    assert set(
        Input.objects.filter(session=session, state="received").values_list("delivery", flat=True)
    ) == {"steering"}


def test_a_turn_is_stopped_and_the_next_message_starts_another(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(project, {"when": {"contains": "hello"}, **SLOW}, {"text": "On we go."})
    workers.start()
    page = open_session(people, session)
    expect(preview(page)).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(entries(page, "turn_ended")).to_contain_text("Turn 1 was cancelled")
    expect(status(page)).to_contain_text("Cancelled")
    expect(page.locator("#preview")).to_be_hidden()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.keyboard.press("m")
    page.keyboard.type("Go on")
    page.keyboard.press("Control+Enter")
    expect(entries(page, "user_message").last).to_contain_text("Go on")
    expect(entries(page, "assistant_message")).to_have_count(1)
    until(session, "idle")
    assert len(agents.log_of(session.pk, "user_message")) == 2


def test_files_go_with_a_message_and_can_be_taken_out_before(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(project, {"text": "one"}, {"text": "I have read it."})
    workers.start()
    page = open_session(people, session)
    attached = page.get_by_role("list", name="Attached files")
    page.locator("#files").set_input_files(
        [
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"The cups arrived broken."},
            {"name": "wrong.txt", "mimeType": "text/plain", "buffer": b"not this one"},
        ]
    )
    expect(attached.get_by_role("button")).to_have_count(2)
    attached.get_by_role("button", name="Remove wrong.txt").click()
    page.get_by_label("Message", exact=True).fill("Read this.")
    page.get_by_role("button", name="Send").click()
    expect(attached.get_by_role("listitem")).to_have_count(0)
    sent = entries(page, "user_message").last
    expect(sent).to_contain_text("Read this.")
    expect(sent).to_contain_text("notes.txt")
    expect(sent).not_to_contain_text("wrong.txt")
    expect(timeline(page)).to_contain_text("I have read it.")
    answer = page.request.get(sent.get_by_role("link", name="notes.txt").get_attribute("href"))
    assert answer.body() == b"The cups arrived broken."


def test_a_draft_outlives_a_reload(people: Visitors, project: Project) -> None:
    session = start(project, {"text": "one"})
    page = open_session(people, session)
    page.get_by_label("Message", exact=True).fill("not finished")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("not finished")
