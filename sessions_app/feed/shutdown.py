"""The last words of a stopping web process.

daphne cancels its applications when it stops, but gives up on all of them where one connection has none yet, which
is so within a second of every socket that was opened. So this does not wait to be cancelled: it has a trigger of its
own at the reactor, which waits for it.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

_arranged = False


def before_shutdown(last_words: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run this when the server stops, once; the first call counts. Nothing where the server is not Twisted's."""
    global _arranged  # noqa: PLW0603 - one reactor per process
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    if _arranged or reactor is None:
        return
    _arranged = True

    def say() -> Any:
        from twisted.internet.defer import Deferred

        return Deferred.fromFuture(asyncio.ensure_future(last_words()))

    reactor.addSystemEventTrigger("before", "shutdown", say)
