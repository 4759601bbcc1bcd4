"""Sessions, starting one, usage, health: the pages around the sessions."""

import re
from pathlib import Path

from playwright.sync_api import expect

from sessions_app.models import Project, Session
from tests.acceptance import agents
from tests.browser.scenery import spend, start, until
from tests.browser.session_page import timeline
from tests.browser.visitors import Visitors
from tests.processes.workers import Workers

BROKEN = "instructions: Answer.\nmodel: scripted:x\ntools:\n  no_such_tool: {class: strange}\nscript:\n  replies: []\n"
GOOD = "instructions: Answer.\nmodel: scripted:x\nscript:\n  replies:\n    - text: Here I am.\n"


def test_a_config_is_checked_in_place_and_started(
    people: Visitors, project: Project, workers: Workers
) -> None:
    page = people.open("/sessions/new")
    page.get_by_text("YAML", exact=True).click()
    editor = page.get_by_label("Config", exact=True)
    editor.fill(BROKEN)
    mistake = page.locator("#review").get_by_role("button", name="Line 4")
    expect(mistake).to_be_visible()
    expect(page.locator(".editor-lines > li").nth(3)).to_have_attribute("data-tone", "bad")
    expect(editor).to_have_attribute("aria-invalid", "true")
    mistake.click()
    expect(editor).to_be_focused()
    people.problems.expect("status of 400")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was started")
    assert not Session.objects.exists()
    page.wait_for_load_state("load")
    editor.fill(GOOD)
    expect(page.locator("#review")).to_contain_text("No mistakes.")
    page.get_by_label("What it shall do").fill("Hello?")
    page.get_by_label("Name", exact=True).fill("From the editor")
    page.get_by_label("Labels").fill("team: support")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", level=1, name="From the editor")).to_be_visible()
    workers.start()
    expect(timeline(page)).to_contain_text("Here I am.")


def test_the_list_finds_sessions_and_keeps_itself_true(
    people: Visitors, project: Project, workers: Workers
) -> None:
    quick = start(
        project, {"text": "The parcel is at the customs."}, name="Parcel", labels={"team": "support"}
    )
    start(project, {"text": "x"}, name="Newsletter", labels={"team": "marketing"})
    page = people.open("/")
    rows = page.locator("[data-row]")
    expect(rows).to_have_count(2)
    expect(page.locator(".row", has_text="Parcel")).to_contain_text("Queued")
    workers.start()
    expect(page.locator(".row", has_text="Parcel")).to_contain_text("Done")
    start(project, {"text": "x"}, name="Third")
    expect(rows).to_have_count(3)
    # htmx reports requests that a newer one replaced as errors.
    people.problems.expect("htmx:sendAbort", "htmx:afterRequest")
    page.keyboard.press("/")
    page.keyboard.type("news")
    expect(rows).to_have_text(["Newsletter"])
    expect(page).to_have_url(re.compile(r"[?&]q=news"))
    page.keyboard.press("Control+A")
    page.keyboard.type("customs")
    expect(page.get_by_role("heading", name="No session fits")).to_be_visible()
    page.get_by_text("in messages too").click()
    expect(rows).to_have_text(["Parcel"])
    page.locator(".chip", has_text="support").click()
    expect(page).to_have_url(re.compile("label=team"))
    page.goto("/?status=running")
    expect(page.get_by_role("heading", name="No session fits")).to_be_visible()
    until(quick, "idle")


def test_usage_draws_what_its_tables_say(people: Visitors, project: Project, workers: Workers) -> None:
    session = start(project, {"text": "x"}, profile="refunds")
    spend(project, session)
    page = people.open("/usage")
    charts = page.locator("canvas[data-chart]")
    expect(charts.first).to_be_visible()
    blank = page.evaluate(
        """() => [...document.querySelectorAll("canvas[data-chart]")].filter((canvas) => {
             const drawn = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
             return !drawn.some((value) => value);
           }).length"""
    )
    assert (blank, charts.count() >= 3) == (0, True)
    expect(page.get_by_role("table").first).to_contain_text("refunds")
    page.get_by_role("link", name="7 days").click()
    expect(page.get_by_role("link", name="7 days")).to_have_attribute("aria-current", "page")
    page.wait_for_load_state("load")
    assert (
        page.evaluate("Chart.getChart(document.querySelector('canvas[data-chart]')).data.labels.length") == 7
    )


def test_health_shows_workers_come_and_go(people: Visitors, project: Project, workers: Workers) -> None:
    page = people.open("/health")
    expect(page.get_by_role("heading", name="No worker is alive")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_visible()
    workers.start("sweeper")
    worker = workers.start()
    expect(page.get_by_text("Agents can run")).to_be_visible()
    table = page.get_by_role("group", name="Workers")
    expect(table).to_contain_text(f"process {worker.pid}")
    start(project, {"text": "so " * 200, "tokens_per_second": 40}, name="Long one")
    expect(page.get_by_role("group", name="Leases")).to_contain_text("Long one")
    worker.kill()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("heading", name="No session is held")).to_be_visible()


def test_the_project_is_switched_and_the_pages_follow(
    people: Visitors, project: Project, tmp_path: Path
) -> None:
    other = Project.objects.create(name="other shop")
    start(project, {"text": "x"}, name="Of the first")
    start(other, {"text": "x"}, name="Of the other")
    page = people.open("/")
    expect(page.locator("[data-row]")).to_have_text(["Of the first"])
    page.get_by_label("Project").select_option("other shop")
    expect(page.locator("[data-row]")).to_have_text(["Of the other"])
    page.get_by_role("link", name="Usage").click()
    expect(page.get_by_text("Model calls of other shop")).to_be_visible()
    assert agents.row(Session.objects.get(name="Of the other").pk).project_id == other.pk
