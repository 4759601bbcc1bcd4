"""What every page has: login, navigation by keys, themes, and the sign that something waits."""

import re

from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from sessions_app.models import Project
from tests.browser.scenery import REFUND, call, start, until
from tests.browser.session_page import timeline
from tests.browser.visitors import Visitors
from tests.factories import ACTOR
from tests.processes.workers import Workers
from tests.staging import eventually
from tools_app import approvals
from tools_app.models import Approval

LIGHT, DARK = "rgb(246, 246, 248)", "rgb(19, 19, 24)"


def arrived(page: Page, title: str) -> None:
    """The page with this title is there, and its scripts run."""
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    page.wait_for_load_state("load")


def test_a_staff_member_logs_in_and_out(people: Visitors) -> None:
    User.objects.create_user("grace", password="compile-it-then", is_staff=True)
    page = people.open("/usage", name=None)
    page.get_by_label("User name").fill("grace")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct")
    page.get_by_label("Password").fill("compile-it-then")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Usage")).to_be_visible()
    page.get_by_role("button", name="Log out grace").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_everything_is_reached_without_a_mouse(people: Visitors, project: Project, workers: Workers) -> None:
    """From the list to a session, to what it asks, and an answer."""
    done = start(project, {"text": "done"}, name="Done one")
    asking = start(
        project, {"tool_calls": [call("issue_refund", **REFUND)]}, {"text": "x"}, name="Asking one"
    )
    workers.start()
    until(done, "idle")
    until(asking, "waiting")
    page = people.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("j")
    row = page.locator("[data-row]").first
    expect(row).to_be_focused()
    name = row.inner_text()
    page.keyboard.press("Enter")
    arrived(page, name)
    page.keyboard.press("g")
    page.keyboard.press("i")
    arrived(page, "Inbox")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    arrived(page, "Asking one")
    allow = page.get_by_role("button", name="Allow")
    for _ in range(80):
        if allow.evaluate("(button) => button === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(allow).to_be_focused()
    page.keyboard.press("Enter")
    expect(timeline(page)).to_contain_text("by ada")
    page.keyboard.press("n")
    arrived(page, "New session")
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("heading", level=1, name="Health")).to_be_visible()


def test_the_theme_follows_the_system_or_the_choice(people: Visitors, project: Project) -> None:
    page = people.open("/", color_scheme="light")
    paper = page.locator("html")
    expect(paper).to_have_css("background-color", LIGHT)
    page.emulate_media(color_scheme="dark")
    expect(paper).to_have_css("background-color", DARK)
    page.emulate_media(color_scheme="light")
    expect(paper).to_have_css("background-color", LIGHT)
    toggle = page.get_by_role("button", name="Theme:")
    toggle.click()
    toggle.click()
    expect(toggle).to_contain_text("dark")
    expect(paper).to_have_css("background-color", DARK)
    page.goto("/usage")
    expect(paper).to_have_css("background-color", DARK)


def test_the_tab_says_how_much_waits_for_a_person(
    people: Visitors, project: Project, workers: Workers
) -> None:
    page = people.open("/usage")
    expect(page).to_have_title(re.compile("^Usage"))
    until_asked = start(project, {"tool_calls": [call("issue_refund", **REFUND)]}, {"text": "x"})
    workers.start()
    expect(page).to_have_title(re.compile(r"^\(1\) Usage"))
    expect(page.get_by_role("link", name="Inbox")).to_contain_text("1 waiting")
    until(until_asked, "waiting")
    approvals.decide(approval=Approval.objects.get().pk, decision="deny", actor=ACTOR)
    expect(page).to_have_title(re.compile("^Usage"))


def test_a_notification_comes_when_nobody_looks(people: Visitors, project: Project, workers: Workers) -> None:
    """Only for those who asked for it, and only while the tab is behind another."""
    context = people.context(permissions=["notifications"])
    context.add_init_script(
        """window.__told = [];
           window.Notification = class {
             constructor(title, how) { window.__told.push([title, how.body]); }
             close() {}
           };
           window.Notification.permission = "granted";
           window.Notification.requestPermission = async () => "granted";"""
    )
    page = context.new_page()
    page.goto("/health")
    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
    start(project, {"tool_calls": [call("issue_refund", **REFUND)]}, {"text": "x"})
    workers.start()
    told = eventually(lambda: page.evaluate("window.__told"), within=15)
    assert told == [["Tenure", "One thing waits for a person"]]
