"""The feed's reads: a few threads, each with a database connection for as long as one read takes (F5)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import connection

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="feed")


async def in_thread[Found](function: Callable[[], Found]) -> Found:
    """What `function` returns or raises; afterwards its connection is given back."""

    def run() -> Found:
        try:
            return function()
        finally:
            if not connection.in_atomic_block:
                connection.close()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)
