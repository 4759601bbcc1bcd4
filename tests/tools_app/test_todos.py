"""The list of what an agent means to do."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from sessions_app.models import Entry, Session
from sessions_app.tool_port import Call, ToolContext
from tests import factories
from tools_app import arguments, registry
from tools_app.runtime import Runtime

type Todos = list[dict[str, str]]
type Update = Callable[[Todos], tuple[str, str]]

TODOS = [{"text": "Read", "state": "completed"}, {"text": "Write", "state": "in_progress"}]


@pytest.fixture
def update(session: Session, context: ToolContext, new_call: Callable[..., Call]) -> Update:
    def run(todos: Todos) -> tuple[str, str]:
        call = new_call(name="update_todos", tool_class="internal", arguments={"todos": todos})
        with transaction.atomic():
            outcome = Runtime().run_internal(call, context, session)
            session.save()
        return outcome.outcome, outcome.content[0]["text"]

    return run


def test_a_list_replaces_the_one_before(session: Session, update: Update) -> None:
    """S5, S7: the list and its entry come together."""
    assert update(TODOS) == ("succeeded", "The list is saved: 1 of 2 completed.")
    assert update([{"text": "Rest"}])[1] == "The list is saved: 0 of 1 completed."
    assert factories.reread(session).todos == [{"text": "Rest", "state": "pending"}]
    assert update([])[1] == "The list is empty now."
    assert factories.reread(session).todos == []
    told = Entry.objects.filter(session=session, kind="session_updated").order_by("seq")
    assert [entry.data["changes"]["todos"] for entry in told] == [
        TODOS,
        [{"text": "Rest", "state": "pending"}],
        [],
    ]
    assert {(entry.attempt, entry.turn_id) for entry in told} == {(session.attempt, session.turn_id)}


@pytest.mark.parametrize("todos", [[], TODOS])
def test_a_list_that_is_as_it_should_be_writes_nothing(
    session: Session, update: Update, todos: Todos
) -> None:
    """S7: no entry without a change."""
    session.todos = todos or None
    assert update(todos) == ("succeeded", "The todos are as they should be.")
    assert not Entry.objects.filter(session=session).exists()


@pytest.mark.parametrize(
    "todos",
    [
        None,
        [{"text": ""}],
        [{"text": "x" * 501}],
        [{"text": "x", "state": "done"}],
        [{"text": "x", "priority": 1}],
        ["x"],
        [{"text": "x"}] * 101,
    ],
)
def test_lists_that_are_none_are_refused_before_they_are_saved(todos: Any) -> None:
    """T3."""
    tool = registry.get("update_todos")
    assert tool is not None
    assert arguments.problem_with(tool.validator, {"todos": todos}) is not None
