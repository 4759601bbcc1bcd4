"""Sessions with scripted agents, and what a test waits for while real workers run them."""

from pathlib import Path
from typing import Any
from uuid import UUID

from sessions_app import configs, ids, inputs, session_service
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, Lease, ModelCall, Session, SessionStatus
from tests import factories
from tests.processes.workers import Process
from tests.staging import eventually

TOOLS = ("set_label", "dev_append", "dev_lookup", "block_loop", "block_thread", "block_again", "ask_user")


def start(*replies: dict[str, Any], texts: tuple[str, ...] = ("hello",), **document: Any) -> UUID:
    """A session whose model plays `replies`, with these inputs, due now."""
    project = factories.project().pk
    written = {
        "instructions": "Be brief.",
        "model": "scripted:test",
        "tools": {tool: {} for tool in TOOLS},
        "script": {"replies": list(replies)},
    }
    written |= document
    written = {part: value for part, value in written.items() if value is not None}
    config = configs.create_config(project=project, document=written).row
    first, *others = [[{"type": "text", "text": text}] for text in texts]
    session = session_service.start_session(
        project=project, actor=SYSTEM, config=config.pk, input=NewInput(content=first, actor=SYSTEM)
    ).pk
    for content in others:
        inputs.submit_input(session=session, content=content, actor=SYSTEM)
    return session


def say(session: UUID, text: str, **how: Any) -> UUID:
    content = [{"type": "text", "text": text}]
    return inputs.submit_input(session=session, content=content, actor=SYSTEM, **how).pk


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def row(session: UUID) -> Session:
    return Session.objects.get(pk=session)


def asking(session: UUID) -> ModelCall | None:
    """The model call that is under way."""
    return ModelCall.objects.filter(session_id=session, state="started").first()


def wait_until_asking(session: UUID, *, more_than: int = 0) -> ModelCall:
    """The session's open model call, once it has made more than so many."""

    def found() -> ModelCall | None:
        if ModelCall.objects.filter(session_id=session).count() <= more_than:
            return None
        return asking(session)

    call_: ModelCall = eventually(found, within=15)
    return call_


def wait_until_at_rest(session: UUID, *processes: Process, within: float = 20) -> Session:
    """The session once it has nothing more to do; the processes must not die meanwhile."""

    def found() -> Session | None:
        for process in processes:
            assert process.status is None, process.story()
        now = row(session)
        return now if now.status in {SessionStatus.IDLE, SessionStatus.WAITING} else None

    try:
        rested: Session = eventually(found, within=within)
    except AssertionError as error:
        stories = "\n".join(process.stacks() for process in processes)
        raise AssertionError(f"{row(session).status}, {row(session).waiting_on}\n{stories}") from error
    return rested


def wait_for_lease(session: UUID) -> Lease:
    lease: Lease = eventually(lambda: Lease.objects.filter(pk=session).first(), within=15)
    return lease


def log_of(session: UUID, *kinds: str) -> list[Entry]:
    entries = Entry.objects.filter(session_id=session).order_by("seq")
    return list(entries.filter(kind__in=kinds) if kinds else entries)


def said(session: UUID) -> list[str]:
    """The texts of the saved replies."""
    return [
        block["text"]
        for message in log_of(session, "assistant_message")
        for block in message.data["content"]
        if block["type"] == "text"
    ]


def outcomes(session: UUID) -> list[tuple[str, str]]:
    """(tool, outcome) of each result, in log order."""
    return [(entry.data["name"], entry.data["outcome"]) for entry in log_of(session, "tool_result")]


def resumed(session: UUID) -> list[tuple[int, str]]:
    """(attempt, reason) of each `session_resumed`."""
    return [(entry.data["attempt"], entry.data["reason"]) for entry in log_of(session, "session_resumed")]


def times(trace: Path) -> int:
    """How often a development tool had its effect."""
    return trace.stat().st_size if trace.exists() else 0


def started(session: UUID, name: str) -> bool:
    return any(entry.data["name"] == name for entry in log_of(session, "tool_started"))


def name_of(kind: str, value: UUID) -> str:
    return ids.encode(kind, value)
