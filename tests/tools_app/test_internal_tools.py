"""Every internal tool: its effect and its result are one transaction, whatever happens between the two."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from sessions_app import ids
from sessions_app.engine import tool_batch
from sessions_app.models import Entry, Lease, Session
from sessions_app.tool_port import Call, ToolContext
from tests import factories
from tools_app import skills
from tools_app.models import SkillVersion, ToolCall, ToolCallState, ToolClass
from tools_app.typed_functions import tools_in


@dataclass(frozen=True)
class Case:
    arguments: dict[str, Any]
    effect: Callable[[Session], Any]
    """What there is when it has happened; nothing before."""


def results_of(session: Session) -> bool:
    """It changes nothing: what it loads is its result."""
    return Entry.objects.filter(session=session, kind="tool_result").exists()


CASES = {
    "set_label": Case({"key": "team", "value": "blue"}, lambda session: session.labels),
    "skill": Case({"name": "notes"}, results_of),
    "create_skill": Case(
        {"name": "mails", "description": "About mails.", "instructions": "Be kind."},
        lambda _: SkillVersion.objects.filter(skill__name="mails").exists(),
    ),
    "update_todos": Case({"todos": [{"text": "Read"}]}, lambda session: session.todos),
}
MODULES = ("tools_app.internal", "tools_app.skill_tools")


@pytest.fixture
def skilled(session: Session, context: ToolContext) -> ToolContext:
    """The context of a config that lists a skill."""
    skills.put_skill(
        project=session.project_id,
        name="notes",
        description="About notes.",
        instructions="Write notes.",
        actor=factories.ACTOR,
    )
    document = {**context.config, "skills": [{"name": "notes", "version": 1}]}
    return dataclasses.replace(context, config=document)


def test_every_internal_tool_has_a_case() -> None:
    own = [tool.name for module in MODULES for tool in tools_in(import_module(module))]
    assert sorted(own) == sorted(CASES)


class Died(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("name", CASES)
def test_what_ends_between_effect_and_result_takes_both_back(
    name: str,
    session: Session,
    skilled: ToolContext,
    call_of: Callable[[ToolCall], Call],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S5, T1: then it runs again, and once is what the log tells of."""
    case = CASES[name]
    row = factories.tool_call(
        session,
        state=ToolCallState.READY,
        name=name,
        tool_class=ToolClass.INTERNAL,
        arguments=case.arguments,
    )
    held = Lease.objects.get(pk=session.pk)

    def run() -> None:
        context = dataclasses.replace(skilled, token=ids.encode("tcl", row.pk))
        tool_batch.run_internal(call_of(row), context, held.worker_id, held.attempt)

    def die(*_: Any) -> None:
        raise Died

    before = factories.reread(session)
    with monkeypatch.context() as patch:
        patch.setattr(tool_batch, "_save_internal", die)
        with pytest.raises(Died):
            run()
    after = factories.reread(session)
    assert not case.effect(after)
    assert (after.next_seq, after.updated_at) == (before.next_seq, before.updated_at)
    assert not Entry.objects.filter(session=session).exists()
    row.refresh_from_db()
    assert row.state == ToolCallState.READY

    run()
    assert case.effect(factories.reread(session))
    row.refresh_from_db()
    assert (row.state, row.outcome) == (ToolCallState.COMPLETED, "succeeded")
    assert Entry.objects.filter(session=session, kind="tool_result").count() == 1
