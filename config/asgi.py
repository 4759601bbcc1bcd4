"""What daphne serves: HTTP by Django; sockets join here with the feed."""

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import psycopg
from channels.routing import ProtocolTypeRouter
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


# Requests borrow connections from a pool and give them back. Only here: workers keep one per thread, and
# nothing that forks may have a pool before it does.
settings.DATABASES["default"]["OPTIONS"]["pool"] = {
    "min_size": 1,
    "max_size": settings.TENURE.web_connections,
    "timeout": 10,
    "check": _check,
}


async def no_sockets(scope: Any, receive: Any, send: Any) -> None:
    """Closed before it opens, which daphne tells as 403; without this a client's upgrade is a crash of ours."""
    del scope
    await receive()
    await send({"type": "websocket.close"})


application = ProtocolTypeRouter({"http": get_asgi_application(), "websocket": no_sockets})
