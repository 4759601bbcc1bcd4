"""Custom tools: calls that wait until the team's backend posts a result (T6).

The first result wins, for ever. It is stored under the session's lock together with its entry and the due time that
it gives the session, so it is in the log before anybody hears that it was taken. Whoever comes later is told what
is stored. Where no backend had answered before the call was over (its deadline, a cancel), the first late answer is
kept beside the result, as an entry, so that what was done is not lost.

A worker of the backend may claim calls first (`claims`), and tell the log of its progress; a result needs neither.
"""

from dataclasses import replace
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from sessions_app import artifacts, entries, ids, leases, log, scheduling, wakeups
from sessions_app import content as contents
from sessions_app.entry_kinds import Actor, Blocks, ToolCallUpdated
from sessions_app.errors import Conflict, NotFound
from sessions_app.models import Session
from sessions_app.tool_port import ToolOutcome
from tools_app import claims, results, tool_calls
from tools_app.models import Outcome, ToolCall, ToolCallState, ToolClass

MAX_UPDATES = 1000
"""Reports of progress of one call; each is an entry for ever."""

MAX_UPDATE = 4000
"""Characters of one report; longer ones are cut."""


class ToolCallCompleted(Conflict):
    """The tool call has its result already. `current` shows it: a caller whose answer got lost finds its own."""

    code = "tool_call_completed"

    def __init__(self, detail: str | None = None, *, current: ToolCall) -> None:
        super().__init__(detail, current=current)
        self.tool_call = current


class ToolCallNotReady(Conflict):
    """The tool call can't have a result yet: a person has to allow it first."""

    code = "tool_call_not_ready"


class ToolCallNotCustom(Conflict):
    """This call is none of a custom tool: its result comes from elsewhere."""

    code = "tool_call_not_custom"


class ProgressLimit(Conflict):
    """This call has told of its progress too often."""

    code = "progress_limit"


def submit_result(*, project: UUID, tool_call: UUID, outcome: str, content: Blocks, actor: Actor) -> ToolCall:
    """Give a call its one result (`content` as parsed by `content.parse`); its session goes on when this commits.

    Raises `NotFound`, `ToolCallCompleted` (see `keep_late_answer`), `ToolCallNotReady`, `ToolCallNotCustom`, or
    `Invalid` for files that are not there. Content above the deployment's limit is cut, and kept as an artifact.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        before = tool_calls.read(project=project, tool_call=tool_call)
        _check_open(before)
        # Bytes are stored before the session is locked: that may take a while.
        result = ToolOutcome(Outcome(outcome).value, _kept(before, content))
        session = _locked(before)
        # Read again under the lock, which every other end of a call takes too.
        row = tool_calls.read(project=project, tool_call=tool_call)
        _check_open(row)
        call = tool_calls.complete_by_backend(row, result, by=actor)
        log.append(session, replace(entries.tool_result(call, result), actor=actor))
        session.crash_count = 0  # it got on (R9)
        scheduling.give_work(session)
        session.save()
        wakeups.after_commit(session)
        return tool_calls.read(project=project, tool_call=tool_call)


def keep_late_answer(*, project: UUID, tool_call: UUID, outcome: str, content: Blocks, actor: Actor) -> bool:
    """Keep what a backend brought after its call was over, beside the result that the call has (T5).

    For calls that ended by their deadline or a cancel, and only once each. Whether it was kept.
    """
    with transaction.atomic(durable=not connection.in_atomic_block):
        before = tool_calls.read(project=project, tool_call=tool_call)
        if not came_too_late(before):
            return False
        result = ToolOutcome(Outcome(outcome).value, _kept(before, content))
        session = _locked(before)
        row = tool_calls.read(project=project, tool_call=tool_call)
        if not came_too_late(row):
            return False
        call = tool_calls.name_late_answer(row, by=actor)
        log.append(session, replace(entries.late_answer(call, result), actor=actor))
        session.save()
        wakeups.after_commit(session)
        return True


def came_too_late(row: ToolCall) -> bool:
    """Whether an answer to this call would be one that nobody heard before."""
    ended = row.outcome == Outcome.CANCELLED or tool_calls.has_expired(row)
    return row.tool_class == ToolClass.CUSTOM and ended and row.answered_by is None


def report_progress(*, project: UUID, tool_call: UUID, token: str, content: Blocks, actor: Actor) -> ToolCall:
    """Tell the session's log how far a claimed call is. Raises `NotFound`, `ClaimLost` or `ProgressLimit`."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        before = tool_calls.read(project=project, tool_call=tool_call)
        kept = contents.keep_files(content, project=project)
        short = results.content_of(results.Content(kept), name=before.name, limit=MAX_UPDATE, keep=None)
        session = _locked(before)
        row = claims.hold(project=project, tool_call=tool_call, token=token)
        if row.updates >= MAX_UPDATES:
            raise ProgressLimit(current=tool_calls.read(project=project, tool_call=tool_call))
        tool_calls.count_update(row)
        data = ToolCallUpdated(tool_call=ids.encode("tcl", row.pk), update="progress", content=short)
        log.append(session, log.NewEntry(kind="tool_call_updated", data=data, actor=actor, turn=row.turn_id))
        session.save()
        wakeups.after_commit(session)
        return tool_calls.read(project=project, tool_call=tool_call)


def _check_open(row: ToolCall) -> None:
    if row.state == ToolCallState.COMPLETED:
        raise ToolCallCompleted(_over(row), current=row)
    if row.tool_class != ToolClass.CUSTOM:
        raise ToolCallNotCustom(
            f"this is a call of class {row.tool_class}: its result comes from elsewhere", current=row
        )
    if row.state != ToolCallState.WAITING:
        raise ToolCallNotReady(current=row)


def _over(row: ToolCall) -> str | None:
    late = " What the backend answers first after that is kept in the session's log; the result stays."
    if tool_calls.has_expired(row):
        return "the tool call has expired: its deadline passed without a result." + late
    if row.outcome == Outcome.CANCELLED and row.tool_class == ToolClass.CUSTOM:
        return "the tool call was cancelled before it had a result." + late
    return None


def _locked(row: ToolCall) -> Session:
    session = leases.lock_session(row.session_id)
    if session is None:
        raise NotFound("no such tool call")
    return session


def _kept(row: ToolCall, content: Blocks) -> Blocks:
    """The content as it is stored: files as artifacts, and what is too long cut, with the whole as an artifact."""

    def keep(*, name: str, media_type: str, data: bytes) -> str:
        made = artifacts.store(project=row.project_id, name=name, media_type=media_type, data=data)
        return ids.encode("art", made.pk)

    kept = contents.keep_files(content, project=row.project_id)
    limit: int = settings.TENURE.tool_output_limit
    return results.content_of(results.Content(kept), name=row.name, limit=limit, keep=keep)
