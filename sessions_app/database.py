"""Plain psycopg where the ORM costs too much: the hot path's cursors, and what an SQLSTATE means.

A named statement on the same connection did 1,300 to 2,500 steps a second where the ORM's form did 235 to
470, so claim, fence, append and heartbeat use these cursors; everything else uses the ORM.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection

from sessions_app.text import clean_json

type Cursor = psycopg.Cursor[tuple[Any, ...]]


def raw_connection() -> psycopg.Connection[tuple[Any, ...]]:
    """This thread's psycopg connection, the one below Django's; it prepares what it runs more than once."""
    connection.ensure_connection()
    raw: psycopg.Connection[tuple[Any, ...]] = connection.connection
    if raw.prepare_threshold is None:
        raw.prepare_threshold = 2
    return raw


@contextmanager
def hot_cursor() -> Iterator[Cursor]:
    """A cursor with server-side parameters and prepared statements; no transaction of its own."""
    with psycopg.Cursor(raw_connection()) as cursor:
        yield cursor


def dumps(value: Any) -> str:
    """JSON that PostgreSQL can store: what it can't is replaced, NaN becomes null (S8)."""
    return json.dumps(clean_json(value, on_nan="null"), separators=(",", ":"))


_OUT_OF_TIME = frozenset({"57014", "25P03"})  # a statement took too long, a transaction stood still too long


def _below(error: BaseException) -> psycopg.Error | None:
    """What psycopg said, below Django's wrapping."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, psycopg.Error):
        cause = cause.__cause__
    return cause


def is_transient(error: BaseException) -> bool:
    """Whether the same statement may succeed later (C71).

    Connection errors, shutdowns, deadlocks, serialisation failures and timeouts are (also that of a transaction
    in which a paused process fell silent); data errors and broken constraints are final.
    """
    cause = _below(error)
    if cause is None:
        return False
    state = cause.sqlstate
    if state is None:
        # No SQLSTATE: the connection broke before the server could say anything.
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] in {"08", "40", "53", "55"} or state[:3] == "57P" or state in _OUT_OF_TIME


def ran_out_of_time(error: BaseException) -> bool:
    """Whether the server stopped this because of a time limit of ours (L11)."""
    cause = _below(error)
    return cause is not None and cause.sqlstate in _OUT_OF_TIME


def outcome_is_unknown(error: BaseException) -> bool:
    """Whether a COMMIT that failed like this may have happened all the same (S10)."""
    cause = _below(error)
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = cause.sqlstate
    return state is None or state[:2] == "08" or state[:3] == "57P"
