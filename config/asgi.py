"""What daphne serves: HTTP by Django, sockets by the apps' consumers."""

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import psycopg
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import connection
from psycopg_pool import ConnectionPool


def _check(borrowed: psycopg.Connection[Any]) -> None:
    """Before each use: after a restart of the database the pool is full of dead connections.

    Each would cost a client's request, perhaps hours later. The pool alone would look at the next one only after a
    pause that doubles, so all are looked at when the first is found dead.
    """
    try:
        ConnectionPool.check_connection(borrowed)
    except psycopg.Error:
        connection.pool.check()  # type: ignore[attr-defined]
        raise


# Apps are ready from here on; consumers and their models come after that.
_django = get_asgi_application()

from sessions_app import consumers  # noqa: E402
from sessions_app.api import socket_frames as frames_of_sessions  # noqa: E402
from sessions_app.feed.gate import SCOPE_KEY, Gate  # noqa: E402
from tools_app.api import socket_frames as frames_of_tools  # noqa: E402

frames_of_sessions.register()
frames_of_tools.register()

# Requests borrow connections from a pool and give them back. Only here: workers keep one per thread, and
# nothing that forks may have a pool before it does.
settings.DATABASES["default"]["OPTIONS"]["pool"] = {
    "min_size": 1,
    "max_size": settings.TENURE.web_connections,
    "timeout": 10,
    "check": _check,
}


_sockets = URLRouter(consumers.routes())


def _gated(application: Any) -> Any:
    """With a gate in the scope, by which feeds know how fast the client takes what they send."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await application({**scope, SCOPE_KEY: Gate(send)}, receive, send)

    return call


application = ProtocolTypeRouter({"http": _gated(_django), "websocket": _gated(_sockets)})
