"""Starting a session in the console."""

from typing import Any

import pytest
from django.test import Client

from sessions_app import ids, profiles
from sessions_app.console.yaml_places import Place, places
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import AgentConfig, AgentProfile, Entry, Input, Project, Session, SessionStatus
from tests import factories
from tests.sessions_app.console.conftest import HTMX

DOCUMENT = """\
instructions: Answer.
model: scripted:x
script:
  replies:
    - text: one
"""


@pytest.fixture
def profile(config: AgentConfig) -> AgentProfile:
    return profiles.create_profile(project=config.project_id, name="triage", config=config.pk, actor=SYSTEM)


def send(browser: Client, **fields: str) -> Any:
    return browser.post("/sessions/new", fields)


def started(answer: Any) -> Session:
    assert answer.status_code == 302, answer.content.decode()
    session = Session.objects.get()
    assert answer["Location"] == f"/sessions/{ids.encode('ses', session.pk)}"
    return session


def test_from_a_profile_with_a_name_labels_and_something_to_do(
    browser: Client, profile: AgentProfile
) -> None:
    answer = send(
        browser,
        source="profile",
        profile=ids.encode("prf", profile.pk),
        name=" Weekend ",
        labels="team: support\r\nurl: https://x.example\r\n\r\n",
        text="Go.\r\nOn.",
    )
    session = started(answer)
    assert session.profile_id == profile.pk
    assert session.name == "Weekend"
    assert session.labels == {"team": "support", "url": "https://x.example"}
    assert session.status == SessionStatus.QUEUED
    assert Input.objects.get().content == [{"type": "text", "text": "Go.\nOn."}]
    assert Entry.objects.get(seq=1).actor["name"] == "ada"


def test_without_anything_to_do_it_is_idle(browser: Client, profile: AgentProfile) -> None:
    session = started(send(browser, source="profile", profile="triage", text=" \n"))
    assert session.status == SessionStatus.IDLE
    assert not Input.objects.exists()


def test_from_yaml_which_can_be_kept_as_a_profile(browser: Client, project: Project) -> None:
    session = started(send(browser, source="document", document=DOCUMENT, save_as="mine"))
    assert session.config.document["model"] == {"provider": "scripted", "name": "x"}
    assert AgentProfile.objects.get(name="mine").pk == session.profile_id


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ("instructions: x\nmodel: scripted:x\ntools:\n  a:\n    class: nonsense\n", [5]),
        ("instructions: x\nmodle: x\n", [1, 2]),  # what is missing stands at the top
        ("instructions: x\nmodel: [\n", [3]),
        ("instructions: x\ninstructions: y\n", [2]),
        ("- a\n", [1]),
        ("", [1]),
        ("instructions: x\nmodel: scripted:x\nskills:\n  - a\n  - a\n", [5]),
    ],
)
def test_mistakes_are_shown_at_their_lines_and_nothing_is_started(
    browser: Client, project: Project, document: str, lines: list[int]
) -> None:
    answer = send(browser, source="document", document=document, name="kept", labels="a: b")
    assert answer.status_code == 400
    body = answer.content.decode()
    assert [int(part.split('"')[0]) for part in body.split('data-line="')[1:]] == lines
    assert 'value="kept"' in body
    assert "a: b" in body
    assert not Session.objects.exists()
    checked = browser.post("/sessions/new/check", {"document": document}, headers=HTMX).content.decode()
    assert [int(part.split('"')[0]) for part in checked.split('data-line="')[1:]] == lines


def test_what_the_deployment_lacks_is_a_warning(browser: Client, project: Project) -> None:
    document = DOCUMENT + "tools:\n  no_such_tool: {}\n"
    body = browser.post("/sessions/new/check", {"document": document}, headers=HTMX).content.decode()
    assert 'data-tone="warn"' in body
    assert 'data-line="7"' in body
    started(send(browser, source="document", document=document))


def test_a_document_without_mistakes_says_so(browser: Client, project: Project) -> None:
    body = browser.post("/sessions/new/check", {"document": DOCUMENT}, headers=HTMX).content.decode()
    assert "No mistakes" in body
    assert "<html" not in body


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"labels": "no colon"}, "labels-error"),
        ({"labels": "a: b\na: c"}, "labels-error"),
        ({"labels": f"{'k' * 101}: x"}, "labels-error"),
        ({"name": "n" * 201}, "name-error"),
        ({"profile": ""}, "profile-error"),
    ],
)
def test_other_mistakes_are_shown_at_their_fields(
    browser: Client, profile: AgentProfile, fields: dict[str, str], field: str
) -> None:
    answer = send(browser, **({"source": "profile", "profile": "triage"} | fields))
    assert answer.status_code == 400
    assert f'id="{field}"' in answer.content.decode()
    assert not Session.objects.exists()


def test_a_name_that_is_taken_keeps_nothing(browser: Client, profile: AgentProfile) -> None:
    answer = send(browser, source="document", document=DOCUMENT, save_as="Triage")
    assert answer.status_code == 409
    assert "A profile with this name exists" in answer.content.decode()
    assert not Session.objects.exists()
    assert AgentConfig.objects.count() == 1


def test_what_was_written_comes_back_as_text(browser: Client, profile: AgentProfile) -> None:
    evil = "</textarea><script>alert(1)</script>"
    answer = send(browser, source="document", document=evil, name=evil, labels=evil, text=evil, save_as=evil)
    assert answer.status_code == 400
    assert "<script>alert" not in answer.content.decode()


def test_the_form_names_its_project_so_that_another_tab_changes_nothing(
    browser: Client, profile: AgentProfile
) -> None:
    other = factories.project(name="elsewhere")
    browser.post("/project", {"project": ids.encode("prj", other.pk)})
    answer = send(browser, source="profile", profile="triage", project=ids.encode("prj", profile.project_id))
    assert started(answer).project_id == profile.project_id
    assert send(browser, source="profile", profile="triage", project="prj_nonsense").status_code == 404


def test_profiles_of_other_projects_are_not_offered(browser: Client, project: Project) -> None:
    foreign = factories.config()
    profiles.create_profile(project=foreign.project_id, name="theirs", config=foreign.pk, actor=SYSTEM)
    assert "theirs" not in browser.get("/sessions/new").content.decode()
    assert send(browser, source="profile", profile="theirs").status_code == 404


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("/a/b/1", Place(4, 5)),
        ("/a/b", Place(2, 3)),
        ("/a/missing/x", Place(1, 1)),
        ("/a~1b", Place(5, 1)),
        ("", Place(1, 1)),
    ],
)
def test_places_of_parts(pointer: str, place: Place) -> None:
    assert places("a:\n  b:\n  - 1\n  - 2\na/b: 3\n", [pointer]) == [place]
