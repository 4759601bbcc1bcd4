"""People with a browser: each has a context of their own, and whatever goes wrong in their pages is kept.

An error in a script, a violation of the Content-Security-Policy, a failed answer or a request to another host
fails the test at its end, unless the test said beforehand that it is to be expected.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response

LIMIT = 15_000
"""Milliseconds that a page has for whatever a test waits for; a busy machine is slow."""

_WATCH_POLICY = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} refused ${event.blockedURI} ${event.sample}`));
"""


@dataclass
class Problems:
    """What went wrong in the pages of one test, and which of it was expected."""

    found: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=list)

    def expect(self, *patterns: str) -> None:
        """These may happen from here on."""
        self.expected += [re.compile(pattern) for pattern in patterns]

    def note(self, text: str) -> None:
        if not any(pattern.search(text) for pattern in self.expected):
            self.found.append(text)

    def watch(self, page: Page, address: str) -> None:
        """Take note of everything that this page complains about."""

        def said(message: ConsoleMessage) -> None:
            if message.type == "error":
                self.note(f"console of {page.url}: {message.text} ({message.location.get('url', '')})")

        def answered(response: Response) -> None:
            if response.status >= 500:
                self.note(f"{response.status} for {response.url}")

        def asked(request: Any) -> None:
            scheme, host = urlsplit(request.url)[:2]
            if scheme in {"http", "https", "ws", "wss"} and host != urlsplit(address).netloc:
                self.note(f"a request to another host: {request.url}")

        page.on("console", said)
        page.on("pageerror", lambda error: self.note(f"error in {page.url}: {error}"))
        page.on("response", answered)
        page.on("request", asked)


class Visitors:
    """Opens pages as staff members, each name with a context of its own."""

    def __init__(self, browser: Browser, address: str, problems: Problems) -> None:
        self.address = address
        self.problems = problems
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    def context(self, name: str | None = "ada", **options: Any) -> BrowserContext:
        """A browser of this staff member, logged in; of nobody without a name."""
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
        made = self._browser.new_context(base_url=self.address, **options)
        made.set_default_timeout(LIMIT)
        made.add_init_script(_WATCH_POLICY)
        made.on("page", lambda page: self.problems.watch(page, self.address))
        self._contexts.append(made)
        if name is not None:
            made.add_cookies(
                [{"name": settings.SESSION_COOKIE_NAME, "value": login(name), "url": self.address}]
            )
        return made

    def open(self, path: str, name: str | None = "ada", **options: Any) -> Page:
        """A page in a new browser of this staff member."""
        page = self.context(name, **options).new_page()
        page.goto(path)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def login(name: str) -> str:
    """The cookie of a new login of this staff member, who is made if needed. Everybody here may do everything."""
    user, is_new = User.objects.get_or_create(
        username=name, defaults={"is_staff": True, "is_superuser": True}
    )
    if is_new:
        user.set_unusable_password()
        user.save()
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


@contextmanager
def visitors(browser: Browser, address: str) -> Iterator[Visitors]:
    """For one test; fails at the end if their pages had unexpected problems."""
    made = Visitors(browser, address, Problems())
    try:
        yield made
    finally:
        made.close()
    assert not made.problems.found, "\n".join(made.problems.found)
