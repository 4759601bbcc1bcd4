"""The runtime that the engine reaches tools through (`sessions_app.tool_port.ToolRuntime`).

Rows are moved by `tool_calls`, replies made into calls by `preparation`. Here tools run. A tool's own failure
is an outcome for the model to see, never an error of the engine; the whole error goes to the operator's log.
"""

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from sessions_app.database import is_transient
from sessions_app.errors import is_lease_lost
from sessions_app.models import Session
from sessions_app.providers.port import ToolSpec
from sessions_app.text import clean_text
from sessions_app.tool_port import Blocks, Call, MoreSessions, ToolContext, ToolOutcome
from tools_app import (
    approvals,
    call_facts,
    child_waits,
    http_tools,
    keeping,
    mcp,
    prompts,
    registry,
    remembered,
    results,
    tool_calls,
)
from tools_app.child_waits import Wait
from tools_app.models import Outcome, ToolClass
from tools_app.toolkit import of_config, toolkit

logger = structlog.get_logger(__name__)

_MAX_MESSAGE = 500


class Runtime:
    """Implements `ToolRuntime`."""

    toolkit = staticmethod(toolkit)
    insert_calls = staticmethod(prompts.insert_calls)
    recall = staticmethod(remembered.recall)
    start_calls = staticmethod(tool_calls.start_calls)
    complete_calls = staticmethod(tool_calls.complete_calls)
    open_calls = staticmethod(call_facts.open_calls)
    facts = staticmethod(call_facts.facts)
    settle = staticmethod(tool_calls.settle)
    close = staticmethod(prompts.close)
    expire = staticmethod(prompts.expire)
    undue_sql = staticmethod(call_facts.undue_sql)
    child_ended = staticmethod(child_waits.child_ended)
    ask_about_limits = staticmethod(approvals.ask_about_limits)
    close_limit = staticmethod(prompts.close_limit)

    def known_names(self) -> Collection[str]:
        return {tool.name for tool in registry.all_tools()}

    def specs(self, config: Mapping[str, Any]) -> Sequence[ToolSpec]:
        return of_config(config).specs()

    async def run_outside(self, call: Call, context: ToolContext) -> ToolOutcome:
        """Run it once. Cancelling ends an async tool; a plain one runs on in its thread, unheard."""
        run = _function_of(call, context)
        if run is None and not mcp.is_mcp(call.name):
            return _missing(call)
        try:
            if run is None:
                return await mcp.run(call, context)
            if inspect.iscoroutinefunction(run):
                result = await run(call.arguments, context)
            else:
                result = await asyncio.to_thread(keeping.in_thread, run, call.arguments, context)
            content = await keeping.content(call, context, result)
        except Exception as error:  # noqa: BLE001 - a tool is foreign code: whatever it raises is its outcome
            return _with(_failed(call, error), await _more(call, context, error))
        return ToolOutcome(Outcome.SUCCEEDED.value, content)

    def can_be_stopped(self, call: Call) -> bool:
        tool = registry.get(call.name)
        return tool is None or inspect.iscoroutinefunction(tool.run)

    def needs(self, call: Call) -> Collection[UUID]:
        tool = registry.get(call.name)
        return () if tool is None or tool.needs is None else tool.needs(call.arguments)

    def run_internal(self, call: Call, context: ToolContext, session: Session) -> ToolOutcome | None:
        """Run it in a savepoint of the caller's fence, so that its failure leaves nothing behind (A78)."""
        tool = registry.get(call.name)
        if tool is None or tool.run is None:
            return _missing(call)
        before = _values(session)
        try:
            with transaction.atomic():
                result = tool.run(call.arguments, context, session)
                if isinstance(result, Wait):
                    blocks = child_waits.result_of(result)
                    if blocks is None:
                        child_waits.begin(call.id, result)
                        return None
                    result = results.Content(blocks)
                content = results.content_of(
                    result, name=call.name, limit=settings.TENURE.tool_output_limit, keep=None
                )
        except Exception as error:
            if is_lease_lost(error) or is_transient(error) or isinstance(error, MoreSessions):
                raise
            # The savepoint took back the tool's rows; this takes back what it did to the row in memory.
            for name, value in before.items():
                setattr(session, name, value)
            return _failed(call, error)
        return ToolOutcome(Outcome.SUCCEEDED.value, content)


def _function_of(call: Call, context: ToolContext) -> Callable[..., Any] | None:
    """What runs an outside call: an HTTP tool of the config, or a tool of this deployment."""
    own = (context.config.get("tools") or {}).get(call.name) or {}
    if own.get("class") == ToolClass.OUTSIDE:
        return functools.partial(http_tools.run, own)
    tool = registry.get(call.name)
    return tool.run if tool is not None else None


async def _more(call: Call, context: ToolContext, error: Exception) -> Blocks:
    """What a failed tool gave back besides its message."""
    if not isinstance(error, results.ToolFailed) or error.more is None:
        return []
    try:
        return await keeping.content(call, context, error.more)
    except results.UnusableResult:
        logger.warning("tool.failure_not_kept", tool_call=str(call.id), tool=call.name, exc_info=True)
        return []


def _with(outcome: ToolOutcome, more: Blocks) -> ToolOutcome:
    return ToolOutcome(outcome.outcome, [*outcome.content, *more])


def _values(session: Session) -> dict[str, Any]:
    fields = session._meta.concrete_fields  # noqa: SLF001 - Django's documented model API
    return {field.attname: copy.deepcopy(getattr(session, field.attname)) for field in fields}


def _missing(call: Call) -> ToolOutcome:
    """It was there when it was called; the deployment has changed since."""
    return _outcome(f"The tool {call.name} is no longer available here.")


def _failed(call: Call, error: Exception) -> ToolOutcome:
    match error:
        case results.ToolFailed():
            message = str(error) or f"{call.name} failed."
        case results.UnusableResult():
            message = f"{call.name} ran, but {error}."
        case _:
            first_line = next(iter(str(error).splitlines()), "")
            message = f"{call.name} failed: {type(error).__name__}: {first_line}".rstrip(": ")
            logger.warning("tool.failed", tool=call.name, tool_call=str(call.id), exc_info=error)
    return _outcome(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…")


def _outcome(message: str) -> ToolOutcome:
    return ToolOutcome(Outcome.FAILED.value, [{"type": "text", "text": clean_text(message)}])
