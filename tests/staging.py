"""Staging races: hold a lock, wait until the contender is visibly blocked, let go, look at the winner."""

import selectors
import socket
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


class Relay:
    """A proxy before the database that can fall silent without closing anything: a half-open connection.

    `freeze` stops the connections that exist; new ones are served. TCP stays healthy all the time, so only
    whoever waits for an answer can notice.
    """

    def __init__(self) -> None:
        info = connection.get_connection_params()
        self._upstream = (info.get("host") or "/var/run/postgresql", int(info.get("port") or 5432))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: dict[socket.socket, socket.socket] = {}
        self._frozen: set[socket.socket] = set()
        self._freeze = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connect(self, **parameters: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection to the test database through this relay."""
        wanted = connection.get_connection_params()
        known = {key: wanted[key] for key in ("dbname", "user", "password") if key in wanted}
        return psycopg.connect(host="127.0.0.1", port=self.port, **known, **parameters)

    def freeze(self) -> None:
        """Carry nothing any more over the connections that exist now."""
        self._freeze.set()
        eventually(lambda: not self._freeze.is_set())

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5)
        for end in (self._listening, *self._ends):
            end.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._freeze.is_set():
                self._frozen |= set(self._ends)
                self._freeze.clear()
            with selectors.DefaultSelector() as selector:
                selector.register(self._listening, selectors.EVENT_READ)
                for end in set(self._ends) - self._frozen:
                    selector.register(end, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(0.01)]
            for end in ready:
                if end is self._listening:
                    self._accept()
                elif end in self._ends:
                    self._carry(end)

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        host, port = self._upstream
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
        else:
            server = socket.create_connection((host, port))
        self._ends[client], self._ends[server] = server, client

    def _carry(self, end: socket.socket) -> None:
        other = self._ends[end]
        try:
            data = end.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            data = b""
        for gone in (end, other):
            del self._ends[gone]
            gone.close()
