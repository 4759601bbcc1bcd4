"""A worker that dies in the step that settles what a fork or a rewind cut off: settled once, told once."""

from typing import Any
from uuid import UUID

import pytest

from sessions_app import configs, inputs, leases, rewinding, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.invariants import check_session
from sessions_app.models import EndReason, Entry, Session, SessionStatus
from sessions_app.session_service import Fork
from tests import factories
from tests.processes.workers import Workers
from tests.staging import eventually

pytestmark = pytest.mark.processes

CUTS = ("load.done", "step.locked", "step.written", "step.committed")


def said(text: str) -> NewInput:
    return NewInput(content=[{"type": "text", "text": text}], actor=SYSTEM)


def entries(session: UUID, kind: str) -> list[Entry]:
    return list(Entry.objects.filter(session_id=session, kind=kind).order_by("seq"))


def rested(session: UUID) -> None:
    eventually(
        lambda: Session.objects.filter(pk=session, status=SessionStatus.IDLE, lease=None).exists(), within=20
    )


@pytest.mark.parametrize("how", ["forked", "rewound"])
def test_what_was_cut_off_is_settled_once_wherever_its_worker_dies(workers: Workers, how: str) -> None:
    """S2, S9: each death before the commit settles nothing, each one after it settles nothing again."""
    config = scripted()
    sessions: dict[str, UUID] = {}
    calls: dict[str, str] = {}
    first = workers.start(owner="first")
    for cut in CUTS:
        sessions[cut] = start(config, said("one"))
    for cut, parent in list(sessions.items()):
        rested(parent)
        (asked, _) = entries(parent, "assistant_message")
        calls[cut] = asked.data["content"][-1]["tool_call"]
        if how == "forked":
            sessions[cut] = start(config, None, fork=Fork(session=parent, at_seq=asked.seq))
        else:
            rewinding.rewind(session=parent, to_seq=asked.seq, actor=SYSTEM)
    first.stop()
    before = {cut: len(entries(session, "tool_result")) for cut, session in sessions.items()}
    for cut, session in sessions.items():
        inputs.submit_input(session=session, content=said("go on").content, actor=SYSTEM)
        dying = workers.start(owner=f"dying {cut}", only=[session], crash_at=cut, worker_threads=2)
        assert dying.wait() == -9, f"{cut} was never passed:\n{dying.story()}"
        leases.end_worker(owner=dying.owner, reason=EndReason.CRASH)
    workers.start(owner="last")
    for cut, session in sessions.items():
        rested(session)
        told = [
            entry.data for entry in entries(session, "session_resumed") if entry.data["reason"] == "branch"
        ]
        assert [data["repaired_tool_calls"] for data in told] == [[calls[cut]]], cut
        results = entries(session, "tool_result")[before[cut] :]
        settled = [entry for entry in results if entry.data["outcome"] == "interrupted"]
        assert [entry.data["tool_call"] for entry in settled] == [calls[cut]], cut
        assert check_session(session) == [], cut


def scripted() -> UUID:
    document = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "branches"},
        "tools": {"set_label": {}},
        "script": {
            "replies": [
                {"tool_calls": [{"name": "set_label", "arguments": {"key": "a", "value": "b"}}]},
                {"text": "done"},
            ],
        },
    }
    return configs.create_config(project=factories.project().pk, document=document).row.pk


def start(config: UUID, first: NewInput | None, **more: Any) -> UUID:
    project = configs.AgentConfig.objects.get(pk=config).project_id
    row = session_service.start_session(project=project, actor=SYSTEM, config=config, input=first, **more)
    return row.pk
