"""The pictures in docs/images, taken of a real console: `make screenshots` writes them anew.

Not one of the tests: pytest runs it when it is named.
"""

from pathlib import Path

from playwright.sync_api import Page, expect

from sessions_app.models import Project
from tests.browser import scenery
from tests.browser.pages import paths
from tests.browser.session_page import card, wait_until_live
from tests.browser.visitors import Visitors
from tests.processes.workers import Workers

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "images"
LARGEST = 150_000
WIDE, HIGH = 1360, 850

BROKEN = """\
instructions: |
  You look after the orders of a small shop.
  Be brief and friendly.
model: anthropic:claude-sonnet-5
tools:
  issue_refund:
    class: custom
    description: Pay money back to the customer.
    input_schema: {type: object}
    deadline: soon
  ask_user: {}
permissions:
  - {tool: issue_refund, then: perhaps}
"""


def take(page: Page, name: str) -> None:
    """The window as it is now."""
    page.evaluate("document.fonts.ready")
    page.mouse.move(0, 0)
    FOLDER.mkdir(exist_ok=True)
    place = FOLDER / f"console-{name}.png"
    page.screenshot(path=place, animations="disabled", caret="hide")
    assert place.stat().st_size < LARGEST, f"{place.name} weighs {place.stat().st_size}"


def test_take_a_screenshot_of_each_page(people: Visitors, project: Project, workers: Workers) -> None:
    known = scenery.build(project, workers)
    scenery.crowd(project)
    places = paths(known)
    window = {"width": WIDE, "height": HIGH}
    page = people.context(viewport=window, color_scheme="light").new_page()
    dark = people.context(viewport=window, color_scheme="dark").new_page()

    page.goto(places["sessions"])
    expect(page.get_by_text("Running").first).to_be_visible()
    take(page, "sessions")

    for one, name in ((page, "session"), (dark, "session-dark")):
        one.set_viewport_size({"width": WIDE, "height": 1080})
        one.goto(places["session"])
        wait_until_live(one)
        expect(card(one, "issue_refund").get_by_role("button", name="Allow")).to_be_visible()
        one.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        expect(one.locator("#connection")).to_have_text("Live")
        take(one, name)
        one.set_viewport_size(window)

    page.goto(places["inbox"])
    expect(page.locator(".prompt")).to_have_count(2)
    page.keyboard.press("j")
    take(page, "inbox")

    page.goto(places["start"])
    page.get_by_text("YAML", exact=True).click()
    page.get_by_label("Config", exact=True).fill(BROKEN)
    expect(page.locator("#review").get_by_role("button", name="Line").first).to_be_visible()
    take(page, "start")

    page.goto(places["usage"])
    expect(page.locator("canvas").first).to_be_visible()
    take(page, "usage")

    page.goto(places["health"])
    expect(page.get_by_text("Agents can run")).to_be_visible()
    expect(page.get_by_role("group", name="Workers")).to_be_visible()
    take(page, "health")

    page.goto("/admin/tools_app/approval/")
    expect(page.get_by_role("link", name="Decide").first).to_be_visible()
    take(page, "admin-approvals")

    narrow = people.context(viewport={"width": 390, "height": 844}, color_scheme="light").new_page()
    narrow.goto(places["session"])
    wait_until_live(narrow)
    narrow.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    take(narrow, "session-narrow")
