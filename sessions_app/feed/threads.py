"""The feed's reads: a few threads, each with a database connection for as long as one read takes (F5).

What clients say over sockets has threads of its own: it may wait for a session's lock, and no feed waits with it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import connection

_reads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="feed")
_answers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="socket")


async def in_thread[Found](function: Callable[[], Found]) -> Found:
    """What `function`, a read, returns or raises; afterwards its connection is given back."""
    return await _run(_reads, function)


async def in_answering_thread[Found](function: Callable[[], Found]) -> Found:
    """The same for what a client's frame asks for."""
    return await _run(_answers, function)


async def _run[Found](threads: ThreadPoolExecutor, function: Callable[[], Found]) -> Found:

    def run() -> Found:
        try:
            return function()
        finally:
            if not connection.in_atomic_block:
                connection.close()

    return await asyncio.get_running_loop().run_in_executor(threads, run)
