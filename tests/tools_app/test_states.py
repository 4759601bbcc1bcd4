"""The database's own guards: whatever our code does, a call moves only along T1 and keeps its one result."""

import itertools

import pytest
from django.db import IntegrityError, transaction

from sessions_app.models import Session
from tests import factories
from tools_app.models import EDGES, Outcome, ToolCall, ToolCallState, ToolClass

RERUN_SAFE_ONLY = (ToolCallState.RUNNING, ToolCallState.READY)
PAIRS = [pair for pair in itertools.product(ToolCallState, repeat=2) if pair[0] != pair[1]]


def move(row: ToolCall, state: str) -> None:
    values = {}
    if state == ToolCallState.COMPLETED:
        values = {"outcome": Outcome.SUCCEEDED, "content": [], "completed_at": factories.database_now()}
    elif row.state == ToolCallState.COMPLETED:
        values = {"outcome": None, "content": None, "completed_at": None}
    with transaction.atomic():
        ToolCall.objects.filter(pk=row.pk).update(state=state, attempt=1, **values)


def call_in(session: Session, state: str, *, rerun_safe: bool) -> ToolCall:
    # All outside, so that a running one is possible and nothing but the edge is at stake.
    return factories.tool_call(session, state=state, rerun_safe=rerun_safe, tool_class=ToolClass.OUTSIDE)


@pytest.mark.parametrize(("start", "end"), [pair for pair in PAIRS if pair in EDGES])
def test_every_edge_of_the_table_can_be_taken(session: Session, start: str, end: str) -> None:
    """T1."""
    row = call_in(session, start, rerun_safe=(start, end) == RERUN_SAFE_ONLY)
    move(row, end)
    row.refresh_from_db()
    assert row.state == end


@pytest.mark.parametrize(("start", "end"), [pair for pair in PAIRS if pair not in EDGES])
def test_every_other_edge_is_refused_by_the_database(session: Session, start: str, end: str) -> None:
    """T1, A67."""
    row = call_in(session, start, rerun_safe=True)
    with pytest.raises(IntegrityError):
        move(row, end)
    row.refresh_from_db()
    assert row.state == start


def test_a_running_call_that_must_not_run_twice_never_gets_ready_again(session: Session) -> None:
    """T1, A67: running -> ready is for rerun_safe calls only."""
    row = call_in(session, ToolCallState.RUNNING, rerun_safe=False)
    with pytest.raises(IntegrityError, match="illegal state transition"):
        move(row, ToolCallState.READY)


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": Outcome.FAILED},
        {"content": [{"type": "text", "text": "other"}]},
        {"completed_at": None},
        {"arguments": {"file": "other"}},
        {"name": "other"},
        {"call_id": "other"},
        {"tool_class": ToolClass.CUSTOM},
        {"rerun_safe": True},
        {"message_seq": 9},
        {"position": 9},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_result_and_what_was_called_never_change(session: Session, change: dict[str, object]) -> None:
    """T1, A67: one result for ever, and a call stays the call that was made."""
    row = factories.tool_call(session, state=ToolCallState.COMPLETED)
    with pytest.raises(IntegrityError), transaction.atomic():
        ToolCall.objects.filter(pk=row.pk).update(**change)


def test_a_call_can_not_be_deleted(session: Session) -> None:
    """A67."""
    row = factories.tool_call(session, state=ToolCallState.COMPLETED)
    with pytest.raises(IntegrityError, match="deleting a tool call"), transaction.atomic():
        row.delete()


@pytest.mark.parametrize("missing", ["outcome", "content", "completed_at"])
def test_a_result_is_whole_or_not_there(session: Session, missing: str) -> None:
    """T1."""
    with pytest.raises(IntegrityError, match="tool_call_result_is_whole"), transaction.atomic():
        factories.tool_call(session, state=ToolCallState.COMPLETED, **{missing: None})


def test_only_outside_tools_run_outside_the_fence(session: Session) -> None:
    """S5: an internal call goes from ready to completed and is never seen running."""
    with pytest.raises(IntegrityError, match="tool_call_only_outside_runs"), transaction.atomic():
        factories.tool_call(session, state=ToolCallState.RUNNING, tool_class=ToolClass.INTERNAL)


def test_a_message_has_one_call_at_each_place(session: Session) -> None:
    """C05: the database holds no call twice."""
    factories.tool_call(session, position=3)
    with pytest.raises(IntegrityError, match="tool_call_place_unique"), transaction.atomic():
        factories.tool_call(session, position=3)
