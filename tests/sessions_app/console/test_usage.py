"""The usage page: the sums are right, and the tables say what the charts show."""

import json
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app.console import usage
from sessions_app.models import AgentConfig, AgentProfile, ModelCall, Project, Session
from tests import factories


def call(session: Session, *, days_ago: float = 0, **columns: Any) -> ModelCall:
    values = {"state": "succeeded", "input_tokens": 100, "output_tokens": 10, "cost": Decimal("0.5")}
    return ModelCall.objects.create(
        session=session,
        config_id=columns.pop("config_id", session.config_id),
        attempt=1,
        covers_seq=1,
        started_at=factories.database_now() - timedelta(days=days_ago),
        ended_at=factories.database_now(),
        **values | columns,
    )


def charts(body: str) -> dict[str, Any]:
    found = re.findall(r'<script id="chart-(\w+)" type="application/json">(.*?)</script>', body, re.DOTALL)
    return {key: json.loads(text) for key, text in found}


def test_sums_by_day_profile_and_model(browser: Client, config: AgentConfig) -> None:
    triage = AgentProfile.objects.create(project=config.project, name="triage", config=config)
    with_profile, without = (
        factories.session(config=config, profile=triage),
        factories.session(config=config),
    )
    call(with_profile, cached_tokens=40, reasoning_tokens=3)
    call(with_profile, days_ago=1, cost=None)
    call(without, days_ago=1, cost=Decimal("0.25"))
    call(without, days_ago=8, cost=Decimal(9))
    call(factories.session(), cost=Decimal(100))  # of another project
    week = usage.report(project=config.project_id, days=7)
    assert (week.total.cost, week.total.model_calls, week.total.unpriced) == (Decimal("0.75"), 3, 1)
    assert (week.total.input_tokens, week.total.cached_tokens, week.total.output_tokens) == (300, 40, 30)
    by_profile = {row.name: row.cost for row in week.tables[0].rows}
    assert by_profile == {"triage": Decimal("0.5"), "Without a profile": Decimal("0.25")}
    assert usage.report(project=config.project_id, days=30).total.cost == Decimal("9.75")
    body = browser.get("/usage?days=7").content.decode()
    drawn = charts(body)
    assert len(drawn["cost"]["labels"]) == 7
    assert sum(sum(series["values"]) for series in drawn["cost"]["series"]) == 0.75
    assert drawn["tokens"]["series"][0]["values"][-1] == 60
    assert "and 1 calls without a known price" not in body
    assert "and 1 call without a known price" in body


def test_many_models_share_the_colours_there_are(browser: Client, config: AgentConfig) -> None:
    session = factories.session(config=config)
    for number in range(9):
        document = {"instructions": "x", "model": {"provider": "openai", "name": f"m{number}"}}
        other = factories.config(project=config.project, document=document)
        call(session, config_id=other.pk, cost=Decimal(number + 1))
    series = charts(browser.get("/usage").content.decode())["cost"]["series"]
    assert [one["name"] for one in series] == [
        "openai:m8", "openai:m7", "openai:m6", "openai:m5", "openai:m4", "Others",
    ]  # fmt: skip
    assert sum(series[-1]["values"]) == 1 + 2 + 3 + 4


def test_names_are_text_in_tables_and_charts(browser: Client, config: AgentConfig) -> None:
    evil = "</script><script>alert(1)</script>"
    profile = AgentProfile.objects.create(project=config.project, name=evil, config=config)
    call(factories.session(config=config, profile=profile))
    body = browser.get("/usage").content.decode()
    assert "<script>alert" not in body
    assert charts(body)["profiles"]["labels"] == [evil]


def test_without_any_call_the_page_says_so(browser: Client, project: Project) -> None:
    for query in ("", "?days=7", "?days=nonsense", "?days=5"):
        assert "Nothing was used" in browser.get(f"/usage{query}").content.decode()


def test_the_report_costs_the_same_for_many_calls(config: AgentConfig) -> None:
    session = factories.session(config=config)

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            usage.report(project=config.project_id, days=30)
        return len(queries)

    call(session)
    one = cost()
    for number in range(10):
        call(session, days_ago=number)
    assert cost() == one <= 2
