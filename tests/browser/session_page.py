"""The session's page as tests speak of its parts."""

from playwright.sync_api import Locator, Page, expect

from sessions_app.models import Session
from tests.browser.scenery import address
from tests.browser.visitors import Visitors


def open_session(people: Visitors, session: Session, name: str = "ada", *, live: bool = True) -> Page:
    """The session's page in a new browser of this person; following its feed, unless told otherwise."""
    page = people.open(address(session), name)
    if live:
        wait_until_live(page)
    return page


def wait_until_live(page: Page) -> None:
    expect(page.locator("#session[data-live]")).to_be_attached()


def timeline(page: Page) -> Locator:
    return page.get_by_role("log")


def entries(page: Page, kind: str) -> Locator:
    """The entries of this kind that the page shows."""
    return page.locator(f"#timeline > [data-kind={kind}]")


def card(page: Page, tool: str) -> Locator:
    """The card of the call of this tool."""
    return page.locator("[data-card]", has=page.locator(".tool-name", has_text=tool))


def preview(page: Page) -> Locator:
    """The reply that is on its way."""
    return page.locator("#preview span.preview-text")


def status(page: Page) -> Locator:
    return page.locator("#session-status")
