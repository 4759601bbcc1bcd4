"""Who may see the console, and what its answers let a browser do."""

import json

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import Client

from sessions_app import ids
from sessions_app.console.pages import Shell
from sessions_app.console.session_list import Sessions
from sessions_app.errors import Conflict
from sessions_app.models import AgentConfig, Project, Session
from tests import factories
from tests.sessions_app.console.conftest import HTMX

PAGES = ["/", "/sessions/new", "/usage", "/health", "/inbox"]


@pytest.mark.parametrize("page", PAGES)
def test_nobody_is_sent_to_the_login_and_back(db: None, page: str) -> None:
    answer = Client().get(page)
    assert answer.status_code == 302
    assert answer["Location"] == f"/login?next={page}"


def test_a_fragment_sends_the_whole_page_to_the_login(db: None) -> None:
    here = {"HX-Current-URL": "http://testserver/?q=x"}
    answer = Client().get("/", headers=HTMX | here)
    assert answer.status_code == 401
    assert answer["HX-Redirect"] == "/login?next=http%3A//testserver/%3Fq%3Dx"


def test_the_login_does_not_send_people_to_other_sites(db: None) -> None:
    answer = Client().get("/", headers=HTMX | {"HX-Current-URL": "https://evil.example/"})
    assert answer["HX-Redirect"] == "/login?next=/"


@pytest.mark.parametrize("page", PAGES)
def test_accounts_that_are_not_staff_are_refused(db: None, page: str) -> None:
    client = Client()
    client.force_login(User.objects.create_user("mallory"))
    answer = client.get(page)
    assert answer.status_code == 403
    assert "Not for this account" in answer.content.decode()


def test_the_login_works_and_names_nobody_when_it_does_not(staff: User) -> None:
    client = Client()
    wrong = client.post("/login", {"username": "ada", "password": "no", "next": "/health"})
    assert wrong.status_code == 200
    assert 'role="alert"' in wrong.content.decode()
    right = client.post("/login", {"username": "ada", "password": "analytical-engine", "next": "/health"})
    assert right["Location"] == "/health"
    assert client.get("/health").status_code == 200
    assert client.post("/logout")["Location"] == "/login"
    assert client.get("/health").status_code == 302


@pytest.mark.parametrize("path", ["/project", "/sessions/new", "/sessions/new/check", "/logout"])
def test_no_form_is_taken_without_its_csrf_token(staff: User, path: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(staff)
    answer = client.post(path, {"text": "x"})
    assert answer.status_code == 403
    assert "Reload the page" in answer.content.decode()
    assert not Session.objects.exists()


@pytest.mark.parametrize("page", [*PAGES, "/login", "/nowhere", "/sessions/ses_nonsense"])
def test_every_answer_forbids_what_no_page_needs(browser: Client, page: str) -> None:
    answer = browser.get(page)
    policy = dict(part.split(" ", 1) for part in answer["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    body = answer.content.decode()
    assert "<script>" not in body
    assert " style=" not in body
    assert " onclick=" not in body


def test_pages_are_not_kept_by_caches(browser: Client) -> None:
    assert browser.get("/")["Cache-Control"] == "no-store"


def test_the_admin_keeps_a_policy_under_which_its_theme_works(browser: Client) -> None:
    policy = browser.get("/admin/login/")["Content-Security-Policy"]
    assert "script-src 'self' 'unsafe-inline' 'unsafe-eval'" in policy
    assert "frame-ancestors 'none'" in policy


def test_every_script_and_style_that_a_page_names_is_there(browser: Client, config: AgentConfig) -> None:
    """No build step and no other host: files of the repository or of installed packages."""
    session = factories.session(config=config)
    for page in ("/", "/sessions/new", "/usage", "/inbox", f"/sessions/{ids.encode('ses', session.pk)}"):
        body = browser.get(page).content.decode()
        named = [
            part.split('"')[0]
            for mark in ('src="', 'href="', 'data-icons="')
            for part in body.split(mark)[1:]
            if part.startswith(("/static/", "http", "//"))
        ]
        assert len(named) > 8
        for address in named:
            assert address.startswith("/static/"), address
            path = address.removeprefix("/static/").split("#")[0]
            assert finders.find(path), path


def test_the_switcher_changes_what_is_shown(browser: Client, project: Project, config: AgentConfig) -> None:
    other = factories.project(name="elsewhere")
    factories.session(config=config, name="Here")
    factories.session(config=factories.config(project=other), name="There")
    assert "Here" in browser.get("/").content.decode()
    answer = browser.post("/project", {"project": ids.encode("prj", other.pk)}, follow=True)
    body = answer.content.decode()
    assert "There" in body
    assert "Here" not in body


def test_a_project_that_is_not_there_is_not_chosen(browser: Client, project: Project) -> None:
    answer = browser.post("/project", {"project": ids.encode("prj", ids.new_id())})
    assert answer.status_code == 404


def test_a_choice_whose_project_is_gone_falls_back(browser: Client, project: Project) -> None:
    session = browser.session
    session["console_project"] = ids.encode("prj", ids.new_id())
    session.save()
    assert browser.get("/").status_code == 200


def test_pages_that_are_not_there_say_so_in_the_same_clothes(browser: Client, project: Project) -> None:
    assert settings.DEBUG is False
    for path in ("/nowhere", "/sessions/ses_x", f"/sessions/{ids.encode('ses', ids.new_id())}"):
        answer = browser.get(path)
        assert answer.status_code == 404, path
        assert "Nothing is here" in answer.content.decode()


def test_without_a_database_people_are_told_to_come_back(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(view: Sessions) -> Shell:
        raise OperationalError("terminating connection") from psycopg.errors.AdminShutdown("shut down")

    monkeypatch.setattr(Sessions, "shell", away)
    answer = browser.get("/")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert "Back soon" in answer.content.decode()


def test_a_crash_of_ours_shows_a_page_that_tells_nothing(
    staff: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(view: Sessions) -> Shell:
        raise RuntimeError("inner secret")

    monkeypatch.setattr(Sessions, "shell", crash)
    client = Client(raise_request_exception=False)
    client.force_login(staff)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "Something went wrong" in answer.content.decode()
    assert "inner secret" not in answer.content.decode()


def test_what_a_service_refuses_is_told_without_emptying_the_page(
    browser: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(view: Sessions, request: HttpRequest) -> HttpResponse:
        raise Conflict("somebody was faster")

    monkeypatch.setattr(Sessions, "post", refuse, raising=False)
    fragment = browser.post("/", headers=HTMX)
    assert fragment.status_code == 409
    assert fragment["HX-Reswap"] == "none"
    told = {"console:toast": {"text": "somebody was faster", "tone": "bad"}}
    assert json.loads(fragment["HX-Trigger"]) == told
    page = browser.post("/", headers={"Referer": "http://testserver/?q=x"}, follow=True)
    assert page.redirect_chain == [("http://testserver/?q=x", 302)]
    assert "somebody was faster" in page.content.decode()
    elsewhere = browser.post("/", headers={"Referer": "https://evil.example/"})
    assert elsewhere["Location"] == "/"
