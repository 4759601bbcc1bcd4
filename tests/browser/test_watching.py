"""A session that is watched while it works: text as it comes, workers and web processes that die meanwhile."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import transaction
from playwright.sync_api import Page, expect

from sessions_app import log, wakeups
from sessions_app.models import Project, Session
from tests.acceptance import agents
from tests.browser.scenery import start, until
from tests.browser.session_page import entries, open_session, preview, status, timeline, wait_until_live
from tests.browser.visitors import Visitors, visitors
from tests.processes.web import free_port, web
from tests.processes.workers import Workers

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WORDS = [f"word{number:03}" for number in range(120)]
LONG = {"text": " ".join(WORDS), "tokens_per_second": 60}
"""Four seconds of text in which each word stands once."""

# Looks at the page after every change: how often the first word was seen at once, and how the text went on.
_WATCH = """
(() => {
  window.__most = 0;
  window.__breaks = [];
  const look = () => {
    const shown = [...document.querySelectorAll("#timeline .prose, #preview .preview-text")]
      .filter((part) => !part.parentElement.closest(".prose, .preview-text"));
    const all = shown.map((part) => part.textContent).join(" ");
    window.__most = Math.max(window.__most, all.split("word000").length - 1);
    for (const part of shown) {
      const numbers = (part.textContent.match(/word\\d{3}/g) ?? []).map((word) => Number(word.slice(4)));
      if (numbers.some((number, index) => number !== index)) window.__breaks.push(part.textContent);
    }
  };
  new MutationObserver(look).observe(document, { childList: true, characterData: true, subtree: true });
})();
"""


def watch(page: Page) -> None:
    page.add_init_script(_WATCH)


def assert_shown_once(page: Page) -> None:
    """The whole text, once, and at no moment since the last load more of it than that or in another order."""
    expect(entries(page, "assistant_message").locator(".prose")).to_have_text(" ".join(WORDS))
    expect(page.locator("#preview")).to_be_hidden()
    assert timeline(page).inner_text().count("word000") == 1
    assert page.evaluate("window.__most") == 1
    assert page.evaluate("window.__breaks") == []


def test_text_is_shown_as_it_comes_and_once_in_the_end(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(project, LONG)
    page = people.context().new_page()
    watch(page)
    page.goto(f"/sessions/{agents.name_of('ses', session.pk)}")
    wait_until_live(page)
    workers.start()
    expect(preview(page)).to_contain_text("word003")
    assert not agents.said(session.pk)
    expect(status(page)).to_contain_text("Running")
    expect(status(page)).to_contain_text("Done")
    assert_shown_once(page)


def test_a_killed_worker_s_text_is_shown_once_when_another_went_on(
    people: Visitors, project: Project, workers: Workers
) -> None:
    """F5, F6: half a reply is lost with its worker, and the page neither keeps nor doubles it."""
    session = start(project, LONG)
    workers.start("sweeper")
    first = workers.start(owner="first")
    page = people.context().new_page()
    watch(page)
    page.goto(f"/sessions/{agents.name_of('ses', session.pk)}")
    expect(preview(page)).to_contain_text("word020")
    first.kill()
    assert not agents.said(session.pk)
    workers.start(owner="second")
    expect(timeline(page).get_by_text("Resumed as attempt 2")).to_be_visible()
    expect(preview(page)).to_contain_text("word020")
    until(session, "idle")
    assert_shown_once(page)
    expect(timeline(page)).to_contain_text("its worker died")


def test_a_reload_in_the_middle_shows_all_of_it_again(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(project, LONG)
    workers.start()
    page = people.context().new_page()
    watch(page)
    page.goto(f"/sessions/{agents.name_of('ses', session.pk)}")
    expect(preview(page)).to_contain_text("word005")
    page.reload()
    expect(preview(page)).to_contain_text("word000 word001")
    assert not agents.said(session.pk)
    until(session, "idle")
    assert_shown_once(page)


def test_the_page_catches_up_by_itself_when_the_web_process_was_restarted(
    browser: "Browser",
    project: Project,
    workers: Workers,
    process_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    """What happened meanwhile is there, once, and the page is live again, without a reload."""
    session = start(project, {"text": "first answer"}, {"text": "second answer"}, {"text": "third answer"})
    workers.start()
    port = free_port()
    with ExitStack() as life:
        server = life.enter_context(web(process_environment, tmp_path, port=port))
        people = life.enter_context(visitors(browser, server.address))
        page = open_session(people, session)
        page.evaluate("window.__same = true")
        expect(timeline(page)).to_contain_text("first answer")
        people.problems.expect("net::ERR_", "WebSocket connection")
        server.process.kill()
        server.process.wait()
        expect(page.locator("#connection")).not_to_have_text("Live")
        agents.say(session.pk, "go on")
        until(session, "queued", "running", "idle")
        agents.wait_until_at_rest(session.pk, *workers.started)
        life.enter_context(web(process_environment, tmp_path, port=port))
        expect(timeline(page)).to_contain_text("second answer", timeout=40_000)
        expect(page.locator("#connection")).to_have_text("Live", timeout=40_000)
        agents.say(session.pk, "and on")
        expect(timeline(page)).to_contain_text("third answer")
        expect(entries(page, "assistant_message")).to_have_count(3)
        assert page.evaluate("window.__same")


def test_recovery_and_retries_are_told_as_what_they_are(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(
        project,
        {"error": {"status": 529, "message": "come back later"}},
        {"error": {"status": 429}},
        {"text": "at last"},
        {"error": {"status": 401, "message": "no such key"}},
    )
    page = open_session(people, session)
    workers.start()
    expect(timeline(page)).to_contain_text("at last")
    failed = entries(page, "model_call_failed")
    expect(failed).to_have_count(2)
    expect(failed.nth(0)).to_contain_text("the provider is overloaded")
    expect(failed.nth(1)).to_contain_text("HTTP 429")
    expect(entries(page, "retry_scheduled").nth(1)).to_contain_text("Retry 2")
    agents.say(session.pk, "again")
    expect(status(page)).to_contain_text("Failed")
    expect(entries(page, "turn_ended").last).to_contain_text("the provider refused the credentials")
    people.problems.expect("status of 4")
    page.get_by_role("button", name="Retry the turn").click()
    expect(entries(page, "turn_ended")).to_have_count(3)


def test_every_entry_can_be_read_as_it_stands_in_the_log(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(project, {"text": "answer"})
    workers.start()
    until(session, "idle")
    page = open_session(people, session)
    reply = entries(page, "assistant_message")
    reply.hover()
    reply.locator("summary[aria-label^=Entry]").click()
    reply.get_by_role("button", name="Show as JSON").click()
    dialog = page.get_by_role("dialog", name="Entry")
    expect(dialog).to_contain_text('"kind": "assistant_message"')
    expect(dialog).to_contain_text('"text": "answer"')
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    created = entries(page, "turn_started")
    page.keyboard.press("e")
    expect(page.get_by_role("button", name="Everything in the log")).to_have_attribute("aria-pressed", "true")
    expect(created).to_be_visible()


def test_a_session_is_forked_and_rewound_at_an_entry(
    people: Visitors, project: Project, workers: Workers
) -> None:
    """A rewind forgets, so it asks first."""
    session = start(project, {"text": "one"}, {"text": "two"}, name="Original")
    workers.start()
    until(session, "idle")
    agents.say(session.pk, "on")
    page = open_session(people, session)
    expect(timeline(page)).to_contain_text("two")
    until(session, "idle")
    first = entries(page, "turn_ended").first
    first.hover()
    first.locator("summary[aria-label^=Entry]").click()
    first.get_by_role("button", name="Fork from here").click()
    expect(page.get_by_role("heading", name="Original (fork)")).to_be_visible()
    expect(timeline(page)).not_to_contain_text("two")
    page.go_back()
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    first.hover()
    first.locator("summary[aria-label^=Entry]").click()
    first.get_by_role("button", name="Rewind to here").click()
    expect(entries(page, "assistant_message").last).to_have_class(re.compile("is-left"))
    expect(entries(page, "assistant_message").first).not_to_have_class(re.compile("is-left"))
    assert len(asked) == 1


def test_a_long_session_leaves_the_page_small_and_is_read_back(people: Visitors, project: Project) -> None:
    """Of many entries the newest stay; those before come back, in order and each once."""
    session = start(project, {"text": "one"})
    page = open_session(people, session)
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session.pk)
        log.append(
            row, *(log.NewEntry(kind="note", data={"text": f"note {number}"}) for number in range(700))
        )
        last = row.next_seq - 1
        row.save()
    wakeups.ring_entries([session.pk])
    expect(page.locator(f"#entry-{last}")).to_be_attached()
    shown = page.locator("#timeline > li[data-seq]")
    expect(shown).to_have_count(500)  # cut back to 400 when there were more than 600
    page.get_by_role("button", name="Earlier").click()
    expect(shown).to_have_count(580)
    seqs = [int(seq) for seq in shown.evaluate_all("items => items.map(item => item.dataset.seq)")]
    assert seqs == list(range(last - len(seqs) + 1, last + 1))
