"""What ends for a session's calls and for what people were asked about them, put together.

Calls, approvals and questions are tables with a writer each. When a turn ends, a newer message takes the place of
an answer, or a deadline has passed, they change together, in the transaction that holds the session's lock.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

import psycopg

from sessions_app.tool_port import Call, Settled
from tools_app import approvals, questions, tool_calls
from tools_app.models import ApprovalState, QuestionState


def insert_calls(cursor: psycopg.Cursor[Any], rows: Sequence[tuple[Call, int, int]]) -> None:
    """Store new calls, and what they put to people."""
    tool_calls.insert_calls(cursor, rows)
    calls = [call for call, _, _ in rows]
    approvals.insert(cursor, calls)
    questions.insert(cursor, calls)


def close(session_id: UUID, *, reason: str, only: Literal["open_prompts"] | None = None) -> Settled:
    """The turn ends, or with `only="open_prompts"` just what waits for a person (I6, H5)."""
    settled = tool_calls.close(session_id, reason=reason, only=only)
    settled = _with_closed(settled, ApprovalState.CANCELLED, QuestionState.CANCELLED)
    return replace(settled, closed=[*settled.closed, *approvals.close_limit(session_id)])


def close_limit(session_id: UUID) -> Settled:
    """What people were asked about a limit is no longer so."""
    return Settled(closed=approvals.close_limit(session_id))


def expire(session_id: UUID) -> Settled:
    """Deadlines have passed (S12)."""
    return _with_closed(tool_calls.expire(session_id), ApprovalState.EXPIRED, QuestionState.EXPIRED)


def _with_closed(settled: Settled, approval: ApprovalState, question: QuestionState) -> Settled:
    ended = [call.id for call, _ in settled.results]
    closed = approvals.close_of(ended, state=approval) + questions.close_of(ended, state=question)
    return replace(settled, closed=closed)
