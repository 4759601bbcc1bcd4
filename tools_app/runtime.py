"""The runtime that the engine reaches tools through (`sessions_app.tool_port.ToolRuntime`).

Rows are moved by `tool_calls`, replies made into calls by `preparation`. Here tools run. A tool's own failure
is an outcome for the model to see, never an error of the engine; the whole error goes to the operator's log.
"""

import asyncio
import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connections, transaction

from sessions_app import artifacts, ids
from sessions_app.database import is_transient
from sessions_app.errors import is_lease_lost
from sessions_app.models import Session
from sessions_app.providers.port import ToolSpec
from sessions_app.text import clean_text
from sessions_app.tool_port import Blocks, Call, MoreSessions, ToolContext, ToolOutcome
from tools_app import child_waits, prompts, registry, results, tool_calls
from tools_app.child_waits import Wait
from tools_app.models import Outcome
from tools_app.toolkit import of_config, toolkit

logger = structlog.get_logger(__name__)

_MAX_MESSAGE = 500


class Runtime:
    """Implements `ToolRuntime`."""

    toolkit = staticmethod(toolkit)
    insert_calls = staticmethod(prompts.insert_calls)
    start_calls = staticmethod(tool_calls.start_calls)
    complete_calls = staticmethod(tool_calls.complete_calls)
    open_calls = staticmethod(tool_calls.open_calls)
    facts = staticmethod(tool_calls.facts)
    settle = staticmethod(tool_calls.settle)
    close = staticmethod(prompts.close)
    expire = staticmethod(prompts.expire)
    undue_sql = staticmethod(tool_calls.undue_sql)
    child_ended = staticmethod(child_waits.child_ended)

    def known_names(self) -> Collection[str]:
        return {tool.name for tool in registry.all_tools()}

    def specs(self, config: Mapping[str, Any]) -> Sequence[ToolSpec]:
        return of_config(config).specs()

    def recall(self, calls: Sequence[Call], *, project: UUID, session: UUID) -> list[Call]:
        del project, session
        return list(calls)

    async def run_outside(self, call: Call, context: ToolContext) -> ToolOutcome:
        """Run it once. Cancelling ends an async tool; a plain one runs on in its thread, unheard."""
        tool = registry.get(call.name)
        if tool is None or tool.run is None:
            return _missing(call)
        try:
            if inspect.iscoroutinefunction(tool.run):
                result = await tool.run(call.arguments, context)
            else:
                result = await asyncio.to_thread(_in_thread, tool.run, call.arguments, context)
            content = await _content(call, context, result)
        except Exception as error:  # noqa: BLE001 - a tool is foreign code: whatever it raises is its outcome
            return _failed(call, error)
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


async def _content(call: Call, context: ToolContext, result: Any) -> Blocks:
    """The content of an outside tool's result. Keeping artifacts blocks, so that happens in a thread."""
    limit: int = settings.TENURE.tool_output_limit
    if result is None or (isinstance(result, str) and len(result) <= limit):
        return results.content_of(result, name=call.name, limit=limit, keep=None)

    def keep(*, name: str, media_type: str, data: bytes) -> str | None:
        return _keep(call, context, name=name, media_type=media_type, data=data)

    return await asyncio.to_thread(
        _in_thread, lambda: results.content_of(result, name=call.name, limit=limit, keep=keep)
    )


def _keep(call: Call, context: ToolContext, *, name: str, media_type: str, data: bytes) -> str | None:
    """The id of a new artifact. The tool has run and won't run again: no storage fault may cost its result."""
    try:
        artifact = artifacts.store(project=context.project, name=name, media_type=media_type, data=data)
    except Exception:
        logger.warning("tool.output_not_kept", tool_call=str(call.id), tool=call.name, exc_info=True)
        return None
    return ids.encode("art", artifact.id)


def _in_thread[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Django opens a connection for each thread that asks; these threads must not keep theirs."""
    try:
        return function(*args, **kwargs)
    finally:
        connections.close_all()


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
