"""Where the database is: `DATABASE_URL`, or the embedded PostgreSQL when it is not set.

The URL is read by libpq's own parser, which psycopg exposes: what psql accepts, Tenure accepts, with sockets
(`?host=/run/postgresql`), several hosts, `sslmode`, `options` and percent-escapes. Two URLs may be given:

- `DATABASE_URL`: the alias `default`.
- `TENURE_DIRECT_DATABASE_URL`: the alias `direct`, present only when set: the same database without a pooler
  in between, for what needs a session of its own (the heartbeat's lock, LISTEN).
"""

import sys
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from config import embedded_postgres

ENGINE = "django.db.backends.postgresql"
# A server that went away without a word is noticed by the kernel within about ten seconds.
KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_DJANGO_NAMES = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def databases(environ: Mapping[str, str], *, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Django's DATABASES for this environment; starts the embedded PostgreSQL if no `DATABASE_URL` is set.

    `options` are connection options (Django's OPTIONS) for `default`, stronger than those in the URL; the web
    process passes its pool here. Raises ImproperlyConfigured naming the variable whose value is wrong.
    """
    url = environ.get("DATABASE_URL", "").strip() or _embedded_url()
    default = parse(url, name="DATABASE_URL")
    default["OPTIONS"] = KEEPALIVE | default["OPTIONS"] | dict(options or {})
    test_name = environ.get("TENURE_TEST_DATABASE", "").strip()
    if test_name:
        default["TEST"] = {"NAME": test_name}
    found = {"default": default}
    direct = environ.get("TENURE_DIRECT_DATABASE_URL", "").strip()
    if direct:
        # In tests both aliases are one database, and only one of them creates it.
        found["direct"] = parse(direct, name="TENURE_DIRECT_DATABASE_URL") | {"TEST": {"MIRROR": "default"}}
        found["direct"]["OPTIONS"] = KEEPALIVE | found["direct"]["OPTIONS"]
    return found


def parse(url: str, *, name: str = "DATABASE_URL") -> dict[str, Any]:
    """One entry of DATABASES for a PostgreSQL URL; `name` is the variable that errors mention.

    The URL itself is never repeated in an error, because it may hold a password.
    """
    scheme = url.partition("://")[0]
    if scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"{name} must start with postgresql:// (Tenure runs on PostgreSQL only)")
    try:
        fields = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ImproperlyConfigured(f"{name} is not a valid PostgreSQL URL: {_complaint(error)}") from None
    if not fields.get("dbname") and not fields.get("service"):
        raise ImproperlyConfigured(f"{name} names no database: postgresql://user@host:5432/DATABASE")
    for port in filter(None, str(fields.get("port") or "").split(",")):
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ImproperlyConfigured(f"{name} has a port that is not a number from 1 to 65535")
    entry: dict[str, Any] = {"ENGINE": ENGINE, "OPTIONS": {}}
    for key, value in fields.items():
        if key in _DJANGO_NAMES:
            entry[_DJANGO_NAMES[key]] = str(value)
        else:
            entry["OPTIONS"][key] = value
    return entry


def _complaint(error: Exception) -> str:
    """What libpq says, up to the part of the URL that it quotes."""
    return str(error).partition('"')[0].strip(" :\n") or "its format is wrong"


def _embedded_url() -> str:
    if not embedded_postgres.status().running:
        sys.stderr.write(
            f"No DATABASE_URL: starting the embedded PostgreSQL in {embedded_postgres.DEFAULT_DIR}\n"
        )
    try:
        return embedded_postgres.ensure_running()
    except embedded_postgres.EmbeddedPostgresError as error:
        raise ImproperlyConfigured(str(error)) from error
