"""What it all took: tokens and cost by day, profile and model, as charts and as the tables beside them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from sessions_app import usage
from sessions_app.console.pages import ConsolePage
from sessions_app.models import AgentProfile

SPANS = (7, 30, 90)
MOST_GROUPS = 10_000
SERIES = 6
"""Models with a colour of their own; the last colour is for all others together."""


@dataclass(slots=True, kw_only=True)
class Sum:
    """What a group took; `cost` is None where no price was known, `unpriced` how many calls that leaves out."""

    name: str = ""
    cost: Decimal | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    unpriced: int = 0

    def add(self, row: usage.Row) -> None:
        if row.cost is not None:
            self.cost = (self.cost or Decimal(0)) + row.cost
        self.input_tokens += row.input_tokens
        self.cached_tokens += row.cached_tokens
        self.output_tokens += row.output_tokens
        self.reasoning_tokens += row.reasoning_tokens
        self.model_calls += row.calls
        self.unpriced += row.unpriced_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`data` is what charts.js draws."""

    key: str
    title: str
    data: dict[str, Any]

    @property
    def element(self) -> str:
        return f"chart-{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    key: str
    title: str
    column: str
    rows: list[Sum]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    days: int
    total: Sum
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


class Usage(ConsolePage):
    place = "console:usage"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The last days, today included."""
        given = request.GET.get("days", "")
        days = int(given) if given in {str(span) for span in SPANS} else SPANS[1]
        context = {"report": report(project=self.project, days=days), "spans": SPANS}
        return self.page("console/usage/page.html", context)


def report(*, project: UUID, days: int) -> Report:
    """Two statements, however many calls, profiles and models there are."""
    end = datetime.now(UTC)
    first = end.date() - timedelta(days=days - 1)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    rows = usage.usage(
        project=project, start=start, end=end, group_by=("day", "profile", "model"), limit=MOST_GROUPS
    )
    total = Sum(name="Total")
    for row in rows:
        total.add(row)
    if not total.model_calls:
        return Report(days=days, total=total)
    names = _profiles(rows)
    by_day = {first + timedelta(days=number): Sum() for number in range(days)}
    for row in rows:
        if row.day in by_day:
            by_day[row.day].add(row)
    for day, found in by_day.items():
        found.name = day.isoformat()
    by_profile = _summed((names.get(row.profile, "Without a profile"), row) for row in rows)
    by_model = _summed((row.model or "Unknown", row) for row in rows)
    charts = [
        Chart(key="cost", title="Cost a day", data=_costs(rows, list(by_day), by_model)),
        Chart(key="tokens", title="Tokens a day", data=_tokens(by_day)),
        Chart(key="profiles", title="Cost by profile", data=_bars(by_profile)),
        Chart(key="models", title="Cost by model", data=_bars(by_model)),
    ]
    tables = [
        Table(key="profile", title="By profile", column="Profile", rows=by_profile),
        Table(key="model", title="By model", column="Model", rows=by_model),
        Table(
            key="day",
            title="By day",
            column="Day",
            rows=[found for found in reversed(by_day.values()) if found.model_calls],
        ),
    ]
    return Report(days=days, total=total, charts=charts, tables=tables)


def _profiles(rows: list[usage.Row]) -> dict[UUID | None, str]:
    wanted = {row.profile for row in rows if row.profile is not None}
    return dict(AgentProfile.objects.filter(pk__in=wanted).values_list("pk", "name"))


def _summed(named: Iterable[tuple[str, usage.Row]]) -> list[Sum]:
    """One sum for each name, the most expensive first."""
    found: dict[str, Sum] = {}
    for name, row in named:
        found.setdefault(name, Sum(name=name)).add(row)
    return sorted(found.values(), key=lambda one: (one.cost or 0, one.input_tokens), reverse=True)


def _costs(rows: list[usage.Row], days: list[date], by_model: list[Sum]) -> dict[str, Any]:
    """Stacked by model."""
    shown = [one.name for one in by_model if one.cost]
    if len(shown) > SERIES:
        shown = [*shown[: SERIES - 1], "Others"]
    costs: dict[str, dict[date, float]] = {name: defaultdict(float) for name in shown}
    for row in rows:
        name = row.model or "Unknown"
        if row.day is not None and row.cost:
            costs[name if name in costs else "Others"][row.day] += float(row.cost)
    return {
        "labels": _labels(days),
        "money": True,
        "across": False,
        "series": [
            {"name": name, "values": [costs[name][day] for day in days], "color": f"series-{number}"}
            for number, name in enumerate(shown, start=1)
        ],
    }


def _tokens(by_day: dict[date, Sum]) -> dict[str, Any]:
    """Input without what came from the cache, the cached part, and output."""
    sums = list(by_day.values())
    series = (
        ("Input", [max(0, one.input_tokens - one.cached_tokens) for one in sums], "series-1"),
        ("From the cache", [one.cached_tokens for one in sums], "series-6"),
        ("Output", [one.output_tokens for one in sums], "series-2"),
    )
    return {
        "labels": _labels(by_day),
        "money": False,
        "across": False,
        "series": [{"name": name, "values": values, "color": color} for name, values, color in series],
    }


def _bars(sums: list[Sum]) -> dict[str, Any]:
    shown = [one for one in sums if one.cost][:8]
    return {
        "labels": [one.name[:40] for one in shown],
        "money": True,
        "across": True,
        "series": [{"name": "Cost", "values": [float(one.cost or 0) for one in shown], "color": "series-1"}],
    }


def _labels(days: Iterable[date]) -> list[str]:
    return [f"{day:%b} {day.day}" for day in days]
