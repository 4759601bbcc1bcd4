"""Cards of tool calls in a session's page: what state they are in, and that all of it is text."""

import re
from datetime import timedelta
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app import ids
from sessions_app.models import Session
from tests import factories
from tests.sessions_app.console.conftest import HTMX
from tests.sessions_app.console.logs import EVIL, reply, text, write
from tools_app.models import Approval, ToolCall, ToolCallState


def address(session: Session, more: str = "") -> str:
    return f"/sessions/{ids.encode('ses', session.pk)}{more}"


def body(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.content[:500]
    return str(answer.content.decode())


def key(call: ToolCall) -> str:
    return ids.encode("tcl", call.pk)


def block(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "tool_call": key(call),
        "id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }


def card(page: str, call: ToolCall) -> str:
    found = re.search(rf'<details class="card tool"\s+id="card-{key(call)}".*?</summary>', page, re.DOTALL)
    assert found is not None
    return found.group(0)


def test_a_reply_shows_its_calls_as_they_are_now(browser: Client, session: Session) -> None:
    factories.open_turn(session)
    now = factories.database_now()
    rows = {
        "Ready": factories.tool_call(session),
        "Running": factories.tool_call(session, state=ToolCallState.RUNNING, attempt=1),
        "Waits for a backend": factories.tool_call(session, state=ToolCallState.WAITING),
        "Asks a question": factories.question(session).tool_call,
        "Needs approval": factories.approval(session).tool_call,
        "Done": factories.tool_call(
            session, state=ToolCallState.COMPLETED, started_at=now - timedelta(seconds=75), completed_at=now
        ),
        "Failed": factories.tool_call(session, state=ToolCallState.COMPLETED, outcome="failed"),
        "Interrupted": factories.tool_call(session, state=ToolCallState.COMPLETED, outcome="interrupted"),
    }
    write(session, reply(*(block(call) for call in rows.values()), stop="tool_calls"))
    page = body(browser.get(address(session)))
    for words, call in rows.items():
        assert words in card(page, call), words
    assert "1 min 15 s" in card(page, rows["Done"])
    assert "whether it took effect is not known" in page
    asking = [
        name
        for name, call in rows.items()
        if card(page, call).partition("<summary")[0].rstrip(" >\n").endswith("open")
    ]
    assert sorted(asking) == ["Asks a question", "Needs approval"]


def test_nothing_of_a_call_becomes_markup(browser: Client, session: Session) -> None:
    factories.open_turn(session)
    form = [
        {
            "text": EVIL,
            "options": [{"label": EVIL, "description": EVIL}],
            "multiple": True,
            "allow_text": True,
        }
    ]
    rows = [
        factories.approval(session, name=EVIL, arguments={EVIL: EVIL}).tool_call,
        factories.question(session, form=form).tool_call,
        factories.tool_call(
            session,
            name=EVIL,
            state=ToolCallState.COMPLETED,
            arguments=[EVIL],
            content=[text(EVIL), {"type": "data", "value": EVIL}, {"type": EVIL}],
        ),
    ]
    write(session, reply(*(block(call) for call in rows), stop="tool_calls"))
    denied = factories.approval(session, name="later").tool_call
    Approval.objects.filter(tool_call=denied).update(
        state="denied",
        reason=EVIL,
        decided_by={"kind": "user", "id": EVIL, "name": EVIL},
        decided_at=factories.database_now(),
    )
    write(session, reply(block(denied), stop="tool_calls"))
    for path in (address(session), address(session, "/entries?after=0"), "/inbox"):
        page = body(browser.get(path, headers=HTMX if "after" in path else {}))
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_a_card_whose_reply_is_on_the_page_already_comes_by_itself(browser: Client, session: Session) -> None:
    """Whoever decides, however: the entry names the approval, and every page gets the card of its call."""
    factories.open_turn(session)
    row = factories.approval(session)
    (seq,) = write(session, reply(block(row.tool_call), stop="tool_calls"))
    before = body(browser.get(address(session, "/entries"), {"after": seq}, headers=HTMX))
    assert "data-card" not in before
    browser.post(f"/approvals/{ids.encode('apr', row.pk)}/decision", {"decision": "allow"}, headers=HTMX)
    since = body(browser.get(address(session, "/entries"), {"after": seq}, headers=HTMX))
    loose = since.partition("data-loose")[2].partition("data-parts")[0]
    assert "Allowed" in loose
    assert "by ada" in loose
    assert loose.count("data-card") == 1


def test_a_call_of_another_session_is_not_shown(browser: Client, session: Session) -> None:
    other = factories.session(config=session.config)
    factories.open_turn(other)
    call = factories.tool_call(other, arguments={"secret": "of the other"})
    write(session, reply(block(call) | {"arguments": {}}))
    page = body(browser.get(address(session)))
    assert "of the other" not in page
    assert "card-" + key(call) not in page


def test_the_limit_that_is_asked_about_has_its_card(browser: Client, session: Session) -> None:
    turn = factories.open_turn(session)
    arguments = {"limit": "turn.model_calls", "used": "9", "of": "9"}
    row = Approval.objects.create(
        project_id=session.project_id,
        session=session,
        turn=turn,
        name="limit",
        arguments=arguments,
        digest="x",
    )
    approval = ids.encode("apr", row.pk)
    data = {"approval": approval, "tool_call": None, "name": "limit", "arguments": arguments, "rule": None}
    write(session, ("approval_requested", data))
    page = body(browser.get(address(session)))
    assert f'id="card-{approval}"' in page
    assert "Go on beyond the limit?" in page
    answer = browser.post(f"/approvals/{approval}/decision", {"decision": "allow"}, headers=HTMX)
    assert "Allowed" in body(answer)
    assert "data-allow" not in body(answer)


def test_cards_cost_the_same_for_many_calls(browser: Client, session: Session) -> None:
    factories.open_turn(session)

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            body(browser.get(address(session, "/entries"), {"after": "0"}, headers=HTMX))
        return len(queries)

    write(session, reply(block(factories.approval(session).tool_call)))
    one = cost()
    for _ in range(10):
        write(
            session,
            reply(block(factories.approval(session).tool_call), block(factories.question(session).tool_call)),
        )
    assert cost() == one
    assert one <= 8  # login, user, session, entries, approvals, questions, calls, queue


def test_long_texts_among_arguments_are_read_as_text(browser: Client, session: Session) -> None:
    """A command or a file to be written is judged by its lines, not by `\\n`."""
    factories.open_turn(session)
    arguments = {"path": "a.py", "text": 'print("<b>")\nprint(2)', "mode": 5}
    write(session, reply(block(factories.approval(session, arguments=arguments).tool_call)))
    page = body(browser.get(address(session)))
    for shown in ("&quot;a.py&quot;", "print(&quot;&lt;b&gt;&quot;)\nprint(2)", ">5<"):
        assert shown in page
