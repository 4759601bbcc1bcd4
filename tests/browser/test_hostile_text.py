"""What models, tools and people write is text wherever a page shows it, and never runs."""

from playwright.sync_api import Page, expect

from sessions_app import configs, profiles
from sessions_app.models import Project
from tests.acceptance import agents
from tests.browser.scenery import answer_call, call, document, start, until
from tests.browser.session_page import card, entries, open_session, preview, timeline
from tests.browser.visitors import Visitors
from tests.factories import ACTOR
from tests.processes.workers import Workers
from tools_app import approvals
from tools_app.models import Approval

SCRIPT = "<script>window.__pwned = 1</script>"
EVIL = (
    f'{SCRIPT}</script></textarea></title>--><img src="/nothing-{{}}" onerror="window.__pwned = 1">'
    '"><svg onload="window.__pwned = 1">'
    "{{ 7|add:7 }}"
)
MARKDOWN = (
    f"{EVIL}\n\n[click](javascript:window.__pwned=1) ![picture](https://elsewhere.example/pixel.png)\n\n"
    f"```html\n{EVIL}\n```\n\n<details open ontoggle='window.__pwned = 1'><summary>x</summary></details>"
)


def assert_harmless(page: Page) -> None:
    """Nothing of it ran or became an element. That nothing was loaded is seen by `people`, as of every page."""
    assert page.evaluate("window.__pwned") is None
    found = page.evaluate(
        """() => [...document.querySelectorAll("*")].flatMap((element) =>
             [...element.attributes].filter(({ name, value }) =>
               name.startsWith("on") || /^\\s*javascript:/i.test(value) || value.startsWith("https://elsewhere")
                 && name !== "href").map(({ name, value }) => `${element.tagName} ${name}=${value}`))"""
    )
    assert found == []
    assert (
        page.evaluate(
            "document.querySelectorAll('script:not([src]):not([type=\"application/json\"])').length"
        )
        == 0
    )


def test_hostile_text_does_nothing_anywhere(people: Visitors, project: Project, workers: Workers) -> None:
    config = configs.create_config(project=project.pk, document=document({"text": "x"})).row
    profiles.create_profile(project=project.pk, name=f"{EVIL}"[:100], config=config.pk, actor=ACTOR)
    form = {
        "questions": [
            {
                "text": EVIL,
                "options": [{"label": EVIL, "description": EVIL}, {"label": "no"}],
                "allow_text": True,
            }
        ]
    }
    session = start(
        project,
        {"reasoning": EVIL, "text": MARKDOWN, "tool_calls": [call("find_order", order=EVIL)]},
        {
            "text": MARKDOWN,
            "tokens_per_second": 200,
            "tool_calls": [call("issue_refund", order=EVIL, amount=1)],
        },
        {"tool_calls": [call("ask_user", **form)]},
        {"error": {"status": 401, "message": EVIL}},
        text=EVIL,
        name=f"Name {EVIL}"[:200],
        labels={"evil": EVIL[:200], "team": SCRIPT},
    )
    watching = open_session(people, session)
    workers.start()
    answer_call(session, "find_order", {"answer": EVIL, EVIL: [EVIL]})
    expect(preview(watching).last).to_contain_text("window.__pwned")
    assert_harmless(watching)
    until(session, "waiting")
    expect(card(watching, "issue_refund")).to_contain_text(SCRIPT)
    inbox = people.open("/inbox", "bob")
    expect(inbox.locator(".prompt")).to_contain_text(SCRIPT)
    assert_harmless(inbox)
    approvals.decide(approval=Approval.objects.get().pk, decision="deny", reason=EVIL, actor=ACTOR)
    expect(card(watching, "ask_user")).to_contain_text(SCRIPT)
    until(session, "waiting")
    for heading in (watching.get_by_role("heading", level=1), entries(watching, "assistant_message").first):
        expect(heading).to_contain_text("<script>window.__pwned = 1</script>")
    expect(card(watching, "find_order").locator("pre").first).to_contain_text(SCRIPT)
    expect(timeline(watching)).to_contain_text("{{ 7|add:7 }}")
    assert_harmless(watching)
    inbox.reload()
    expect(inbox.locator(".prompt .asked")).to_contain_text(SCRIPT)
    assert_harmless(inbox)
    watching.reload()
    expect(entries(watching, "user_message").first).to_contain_text(SCRIPT)
    assert_harmless(watching)
    watching.get_by_label("Something else").fill("stop")
    watching.get_by_role("button", name="Answer").click()
    expect(entries(watching, "turn_ended")).to_contain_text("refused the credentials")
    assert_harmless(watching)
    assert agents.row(session.pk).status == "idle"
    inbox.close()
    others = (
        "/",
        "/sessions/new",
        "/usage",
        "/health",
        "/?q=%3Cscript%3E&messages=1",
        "/admin/tools_app/approval/",
    )
    for path in others:
        page = watching
        page.goto(path)
        expect(page.locator("h1, #content").first).to_be_attached()
        assert page.evaluate("window.__pwned") is None
        if not path.startswith("/admin/"):
            assert_harmless(page)
