"""Around one compaction call: its request, what its answer becomes, and what follows when it fails (R5).

The call is durable like any other: its row is committed before it is sent, its failures back off and count in
the same budget, and an attempt that takes over from a dead one asks again. What is special:

- A request for a summary that is itself too long is asked again at once, half as long.
- A summary that does not shorten the context is not kept.
- What somebody asked for and cannot be had is told in a note; it ends no turn.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sessions_app.engine import calling, compaction, retry
from sessions_app.engine.compaction import Because, Job
from sessions_app.engine.pressure import COMPACTION
from sessions_app.engine.state import SessionState
from sessions_app.providers.port import Category, ModelCallFailed, ModelRequest, Reply
from sessions_app.tool_port import InDatabase

NO_HELP = "compaction_did_not_help"
NOTHING_LEFT = "nothing_to_compact"

_TOO_LONG = frozenset({Category.CONTEXT_TOO_LONG, Category.TOO_LARGE})


def job_of(state: SessionState) -> Job:
    """What to cover. Raises `ModelCallFailed` where nothing can be."""
    job = state.compaction_job()
    if job is None:
        raise ModelCallFailed(
            "nothing of this conversation can be summarized",
            category=Category.CONTEXT_TOO_LONG,
            code=NOTHING_LEFT,
        )
    return job


async def request_for(state: SessionState, call_id: UUID, job: Job, in_database: InDatabase) -> ModelRequest:
    """What to ask for a summary: text only, no tools."""
    request = await calling.bare_request(state, call_id, in_database)
    return dataclasses.replace(
        request,
        instructions=compaction.INSTRUCTIONS,
        messages=[{"role": "user", "content": [{"type": "text", "text": job.text}]}],
    )


def checkpoint(
    state: SessionState, request: ModelRequest, reply: Reply, job: Job, because: Because
) -> dict[str, Any]:
    """The data of the `checkpoint` entry. Raises `ModelCallFailed` where the reply makes none."""
    summary = compaction.summary_of(reply)
    after = job.after(summary, state.pressure.ratio)
    if not compaction.helps(job, after):
        raise ModelCallFailed(
            f"the summary of the conversation does not make it shorter: about {job.before} tokens before,"
            f" {after} after",
            category=Category.CONTEXT_TOO_LONG,
            code=NO_HELP,
            usage=reply.usage,
            may_be_billed=True,
            time_to_first_token=reply.time_to_first_token,
            provider_details=reply.provider_details,
        )
    usage = reply.usage
    data = {
        "summary": summary,
        "covers_seq": state.context.seq_of(job.cut - 1),
        "because": because.value,
        "messages": job.cut,
        "tokens_before": job.before,
        "tokens_after": after,
        "ratio": round(state.pressure.ratio, 4),
        "model_call": request.call_id,
        "provider": request.provider,
        "model": request.model,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
    }
    details: Mapping[str, Any] = reply.provider_details
    return data | ({"script_next": details["script_next"]} if "script_next" in details else {})


def figures(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a log event tells of a checkpoint."""
    return {key: data[key] for key in ("covers_seq", "messages", "tokens_before", "tokens_after")}


def verdict(state: SessionState, call_id: str, failure: ModelCallFailed) -> retry.Verdict:
    """After a failed request for a summary; `Compact` means at once, with less."""
    if failure.category in _TOO_LONG:
        final = failure.code in {NO_HELP, NOTHING_LEFT}
        if not final and state.pressure.overflows < compaction.MOST_OVERFLOWS:
            return retry.Compact()
        return retry.EndTurn("context_too_long", retry.error_of(failure))
    found = calling.verdict(state, call_id, failure)
    if isinstance(found, retry.AskAgain):  # what it would leave out, a request for a summary does not hold
        return retry.EndTurn("invalid_request", retry.error_of(failure))
    return found


def marks(failure: ModelCallFailed) -> dict[str, Any]:
    """What the `model_call_failed` entry says beside what it says of every call."""
    marks = {"purpose": COMPACTION}
    if failure.category in _TOO_LONG:
        marks["category"] = Category.CONTEXT_TOO_LONG.value
    return marks
