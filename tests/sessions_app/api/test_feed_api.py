"""The project's log by pages, tickets, and usage."""

import itertools
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from sessions_app import ids, log, tickets
from sessions_app.models import AgentConfig, AgentProfile, ModelCall, ModelCallState, Session, Ticket
from sessions_app.models.fields import ClockTimestamp
from sessions_app.sweeper import Sweeper
from sessions_app.usage import DIMENSIONS
from tests import factories
from tests.sessions_app.api.conftest import Api, of, ok, problem

pytestmark = pytest.mark.django_db(transaction=True)


def write(session: Session, *texts: str) -> None:
    from django.db import transaction

    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session.pk)
        log.append(row, *(log.NewEntry(kind="note", data={"text": text}) for text in texts))
        row.save()


# --- the project's log -----------------------------------------------------------------------------------


def test_a_projects_log_is_read_in_pages_that_follow_each_other(
    api: Api, config: AgentConfig, session: Session
) -> None:
    """F2"""
    other = factories.session(config=config)
    for number in range(6):
        write(session, f"a{number}", f"b{number}")
        write(other, f"c{number}")
    found: list[str] = []
    cursor = "0"
    while True:
        page = ok(api.get(f"/entries?limit=5&cursor={cursor}"))
        assert len(page["data"]) <= 5
        found += [entry["data"]["text"] for entry in page["data"]]
        if page["next_cursor"] is None:
            break
        assert page["cursor"] == page["next_cursor"]
        cursor = page["next_cursor"]
    assert sorted(found) == sorted(f"{letter}{number}" for letter in "abc" for number in range(6))
    assert [text for text in found if text[0] != "c"] == [
        text for number in range(6) for text in (f"a{number}", f"b{number}")
    ]
    write(other, "later")
    page = ok(api.get(f"/entries?cursor={page['cursor']}"))
    assert [entry["data"]["text"] for entry in page["data"]] == ["later"]


def test_a_projects_log_is_filtered_and_nobody_elses(api: Api, other_api: Api, config: AgentConfig) -> None:
    blue = factories.session(config=config, labels={"team": "blue"})
    red = factories.session(config=config, labels={"team": "red"})
    write(blue, "blue")
    write(red, "red")

    def texts(query: str, who: Api = api) -> list[str]:
        return sorted(entry["data"]["text"] for entry in ok(who.get(f"/entries?{query}"))["data"])

    assert texts("") == ["blue", "red"]
    assert texts("label=team:blue") == ["blue"]
    assert texts(f"session={ids.encode('ses', red.pk)}") == ["red"]
    assert texts("kinds=turn_ended") == []
    assert texts("", other_api) == []


def test_wrong_cursors_and_filters_of_a_projects_log_are_400(api: Api, other_api: Api) -> None:
    """F1"""
    foreign = ok(other_api.get("/entries"))["cursor"]
    for query, code in [
        ("cursor=junk", "invalid_cursor"),
        (f"cursor={foreign}", "invalid_cursor"),
        ("kinds=nonsense", "invalid"),
        ("kind=note", "invalid"),
        ("limit=501", "invalid"),
        ("session=ses_1", "invalid"),
        ("label=x", "invalid"),
    ]:
        problem(api.get(f"/entries?{query}"), 400, code)


# --- tickets ---------------------------------------------------------------------------------------------


def test_a_ticket_is_shown_once_and_stored_as_a_digest(api: Api, session: Session) -> None:
    """F6"""
    answer = ok(api.post("/tickets", {"session": ids.encode("ses", session.pk)}), 201)
    assert set(answer) == {"ticket", "expires_at"}
    (row,) = Ticket.objects.all()
    assert answer["ticket"] not in str(Ticket.objects.values().get())
    redeemed = tickets.redeem(answer["ticket"])
    assert (redeemed.session, redeemed.access.project) == (session.pk, api.project)
    assert not Ticket.objects.filter(pk=row.pk).exists()
    with pytest.raises(tickets.InvalidTicket):
        tickets.redeem(answer["ticket"])


def test_a_ticket_is_for_what_its_holder_may_see(api: Api, other_api: Api, session: Session) -> None:
    problem(other_api.post("/tickets", {"session": ids.encode("ses", session.pk)}), 404, "not_found")
    problem(api.post("/tickets", {"sesion": "x"}), 400, "invalid")
    ok(api.post("/tickets", {}), 201)


def test_a_ticket_ends_with_its_minute_and_with_its_key(api: Api) -> None:
    """F6"""
    from sessions_app import access, keys

    old = ok(api.post("/tickets"), 201)["ticket"]
    Ticket.objects.update(expires_at=ClockTimestamp())
    with pytest.raises(tickets.InvalidTicket):
        tickets.redeem(old)
    fresh = ok(api.post("/tickets"), 201)["ticket"]
    assert api.project is not None
    assert api.key is not None
    keys.revoke_key(project=api.project.pk, key=access.by_key(api.key).key.pk)  # type: ignore[union-attr]
    with pytest.raises(access.InvalidKey):
        tickets.redeem(fresh)


def test_tickets_that_nobody_used_are_swept_away(api: Api) -> None:
    ok(api.post("/tickets"), 201)
    ok(api.post("/tickets"), 201)
    assert tickets.delete_expired() == 0
    Ticket.objects.update(expires_at=F("expires_at") - timedelta(minutes=2))
    sweeper = Sweeper()
    sweeper.purge()
    sweeper.disconnect()
    assert not Ticket.objects.exists()


# --- usage -----------------------------------------------------------------------------------------------


def called(session: Session, *, days_ago: float = 0, cost: str | None = "0.5", **columns: Any) -> ModelCall:
    values = {
        "state": ModelCallState.SUCCEEDED,
        "attempt": 1,
        "covers_seq": 0,
        "input_tokens": 10,
        "output_tokens": 5,
    }
    return ModelCall.objects.create(
        session=session,
        config_id=session.config_id,
        cost=None if cost is None else Decimal(cost),
        started_at=factories.database_now(-86400 * days_ago),
        **values | columns,
    )


def test_usage_adds_up_by_what_is_asked_for(api: Api, other_api: Api, config: AgentConfig) -> None:
    one, two = factories.session(config=config), factories.session(config=config)
    called(one)
    called(one, days_ago=1)
    called(two, state=ModelCallState.FAILED)
    called(factories.session())
    (total,) = ok(api.get("/usage?group_by="))["data"]
    assert (total["calls"], total["failed_calls"], total["cost"]) == (3, 1, "1.5")
    assert (total["input_tokens"], total["output_tokens"], total["day"], total["model"]) == (
        30,
        15,
        None,
        None,
    )
    days = ok(api.get("/usage"))["data"]
    assert [row["calls"] for row in days] == [1, 2]
    assert days[0]["day"] < days[1]["day"]
    by_session = ok(api.get("/usage?group_by=session,model"))["data"]
    assert {row["session"]: row["calls"] for row in by_session} == {
        ids.encode("ses", one.pk): 2,
        ids.encode("ses", two.pk): 1,
    }
    assert {row["model"] for row in by_session} == {"scripted:echo"}
    assert ok(other_api.get("/usage"))["data"] == []
    assert ok(other_api.get("/usage?group_by="))["data"] == []


def test_every_way_of_grouping_gives_the_same_sum(api: Api, config: AgentConfig) -> None:
    """Each group names what it was grouped by, and nothing else; no two are alike."""
    profile = AgentProfile.objects.create(project=config.project, name="refunds", config=config)
    one, two = factories.session(config=config, profile=profile), factories.session(config=config)
    called(one)
    called(one, days_ago=1)
    called(two)
    ways = [names for size in range(5) for names in itertools.permutations(DIMENSIONS, size)]
    for group_by in ways:
        rows = ok(api.get(f"/usage?group_by={','.join(group_by)}"))["data"]
        assert sum(row["calls"] for row in rows) == 3, group_by
        assert len({tuple(row[name] for name in DIMENSIONS) for row in rows}) == len(rows), group_by
        profiles = {row["profile"] for row in rows} - {None}
        assert profiles == ({ids.encode("prf", profile.pk)} if "profile" in group_by else set()), group_by
        for row in rows:
            named = {name for name in DIMENSIONS if row[name] is not None}
            assert named | {"profile"} == {*group_by, "profile"}, group_by  # a session may be without one


def test_a_price_that_nobody_knows_is_not_zero(api: Api, session: Session) -> None:
    """R7"""
    called(session, cost=None)
    called(session, cost=None, state=ModelCallState.INTERRUPTED, may_be_billed=True)
    called(session, cost=None, state=ModelCallState.INTERRUPTED)
    (row,) = ok(api.get("/usage"))["data"]
    assert (row["calls"], row["cost"], row["unpriced_calls"]) == (3, None, 2)
    called(session)
    (row,) = ok(api.get("/usage"))["data"]
    assert (row["calls"], row["cost"], row["unpriced_calls"]) == (4, "0.5", 2)


def test_usage_is_of_a_range_that_is_no_longer_than_a_year(api: Api, session: Session) -> None:
    called(session, days_ago=40)
    assert ok(api.get("/usage"))["data"] == []
    assert len(ok(api.get(f"/usage?from={_days_ago(50)}&to={_days_ago(39)}"))["data"]) == 1
    assert ok(api.get(f"/usage?from={_days_ago(39)}"))["data"] == []
    for query in (
        f"from={_days_ago(1)}&to={_days_ago(2)}",
        "from=2020-01-01T00:00:00Z&to=2029-01-01T00:00:00Z",
        "from=yesterday",
        "group_by=week",
        "to=0001-01-02T00:00:00Z&from=0001-01-03T00:00:00Z",
    ):
        problem(api.get(f"/usage?{query}"), 400, "invalid")


def _days_ago(days: float) -> str:
    return factories.database_now(-86400 * days).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_usage_of_many_groups_comes_in_pages(api: Api, config: AgentConfig) -> None:
    for _ in range(5):
        called(factories.session(config=config))
    found: list[str] = []
    cursor = ""
    while cursor is not None:
        page = ok(api.get(f"/usage?group_by=session&limit=2{cursor and f'&cursor={cursor}'}"))
        found += [row["session"] for row in page["data"]]
        cursor = page["next_cursor"]
    assert len(found) == len(set(found)) == 5
    problem(api.get("/usage?cursor=x"), 400, "invalid_cursor")


def test_usage_finds_its_range_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'model_call_time'")
        assert "brin" in cursor.fetchone()[0]


def test_an_archived_session_replays_and_takes_nothing_new(api: Api, session: Session) -> None:
    """A142"""
    first = api.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="k1")
    ok(first, 202)
    ok(api.post(of(session, "/archive")))
    again = api.post(of(session, "/inputs"), {"content": "hello"}, Idempotency_Key="k1")
    assert (again.status_code, again.content) == (202, first.content)
    assert again["Idempotency-Replayed"] == "true"
    problem(api.post(of(session, "/inputs"), {"content": "new"}), 409, "session_archived")
