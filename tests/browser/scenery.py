"""A project of a small shop as people meet it: agents that work, wait, failed or are done, and what they cost.

Real workers run the sessions; only the past (model calls of the last weeks) is made as rows.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sessions_app import configs, ids, profiles, session_service
from sessions_app.entry_kinds import Actor
from sessions_app.inputs import NewInput
from sessions_app.models import AgentConfig, AgentProfile, ModelCall, Project, Session
from tests import factories
from tests.factories import database_now
from tests.processes.workers import Workers
from tests.staging import eventually
from tools_app import custom_tools
from tools_app.models import ToolCall, ToolCallState, ToolClass

ACTOR: Actor = {"kind": "user", "id": "usr_nora", "name": "Nora"}

TOOLS: dict[str, Any] = {
    "find_order": {
        "class": "custom",
        "description": "Look an order up in the shop.",
        "input_schema": {
            "type": "object",
            "properties": {"order": {"type": "string"}},
            "required": ["order"],
        },
    },
    "issue_refund": {
        "class": "custom",
        "description": "Pay money back to the customer.",
        "input_schema": {
            "type": "object",
            "properties": {
                "order": {"type": "string"},
                "amount": {"type": "number"},
                "currency": {"type": "string"},
                "reason": {"type": "string"},
            },
            "required": ["order", "amount"],
        },
    },
    "ask_user": {},
    "set_label": {},
    "dev_lookup": {},
}
RULES = [{"tool": "issue_refund", "then": "ask"}]

ORDER = {
    "order": "A-10482",
    "customer": "Mara Lind",
    "total": 89.9,
    "currency": "EUR",
    "state": "delivered damaged",
}

REFUND = {
    "order": "A-10482",
    "amount": 89.9,
    "currency": "EUR",
    "reason": "Arrived broken; the customer sent photos",
}

WHERE_TO = {
    "questions": [
        {
            "text": "Which warehouse shall send the replacement?",
            "options": [
                {"label": "Leipzig", "description": "two days, 14 in stock"},
                {"label": "Rotterdam", "description": "four days, 230 in stock"},
            ],
        },
        {"text": "What shall I write to the customer?"},
    ]
}

ANSWER = """\
The refund is **on its way**. What I did:

1. Checked order `A-10482`: delivered on Friday, two of three cups broken.
2. Compared it with the [returns policy](https://shop.example/returns): damage in transit is refunded in full.
3. Asked for your approval, because it is above 50 EUR.

| item | price | refunded |
|---|---:|---:|
| Cup, blue | 29.90 | 29.90 |
| Cup, green | 29.90 | 29.90 |
| Saucer | 30.10 | 30.10 |
"""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def document(*replies: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "instructions": "You look after the orders of a small shop. Be brief and friendly.",
        "model": "scripted:shop",
        "tools": TOOLS,
        "permissions": RULES,
        "script": {"replies": list(replies)},
    } | changed


def start(
    project: Project,
    *replies: dict[str, Any],
    text: str = "hello",
    name: str = "",
    labels: dict[str, str] | None = None,
    profile: str | None = None,
    **changed: Any,
) -> Session:
    """A session that is due, whose model plays these replies; with `profile` it is started from one of this name."""
    config = configs.create_config(project=project.pk, document=document(*replies, **changed)).row
    chosen: UUID | None = None
    if profile is not None:
        known = AgentProfile.objects.filter(project=project, name=profile).first()
        if known is None:
            known = profiles.create_profile(project=project.pk, name=profile, config=config.pk, actor=ACTOR)
        elif known.config_id != config.pk:
            known.config_id = config.pk
            known.save()
        chosen = known.pk
    return session_service.start_session(
        project=project.pk,
        actor=ACTOR,
        name=name,
        labels=labels or {},
        **({"profile": chosen} if chosen else {"config": config.pk}),
        input=NewInput(content=[{"type": "text", "text": text}], actor=ACTOR),
    )


def address(session: Session) -> str:
    """The path of its page."""
    return f"/sessions/{ids.encode('ses', session.pk)}"


def until(session: Session, *statuses: str, within: float = 30) -> Session:
    """The session once it has one of these statuses."""

    def found() -> Session | None:
        now = Session.objects.get(pk=session.pk)
        return now if now.status in statuses else None

    row: Session = eventually(found, within=within)
    return row


def answer_call(session: Session, name: str, value: Any) -> None:
    """What the shop's backend does: it posts the result of a call that waits for it."""

    def waiting() -> ToolCall | None:
        calls = ToolCall.objects.filter(
            session=session, name=name, state=ToolCallState.WAITING, tool_class=ToolClass.CUSTOM
        )
        return calls.first()

    row: ToolCall = eventually(waiting, within=30)
    custom_tools.submit_result(
        project=session.project_id,
        tool_call=row.pk,
        outcome="succeeded",
        content=[{"type": "data", "value": value}],
        actor=ACTOR,
    )


@dataclass(frozen=True, slots=True)
class Scenery:
    refund: Session
    """Has said and looked up this and that, and waits for an approval."""
    replacement: Session
    """Asks a question."""
    digest: Session
    """Done."""


def build(project: Project, workers: Workers) -> Scenery:
    """All of it, with one worker that is still alive at the end."""
    workers.start("sweeper", owner="sweeper")
    workers.start(owner="shop-1")
    refund = start(
        project,
        {
            "reasoning": "The order first, then what the policy says about damage in transit.",
            "text": "I'm looking the order up.",
            "tool_calls": [call("find_order", order="A-10482")],
        },
        {
            "text": "Two of the three cups arrived broken, so the policy gives a **full refund**.",
            "tool_calls": [call("issue_refund", **REFUND)],
        },
        {"text": ANSWER},
        text="Mara Lind writes that her cups arrived broken (order A-10482). What can we do for her?",
        name="Broken cups: refund",
        labels={"team": "support", "order": "A-10482"},
        profile="refunds",
    )
    answer_call(refund, "find_order", ORDER)
    replacement = start(
        project,
        {"text": "I can send a replacement.", "tool_calls": [call("ask_user", **WHERE_TO)]},
        {"text": "Sent."},
        text="The teapot of order B-2207 has no lid. Send another one.",
        name="Teapot without a lid",
        labels={"team": "support", "order": "B-2207"},
        profile="replacements",
    )
    digest = start(
        project,
        {"error": {"status": 529}},
        {"tool_calls": [call("dev_lookup", key="reviews of this week")]},
        {"text": ANSWER},
        text="Summarize what customers wrote this week.",
        name="Weekly digest",
        labels={"team": "marketing"},
        profile="digests",
    )
    stopped = start(
        project,
        {"error": {"status": 401, "message": "the key was revoked"}},
        text="Translate the new product texts into Dutch.",
        name="Product texts, Dutch",
        labels={"team": "content"},
    )
    for session in (refund, replacement):
        until(session, "waiting")
    until(digest, "idle")
    until(stopped, "idle")
    spend(project, refund)
    return Scenery(refund=refund, replacement=replacement, digest=digest)


def crowd(project: Project) -> None:
    """More sessions beside those of `build`: one at work, one that waits for its provider, many that are done."""
    done = [
        ("Parcel stuck at the customs", "support", "C-3019"),
        ("Invoice for the school order", "accounting", "B-1871"),
        ("Which glaze is dishwasher safe?", "support", "A-9940"),
        ("Restock the blue cups", "purchasing", "P-77"),
        ("Address change before shipping", "support", "C-3102"),
    ]
    for name, team, order in done:
        start(
            project,
            {"text": ANSWER},
            text=f"{name}, please.",
            name=name,
            labels={"team": team, "order": order},
            profile="orders",
        )
    start(
        project,
        {"error": {"status": 429, "retry_after": 600}},
        text="Compare our prices with the last catalogue.",
        name="Prices of the catalogue",
        labels={"team": "purchasing"},
        profile="digests",
    )
    rest = [row.pk for row in Session.objects.filter(project=project)]
    at_work = start(
        project,
        {"text": ANSWER * 40, "tokens_per_second": 30},
        text="Write the newsletter for December.",
        name="Newsletter, December",
        labels={"team": "marketing"},
        profile="digests",
    )
    until(at_work, "running")
    resting = {"idle", "waiting", "backing_off"}
    eventually(lambda: all(row.status in resting for row in Session.objects.filter(pk__in=rest)), within=60)


def spend(project: Project, session: Session) -> None:
    """Model calls of the last four weeks, of two models."""
    models = [
        ("anthropic", "claude-sonnet-5", Decimal("0.041")),
        ("openai", "gpt-6-mini", Decimal("0.007")),
    ]
    calls = []
    now = database_now()
    for provider, model, price in models:
        config: AgentConfig = factories.config(
            project=project, document={"instructions": "x", "model": {"provider": provider, "name": model}}
        )
        for day in range(1, 28):
            for number in range(2 + round(2 * math.sin(day / 3.0) + 2)):
                at = now - timedelta(days=day, minutes=7 * number)
                calls.append(
                    ModelCall(
                        session=session,
                        config=config,
                        attempt=1,
                        covers_seq=1,
                        state="succeeded",
                        started_at=at,
                        ended_at=at + timedelta(seconds=3),
                        input_tokens=5200 + 130 * day,
                        cached_tokens=3100,
                        output_tokens=410 + 12 * day,
                        reasoning_tokens=120,
                        cost=price * (3 + day % 5) / 3,
                    )
                )
    ModelCall.objects.bulk_create(calls)
