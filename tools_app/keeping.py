"""The result of an outside tool as content, with what is too big for the log kept as artifacts.

Writing to the storage blocks and is an effect outside of any transaction, so it happens in a thread, before the
step that saves the result.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.db import connections

from sessions_app import artifacts, ids
from sessions_app.tool_port import Blocks, Call, ToolContext
from tools_app import results

logger = structlog.get_logger(__name__)


async def content(call: Call, context: ToolContext, result: Any) -> Blocks:
    """The blocks of a result; raises `results.UnusableResult`."""
    limit: int = settings.TENURE.tool_output_limit
    if result is None or (isinstance(result, str) and len(result) <= limit):
        return results.content_of(result, name=call.name, limit=limit, keep=None)

    def keep(*, name: str, media_type: str, data: bytes) -> str | None:
        return _keep(call, context, name=name, media_type=media_type, data=data)

    return await asyncio.to_thread(
        in_thread, lambda: results.content_of(result, name=call.name, limit=limit, keep=keep)
    )


def in_thread[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Django opens a connection for each thread that asks; these threads must not keep theirs."""
    try:
        return function(*args, **kwargs)
    finally:
        connections.close_all()


def _keep(call: Call, context: ToolContext, *, name: str, media_type: str, data: bytes) -> str | None:
    """The id of a new artifact. The tool has run and won't run again: no storage fault may cost its result."""
    try:
        artifact = artifacts.store(project=context.project, name=name, media_type=media_type, data=data)
    except Exception:
        logger.warning("tool.output_not_kept", tool_call=str(call.id), tool=call.name, exc_info=True)
        return None
    return ids.encode("art", artifact.id)
