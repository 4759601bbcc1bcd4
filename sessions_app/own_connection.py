"""Connections outside Django's: one for the heartbeat, one for LISTEN, one for NOTIFY, one for a sweeper.

They need a session of their own on the server (an advisory lock, LISTEN), never wait behind other work and
notice a silent network soon. Where `TENURE_DIRECT_DATABASE_URL` is given they go there, past a pooler.
"""

from typing import Any

import psycopg
from django.db import connections

RETRY_FIRST = 0.05
RETRY_MAX = 5.0


def connect(*, purpose: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A new connection in autocommit mode. Server settings are left alone: some poolers refuse them.

    Raises `psycopg.OperationalError` if the database can't be reached within 5 seconds.
    """
    alias = "direct" if "direct" in connections else "default"
    params: dict[str, Any] = connections[alias].get_connection_params()
    # Django's adapters and cursors are for the ORM; these connections speak plain psycopg.
    del params["context"], params["cursor_factory"]
    return psycopg.connect(**params | {"application_name": f"tenure {purpose}"}, autocommit=True)


def backoff(failures: int, *, longest: float = RETRY_MAX) -> float:
    """Seconds to wait after the given number of failures in a row (1 for the first)."""
    return min(longest, RETRY_FIRST * 2.0 ** min(failures - 1, 16))
