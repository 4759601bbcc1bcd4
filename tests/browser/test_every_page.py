"""What holds on every page: narrow screens, contrast, names of controls, the keyboard, no error anywhere."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from sessions_app.models import Project
from tests.browser import scenery
from tests.browser.pages import paths
from tests.browser.visitors import Visitors
from tests.processes.workers import Workers

WORD = "endless" * 60


def settled(page: Page) -> None:
    """All of it is there, also what is drawn by scripts."""
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_load_state("load")


def test_no_page_is_wider_than_a_narrow_screen(people: Visitors, project: Project, workers: Workers) -> None:
    """Nor with words that have no end."""
    known = paths(scenery.build(project, workers)) | {"log in": "/login"}
    endless = scenery.start(
        project,
        {
            "reasoning": WORD,
            "text": f"# {WORD}\n\n{WORD}\n\n```\n{WORD}\n```\n\n| {WORD} | b |\n|---|---|\n| {WORD} | {WORD} |",
            "tool_calls": [scenery.call("issue_refund", order=WORD, amount=1)],
        },
        text=WORD,
        name=WORD[:200],
        labels={"a" * 60: WORD[:200]},
    )
    scenery.until(endless, "waiting")
    known["endless"] = scenery.address(endless)
    narrow = people.context(viewport={"width": 360, "height": 740}).new_page()
    wide = []
    for name, path in known.items():
        narrow.goto(path)
        settled(narrow)
        width = narrow.evaluate("document.documentElement.scrollWidth")
        if width > 360:
            wide.append(f"{name}: {width}")
        if name == "session":
            narrow.get_by_role("button", name="Menu").click()
            expect(narrow.get_by_role("link", name="Usage")).to_be_visible()
            narrow.keyboard.press("Escape")
    assert not wide


def test_axe_finds_nothing_wrong(people: Visitors, project: Project, workers: Workers) -> None:
    """In light and dark."""
    known = paths(scenery.build(project, workers)) | {"log in": "/login"}
    found = []
    # Only colours differ in the dark.
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page = people.context(color_scheme=scheme).new_page()
        for name, path in known.items():
            page.goto(path)
            settled(page)
            report = Axe().run(page, options={"resultTypes": ["violations"]} | rules)
            found += [
                f"{name}, {scheme}: {item['id']} ({item['help']}): {[node['target'] for node in item['nodes']][:4]}"
                for item in report.response["violations"]
            ]
    assert not found, "\n".join(found)
