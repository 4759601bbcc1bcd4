"""Calls that wait for subagents (T8). The only writer of `ChildWait`.

A call begins to wait inside the fence of the run that makes it, which holds the parent's row; a child that comes
to rest holds that row as well. So either the call finds that child at rest and does not wait for it, or the child
finds the call and gives it its result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sessions_app import children, ids
from sessions_app.children import Report
from sessions_app.text import cut_head_tail
from sessions_app.tool_port import Blocks, Settled, ToolOutcome
from tools_app import tool_calls
from tools_app.models import ChildWait, ChildWaitMode, Outcome, ToolCallState

MOST_TEXT = 40_000
"""Characters of all answers in one result; each subagent has the same share, cut to its two ends."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What an internal tool gives back that waits for these subagents."""

    children: tuple[UUID, ...]
    mode: str = ChildWaitMode.ALL


def result_of(wait: Wait) -> Blocks | None:
    """The result of a wait that is over, None while it is not; the parent's row is locked."""
    reports = children.reports(wait.children)
    enough = any if wait.mode == ChildWaitMode.ANY else all
    if reports and not enough(not report.working for report in reports):
        return None
    return [{"type": "data", "value": show(reports)}]


def show(reports: Sequence[Report]) -> dict[str, Any]:
    """Subagents as the model sees them, which it has then."""
    children.see([report.session for report in reports])
    share = MOST_TEXT // max(1, len(reports))
    return {"subagents": [shown(report, share) for report in reports]}


def begin(call: UUID, wait: Wait) -> None:
    """A call that could run waits instead."""
    tool_calls.begin_to_wait(call)
    ChildWait.objects.create(
        tool_call_id=call, children=[str(child) for child in wait.children], mode=wait.mode
    )


def child_ended(session: UUID) -> Settled:
    """One of the session's subagents has come to rest, both rows locked: end the waits that are over."""
    settled = Settled()
    waiting = ChildWait.objects.filter(
        tool_call__session_id=session, tool_call__state=ToolCallState.WAITING
    ).order_by("tool_call__message_seq", "tool_call__position")
    for row in waiting:
        content = result_of(Wait(tuple(map(UUID, row.children)), row.mode))
        if content is not None:
            result = ToolOutcome(Outcome.SUCCEEDED.value, content)
            settled.results.append((tool_calls.complete_waiting(row.tool_call_id, result), result))
    return settled


def shown(report: Report, most_text: int) -> dict[str, Any]:
    """A subagent as the model sees it. `status` is working, succeeded, failed or cancelled."""
    data: dict[str, Any] = {"subagent": ids.encode("ses", report.session)}
    if report.name:
        data["name"] = report.name
    if report.working:
        return {**data, "status": "working"}
    data |= {"status": report.status, "reason": report.reason}
    if report.error is not None:
        data["error"] = dict(report.error)
    if report.answer:
        data["answer"], _ = cut_head_tail(report.answer, most_text)
    if report.output:
        data["output"] = report.output
    return data
