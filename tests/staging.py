"""Staging races: hold a lock, wait until the contender is visibly blocked, let go, look at the winner."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection, connections


def eventually(condition: Callable[[], Any], *, within: float = 5.0) -> Any:
    """The first true value of `condition`; fails if there is none in time."""
    until = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)


def another_connection() -> psycopg.Connection[tuple[Any, ...]]:
    """A connection to the test database beside Django's."""
    parameters = connection.get_connection_params()
    wanted = ("dbname", "user", "password", "host", "port")
    return psycopg.connect(**{key: parameters[key] for key in wanted if key in parameters})


@contextmanager
def holding(sql: str, *parameters: Any) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A transaction of somebody else that has run `sql` and stays open until the block ends; then it commits."""
    with another_connection() as other:
        other.execute(sql, parameters)
        yield other


def blocked() -> list[tuple[Any, ...]]:
    """Who waits for a lock in the test database: (pid, query)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return cursor.fetchall()


def wait_until_blocked(count: int = 1) -> list[tuple[Any, ...]]:
    return eventually(lambda: len(found := blocked()) >= count and found)


class Contender(threading.Thread):
    """Runs a function in a thread with its own connection; `result()` returns its value or raises its error."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again in `result`
            self._error = error
        finally:
            connections.close_all()

    def result(self, timeout: float = 10) -> Any:
        self.join(timeout)
        assert not self.is_alive(), "it is still running"
        if self._error is not None:
            raise self._error
        return self._value
