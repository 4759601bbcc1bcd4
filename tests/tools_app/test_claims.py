"""Claims: two workers of a backend never do the same work, and a worker that dies keeps nothing."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from sessions_app import ids
from sessions_app.errors import NotFound
from sessions_app.models import Project, Session, SessionStatus
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, holding, wait_until_blocked
from tools_app import claims, tool_calls
from tools_app.models import ToolCall

CALL = "SELECT FROM tools_app_toolcall WHERE id = %s FOR UPDATE"


@pytest.fixture
def idle(db: None) -> Session:
    made = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(made)
    return made


@pytest.fixture
def real(transactional_db: None) -> Session:
    made = factories.session(status=SessionStatus.WAITING)
    factories.open_turn(made)
    return made


def waiting_call(session: Session, **columns: Any) -> ToolCall:
    return factories.tool_call(session, state="waiting", **{"name": "create_ticket"} | columns)


def take(
    project: Any, *, limit: int = 10, names: Sequence[str] | None = None, seconds: float = 60
) -> claims.Claimed:
    return claims.claim(project=project, names=names, limit=limit, lease_seconds=seconds, actor=ACTOR)


def expire(call: ToolCall) -> None:
    ToolCall.objects.filter(pk=call.pk).update(claim_expires_at=factories.database_now(-1))


def extend(call: ToolCall, token: str, seconds: float = 60) -> ToolCall:
    return claims.extend(project=call.project_id, tool_call=call.pk, token=token, lease_seconds=seconds)


def release(call: ToolCall, token: str) -> ToolCall:
    return claims.release(project=call.project_id, tool_call=call.pk, token=token)


def test_the_oldest_calls_are_claimed_first_and_once(idle: Session) -> None:
    """T6: across sessions and tools, in order of age."""
    other = factories.session(config=idle.config, status=SessionStatus.WAITING)
    calls = [
        waiting_call(idle, name="b"),
        waiting_call(other, name="a"),
        waiting_call(idle, name="b"),
        waiting_call(other, name="c"),
    ]
    first = take(idle.project_id, limit=3)
    assert [row.pk for row in first.calls] == [call.pk for call in calls[:3]]
    second = take(idle.project_id)
    assert [row.pk for row in second.calls] == [calls[3].pk]
    assert take(idle.project_id).calls == []
    assert first.token != second.token
    for row in first.calls:
        assert (row.state, row.claimed_by) == ("waiting", ACTOR)
        left = row.claim_expires_at - factories.database_now()
        assert timedelta(seconds=50) < left <= timedelta(seconds=60)
        assert first.token not in str(row.claim_token)


def test_only_custom_calls_that_wait_in_this_project_are_claimed(idle: Session) -> None:
    """T6."""
    for state in ("awaiting_approval", "completed"):
        factories.tool_call(idle, state=state, tool_class="custom")
    factories.tool_call(idle, state="waiting", tool_class="human")
    factories.tool_call(idle, state="ready")
    foreign = factories.session(status=SessionStatus.WAITING)
    waiting_call(foreign)
    assert take(idle.project_id).calls == []
    assert len(take(foreign.project_id).calls) == 1


def test_names_pick_the_tools(idle: Session) -> None:
    """T6: a worker that knows some of the tools."""
    waiting_call(idle, name="a")
    waiting_call(idle, name="b")
    waiting_call(idle, name="c")
    assert [row.name for row in take(idle.project_id, names=["c", "a", "x", "a"]).calls] == ["a", "c"]
    assert [row.name for row in take(idle.project_id).calls] == ["b"]


@pytest.mark.parametrize("names", [None, ["create_ticket"]])
def test_a_claim_that_ran_out_can_be_taken_by_the_next(idle: Session, names: Sequence[str] | None) -> None:
    """T6: a worker that died holds nothing; what it had is as old as before."""
    call, younger = waiting_call(idle), waiting_call(idle)
    first = take(idle.project_id, limit=1)
    expire(call)
    second = take(idle.project_id, names=names)
    assert [row.pk for row in second.calls] == [call.pk, younger.pk]
    for act in (extend, release):
        with pytest.raises(claims.ClaimLost) as lost:
            act(call, first.token)
        assert lost.value.data["current"].pk == call.pk
    extend(call, second.token)


def test_a_claim_is_extended_from_now(idle: Session) -> None:
    """T6."""
    call = waiting_call(idle)
    token = take(idle.project_id, seconds=5).token
    row = extend(call, token, 600)
    assert row.claim_expires_at - factories.database_now() > timedelta(seconds=590)
    assert take(idle.project_id).calls == []


def test_a_claim_that_ran_out_is_lost_also_where_nobody_took_it(idle: Session) -> None:
    """T6: its holder can't tell whether somebody did in between."""
    call = waiting_call(idle)
    token = take(idle.project_id).token
    expire(call)
    for act in (extend, release):
        with pytest.raises(claims.ClaimLost):
            act(call, token)
    assert not tool_calls.read(project=call.project_id, tool_call=call.pk).claim_holds  # type: ignore[attr-defined]


def test_a_released_call_is_free_at_once(idle: Session) -> None:
    """T6."""
    call = waiting_call(idle)
    token = take(idle.project_id).token
    row = release(call, token)
    assert (row.claim_token, row.claimed_by, row.claim_expires_at) == (None, None, None)
    with pytest.raises(claims.ClaimLost):
        release(call, token)
    assert [row.pk for row in take(idle.project_id).calls] == [call.pk]


def test_wrong_tokens_hold_nothing(idle: Session) -> None:
    call = waiting_call(idle)
    token = take(idle.project_id).token
    for wrong in ("", token[:-1], token + "x"):
        with pytest.raises(claims.ClaimLost):
            extend(call, wrong)
    with pytest.raises(NotFound):
        claims.extend(project=call.project_id, tool_call=ids.new_id(), token=token, lease_seconds=5)


def test_a_claim_costs_one_statement_and_the_reading_of_its_calls(idle: Session) -> None:
    """The hot path. The claim itself goes past Django, so it is not among these."""
    for _ in range(5):
        waiting_call(idle)
    with CaptureQueriesContext(connection) as queries:
        take(idle.project_id)
    sent = [item["sql"] for item in queries if not item["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    assert len(sent) == 1, sent
    with CaptureQueriesContext(connection) as queries:
        assert take(idle.project_id).calls == []
    assert [item for item in queries if not item["sql"].startswith(("SAVEPOINT", "RELEASE"))] == []


def test_a_claim_belongs_to_a_custom_call_and_is_whole(idle: Session) -> None:
    """The database's own guard."""
    call = waiting_call(idle)
    human = factories.tool_call(idle, state="waiting", tool_class="human")
    whole = {"claim_token": "t", "claimed_by": ACTOR, "claim_expires_at": factories.database_now()}
    for row, values in ((human, whole), (call, {"claim_token": "t"}), (call, {"claimed_by": ACTOR})):
        with pytest.raises(IntegrityError, match="tool_call_claim_is_whole"), transaction.atomic():
            ToolCall.objects.filter(pk=row.pk).update(**values)


# --- what it costs ---------------------------------------------------------------------------------------

_FILL = """
INSERT INTO tools_app_toolcall (id, project_id, session_id, turn_id, message_seq, position, call_id, name,
    tool_class, rerun_safe, arguments, state, outcome, content, completed_at, claim_token, claimed_by,
    claim_expires_at, created_at)
SELECT gen_random_uuid(), %(project)s, %(session)s, %(turn)s, %(seq)s, n, 'c', %(name)s, 'custom', false, '{}',
    %(state)s, %(outcome)s, %(content)s::jsonb, %(completed)s, %(token)s, %(by)s::jsonb, %(until)s,
    clock_timestamp() - interval '1 day'
FROM generate_series(1, %(count)s) AS n
"""


def fill(session: Session, *, count: int, seq: int, **columns: Any) -> None:
    """Many calls, older than all others."""
    values: dict[str, Any] = {
        "project": session.project_id,
        "session": session.pk,
        "turn": session.turn_id,
        "name": "bulk",
        "state": "waiting",
    }
    values |= dict.fromkeys(("outcome", "content", "completed", "token", "by", "until"))
    with connection.cursor() as cursor:
        cursor.execute(_FILL, values | {"count": count, "seq": seq} | columns)


def rows_read(sql: str, values: dict[str, Any]) -> int:
    """How many rows the statement looked at, over all scans of the table."""
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, values)
        plan = cursor.fetchone()[0]

    def count(node: dict[str, Any]) -> int:
        seen = 0
        if node.get("Relation Name") == "tools_app_toolcall" and "Scan" in node["Node Type"]:
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            seen = int((node["Actual Rows"] + removed) * node["Actual Loops"])
        return seen + sum(count(child) for child in node.get("Plans", ()))

    return count((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])


@pytest.mark.parametrize("names", [None, ["create_ticket"]], ids=["any", "named"])
def test_what_a_claim_reads_does_not_grow_with_what_is_done_or_not_its_own(
    idle: Session, names: Sequence[str] | None
) -> None:
    """T6: neither with completed calls, nor with claimed ones, nor with those of other tools.

    With the statistics that autovacuum keeps. What it has seen of other tests would be of no table that exists: until
    the next look at a project that grew from nothing, the planner takes any index of its calls for as good.
    """
    for _ in range(20):
        waiting_call(idle)
    done = {"outcome": "succeeded", "content": "[]", "completed": factories.database_now()}
    fill(idle, count=5000, seq=2, state="completed", **done)
    held = {"token": "t", "by": "{}", "until": factories.database_now(600)}
    fill(idle, count=5000, seq=3, **held)
    fill(idle, count=5000, seq=4)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tools_app_toolcall")
    sql = claims.CLAIM_ANY if names is None else claims.CLAIM_NAMED
    values = {
        "project": idle.project_id,
        "names": names,
        "limit": 10,
        "look": 28,
        "token": "t",
        "actor": "{}",
        "seconds": 60,
    }
    # 28 candidates of each of two tools, ten locked and ten written, and the hops between names.
    assert rows_read(sql, values) < 150


@pytest.mark.parametrize(
    "query",
    [{"state": "waiting", "tool_class": "custom"}, {"state": "waiting", "tool_class": "custom", "name": "x"}],
    ids=["custom", "name"],
)
def test_the_list_of_what_waits_reads_no_completed_calls(idle: Session, query: dict[str, str]) -> None:
    done = {"outcome": "succeeded", "content": "[]", "completed": factories.database_now()}
    fill(idle, count=5000, seq=2, state="completed", **done)
    for _ in range(20):
        waiting_call(idle)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tools_app_toolcall")
    rows = tool_calls.rows().filter(project_id=idle.project_id, **query).order_by("created_at", "pk")[:51]
    assert "Index Scan using tool_call_" in rows.explain()
    sql, parameters = rows.query.sql_with_params()
    assert rows_read(sql, parameters) < 100  # type: ignore[arg-type]


@pytest.mark.parametrize("claimed", [False, True], ids=["all", "claimed"])
def test_the_list_of_a_project_reads_one_page(idle: Session, claimed: bool) -> None:
    """The newest of all its calls, and those that somebody is at, among many that are done."""
    done = {"outcome": "succeeded", "content": "[]", "completed": factories.database_now()}
    fill(idle, count=5000, seq=2, state="completed", **done)
    for _ in range(20):
        waiting_call(idle)
    take(idle.project_id, limit=5)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tools_app_toolcall")
    rows = tool_calls.rows().filter(project_id=idle.project_id)
    if claimed:
        rows = rows.filter(state="waiting", claim_expires_at__gt=factories.database_now())
    sql, parameters = rows.order_by("-created_at", "-pk")[:51].query.sql_with_params()
    assert rows_read(sql, parameters) < 100  # type: ignore[arg-type]


# --- races -----------------------------------------------------------------------------------------------


def test_two_who_claim_at_once_share_what_there_is(real: Session) -> None:
    """T6: the second skips what the first has locked, and does not wait for it."""
    calls = [waiting_call(real) for _ in range(4)]
    with holding("SELECT FROM tools_app_toolcall WHERE id = ANY(%s) FOR UPDATE", [calls[0].pk, calls[1].pk]):
        taken = Contender(lambda: take(real.project_id, limit=3)).result()
    assert [row.pk for row in taken.calls] == [call.pk for call in calls[2:]]
    both = [Contender(lambda: take(real.project_id, limit=1)) for _ in range(2)]
    found = [row.pk for contender in both for row in contender.result().calls]
    assert sorted(found) == sorted(call.pk for call in calls[:2])


def test_a_claim_that_runs_out_while_it_waits_to_be_extended_is_lost(real: Session) -> None:
    """T6: the expiry is judged when the row is held, not when the request came."""
    call = waiting_call(real)
    token = take(real.project_id).token
    with holding(CALL, call.pk) as other:
        late = Contender(lambda: extend(call, token))
        wait_until_blocked(1)
        other.execute(
            "UPDATE tools_app_toolcall SET claim_expires_at = clock_timestamp() WHERE id = %s", [call.pk]
        )
    with pytest.raises(claims.ClaimLost):
        late.result()


@pytest.mark.parametrize("act", [extend, release])
def test_a_claim_that_somebody_takes_over_meanwhile_is_lost(
    real: Session, act: Callable[..., ToolCall]
) -> None:
    """T6: the new holder keeps it."""
    call = waiting_call(real)
    token = take(real.project_id).token
    with holding(CALL, call.pk) as other:
        late = Contender(lambda: act(call, token))
        wait_until_blocked(1)
        other.execute("UPDATE tools_app_toolcall SET claim_token = 'new' WHERE id = %s", [call.pk])
    with pytest.raises(claims.ClaimLost):
        late.result()
    call.refresh_from_db()
    assert call.claim_token == "new"


def test_a_call_that_is_completed_meanwhile_is_not_claimed(real: Session) -> None:
    """T6: what was chosen is looked at again when it is locked."""
    call = waiting_call(real)
    with holding(
        "UPDATE tools_app_toolcall SET state = 'completed', outcome = 'succeeded', content = '[]', "
        "completed_at = clock_timestamp() WHERE id = %s",
        call.pk,
    ):
        assert Contender(lambda: take(real.project_id)).result().calls == []
    assert take(real.project_id).calls == []
    assert Project.objects.filter(pk=real.project_id).exists()


def test_the_admin_shows_who_is_at_a_call_and_no_token(idle: Session) -> None:
    """H6: people see who works on it; what proves a claim is nobody's business."""
    call = waiting_call(idle)
    take(idle.project_id)
    call.refresh_from_db()
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    shown = client.get(reverse("admin:tools_app_toolcall_change", args=[call.pk])).content.decode()
    assert ACTOR["name"] in shown
    assert call.claim_token is not None
    assert call.claim_token not in shown
