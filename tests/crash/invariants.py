"""The shared list of invariants, with what only a test can look at: traces of effects, and the wire."""

from collections.abc import Collection, Iterable
from pathlib import Path
from uuid import UUID

from sessions_app import ids, invariants
from sessions_app.engine.context import EntryRow, messages_of
from sessions_app.engine.resume import repair_orphaned_tool_calls
from sessions_app.invariants import Effect
from sessions_app.models import Entry, ModelCall
from sessions_app.providers.request_rules import check_request
from tests.sessions_app.providers.test_requests_on_the_wire import TARGETS, Recorder, sent_bodies
from tools_app.models import ToolCall


def effects_of(session: UUID, folder: Path) -> list[Effect]:
    """How often each call of a development tool left its byte; each call of a test has a file of its own."""
    found = []
    for call in ToolCall.objects.filter(session_id=session, name__startswith="dev_"):
        name = call.arguments.get("file") or f"lookup.{call.arguments['key']}"
        trace = folder / name
        times = trace.stat().st_size if trace.exists() else 0
        found.append(
            Effect(tool_call=ids.encode("tcl", call.pk), times=times, rerun_safe=call.name == "dev_lookup")
        )
    return found


def check(session: UUID, folder: Path, *, resumed: Collection[int] | None = None) -> list[str]:
    """Everything about one session that has come to rest."""
    effects = effects_of(session, folder)
    violations = invariants.check_session(session, resumed=resumed, effects=effects)
    rerun_safe = set(
        ToolCall.objects.filter(session_id=session, rerun_safe=True).values_list("pk", flat=True)
    )
    started = Entry.objects.filter(session_id=session, kind="tool_started")
    names = [ids.decode("tcl", entry.data["tool_call"]) for entry in started]
    for name in {name for name in names if names.count(name) > 1} - rerun_safe:
        violations.append(f"tool call {name} was started {names.count(name)} times")
    return violations


def refused_requests(sessions: Iterable[UUID], recorder: Recorder) -> list[str]:
    """What providers would refuse of the requests these sessions made, by all three protocols."""
    views = []
    for session in sessions:
        rows = [
            EntryRow(*row)
            for row in Entry.objects.filter(session_id=session)
            .order_by("seq")
            .values_list("seq", "parent_seq", "kind", "data")
        ]
        for covers in sorted(
            set(ModelCall.objects.filter(session_id=session).values_list("covers_seq", flat=True))
        ):
            view, repaired = repair_orphaned_tool_calls(messages_of(r for r in rows if r.seq <= covers))
            assert not repaired, f"session {session} asked with calls that nobody had settled: {repaired}"
            views.append(view)
    return [
        f"{protocol}: {sentence}"
        for protocol in TARGETS
        for body in sent_bodies(recorder, views, protocol)
        for sentence in check_request(protocol, body)
    ]
