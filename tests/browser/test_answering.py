"""What agents ask people: approvals and questions, in the session, in the inbox and in the admin."""

import re

from playwright.sync_api import Route, expect

from sessions_app.models import Project
from tests.acceptance import agents
from tests.browser.scenery import REFUND, WHERE_TO, answer_call, call, start, until
from tests.browser.session_page import card, entries, open_session, status, timeline
from tests.browser.visitors import Visitors
from tests.processes.workers import Workers
from tests.staging import eventually
from tools_app.models import Approval, Question

ASKS = {"tool_calls": [call("issue_refund", **REFUND)]}


def test_of_two_people_one_decides_and_the_other_is_told_who(
    people: Visitors, project: Project, workers: Workers
) -> None:
    """H2: the card of the second changes by itself; an answer that was on its way anyhow is refused."""
    session = start(project, ASKS, {"text": "Refunded."})
    workers.start()
    ada, bob, late = (open_session(people, session, name) for name in ("ada", "bob", "cem"))
    for page in (ada, bob, late):
        expect(card(page, "issue_refund")).to_contain_text("Needs approval")
        expect(card(page, "issue_refund")).to_contain_text("Arrived broken")

    def never(route: Route) -> None:
        """What he sees stays as it is: the answer does not come."""

    late.route(re.compile(r"/entries\?after="), never)
    ada.get_by_role("button", name="Allow").click()
    for page in (ada, bob):
        expect(card(page, "issue_refund")).to_contain_text("by ada")
        expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    people.problems.expect("status of 409")
    late.get_by_label("Reason").fill("Too much.")
    late.get_by_role("button", name="Deny").click()
    expect(late.get_by_role("alert")).to_contain_text("ada")
    expect(late.get_by_role("alert")).to_contain_text("What you chose was not taken")
    expect(card(late, "issue_refund")).to_contain_text("by ada")
    answer_call(session, "issue_refund", {"refund": "R-1"})
    for page in (ada, bob):
        expect(timeline(page)).to_contain_text("Refunded.")
        expect(status(page)).to_contain_text("Done")
    row = Approval.objects.get()
    assert (row.state, row.decided_by["name"], row.reason) == ("allowed", "ada", None)


def test_the_news_of_a_decision_do_not_take_the_place_of_its_answer(
    people: Visitors, project: Project, workers: Workers
) -> None:
    """Who is second hears so, and what they wrote stays theirs, also where the news come before the answer."""
    session = start(project, ASKS, {"text": "Then not."})
    workers.start()
    ada, bob = (open_session(people, session, name) for name in ("ada", "bob"))
    held = []
    for page in (ada, bob):
        page.route("**/decision", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks its handlers
    people.problems.expect("status of 409")
    for page in (ada, bob):
        page.get_by_label("Reason").fill("Because.")
        page.get_by_role("button", name="Deny").click()
        eventually(lambda page=page: page.evaluate("1") and len(held) > (page is bob), within=15)
    # Both have pressed before either is heard: ada first.
    answers = [route.fetch() for route in held]
    for page in (ada, bob):
        expect(timeline(page)).to_contain_text("Then not.")
    for route, answer, page in zip(held, answers, (ada, bob), strict=True):
        route.fulfill(response=answer)
        expect(card(page, "issue_refund")).to_contain_text("by ada")
        expect(page.get_by_label("Message", exact=True)).to_have_value("")
    expect(bob.get_by_role("alert")).to_contain_text("What you chose was not taken")
    expect(ada.get_by_role("alert")).to_have_count(0)


def test_the_reason_for_a_denial_reaches_the_agent(
    people: Visitors, project: Project, workers: Workers
) -> None:
    session = start(project, ASKS, {"text": "Then not."})
    workers.start()
    page = open_session(people, session)
    page.get_by_label("Reason").fill("She has been refunded already.")
    page.get_by_role("button", name="Deny").click()
    expect(card(page, "issue_refund")).to_contain_text("Denied")
    expect(timeline(page)).to_contain_text("Then not.")
    (result,) = agents.log_of(session.pk, "tool_result")
    assert "She has been refunded already." in result.data["content"][0]["text"]


def test_a_question_is_answered_by_its_form(people: Visitors, project: Project, workers: Workers) -> None:
    """What is missing is said where it is missing, and what was written stays."""
    session = start(project, {"tool_calls": [call("ask_user", **WHERE_TO)]}, {"text": "Sent."})
    workers.start()
    page, other = (open_session(people, session, name) for name in ("ada", "bob"))
    form = card(page, "ask_user")
    people.problems.expect("status of 400")
    form.get_by_label("Answer").fill("It is on its way.")
    form.get_by_role("button", name="Answer").click()
    expect(form.locator(".error")).to_have_count(1)
    expect(form.get_by_label("Answer")).to_have_value("It is on its way.")
    form.get_by_label("Rotterdam").check()
    form.get_by_role("button", name="Answer").click()
    for one in (page, other):
        expect(card(one, "ask_user")).to_contain_text("by ada")
        expect(card(one, "ask_user")).to_contain_text("Rotterdam")
        expect(timeline(one)).to_contain_text("Sent.")
    assert Question.objects.get().answers[0]["options"] == [1]


def test_the_inbox_is_worked_through_with_keys(people: Visitors, project: Project, workers: Workers) -> None:
    """j and k move, a allows, d asks why and denies; the title of the tab counts."""
    first, second, third = (
        start(project, ASKS, {"text": "x"}, name=name) for name in ("First", "Second", "Third")
    )
    workers.start()
    for session in (first, second, third):
        until(session, "waiting")
    until(start(project, {"tool_calls": [call("ask_user", **WHERE_TO)]}, name="Fourth"), "waiting")
    page = people.open("/inbox")
    expect(page).to_have_title(re.compile(r"^\(4\) Inbox"))
    expect(page.locator(".prompt")).to_have_count(4)
    decided = {}

    def state(name: str) -> str:
        return Approval.objects.get(session__name=name).state

    page.keyboard.press("j")
    expect(page.locator("[data-row]").nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    name = page.locator("[data-row]").nth(0).inner_text()
    page.keyboard.press("a")
    expect(page.locator(".prompt", has_text=name).get_by_role("button", name="Allow")).to_have_count(0)
    decided[name] = "allowed"
    expect(page).to_have_title(re.compile(r"^\(3\) Inbox"))
    row = page.locator(".prompt", has=page.get_by_role("button", name="Allow")).first
    name = row.locator("[data-row]").inner_text()
    row.locator("[data-row]").focus()
    page.keyboard.press("d")
    expect(page.get_by_role("dialog", name="Deny")).to_be_visible()
    page.keyboard.type("Not today.")
    # The list is renewed behind the dialog; the decision is still about what it was asked for.
    with page.expect_response("**/inbox"):
        page.evaluate("htmx.trigger('#inbox-list', 'console:refresh')")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_title(re.compile(r"^\(2\) Inbox"))
    decided[name] = "denied"
    assert {name: state(name) for name in decided} == decided
    assert Approval.objects.get(state="denied").reason == "Not today."
    # What others answer goes by itself.
    other = people.open("/inbox", "bob")
    row = other.locator(".prompt", has_text="Fourth")
    row.get_by_label("Leipzig").check()
    row.get_by_label("Answer").fill("Soon.")
    row.get_by_role("button", name="Answer").click()
    expect(page).to_have_title(re.compile(r"^\(1\) Inbox"))
    expect(page.locator(".prompt", has_text="Fourth").get_by_role("button", name="Answer")).to_have_count(0)


def test_several_approvals_are_decided_at_once(people: Visitors, project: Project, workers: Workers) -> None:
    """The answer is told also where the news of it come first."""
    sessions = [start(project, ASKS, {"text": "x"}, name=f"Number {number}") for number in range(3)]
    workers.start()
    for session in sessions:
        until(session, "waiting")
    page = people.open("/inbox")
    expect(page.get_by_role("button", name="Allow").first).to_be_visible()
    for name in ("Number 0", "Number 2"):
        page.locator(".prompt", has_text=name).get_by_role("checkbox").check()
    expect(page.locator("#bulk")).to_contain_text("2 marked")
    page.locator("#bulk").get_by_label("Reason").fill("All the same.")
    held = []
    page.route("**/inbox/decisions", lambda route: held.append((route, route.fetch())))
    page.locator("#bulk").get_by_role("button", name="Deny").click()
    expect(page).to_have_title(re.compile(r"^\(1\) Inbox"))
    ((route, answer),) = held
    route.fulfill(response=answer)
    expect(page.get_by_role("status").filter(has_text="2 denied")).to_be_visible()
    expect(page.locator(".prompt", has=page.get_by_role("button", name="Allow"))).to_have_count(1)
    assert Approval.objects.filter(state="denied", reason="All the same.").count() == 2


def test_staff_decide_in_the_admin(people: Visitors, project: Project, workers: Workers) -> None:
    session = start(project, ASKS, {"text": "Refunded."}, name="Broken cups")
    workers.start()
    until(session, "waiting")
    watching = open_session(people, session, "bob")
    page = people.open("/admin/tools_app/approval/")
    page.get_by_role("link", name="Decide").first.click()
    expect(page.locator("pre").first).to_contain_text("Arrived broken")
    page.get_by_label("Reason").fill("Seen the photos.")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(card(watching, "issue_refund")).to_contain_text("by ada")
    expect(card(watching, "issue_refund")).to_contain_text("Seen the photos.")
    expect(entries(watching, "approval_requested")).to_have_count(1)
