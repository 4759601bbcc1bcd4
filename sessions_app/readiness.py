"""Whether this deployment can run agents right now: a database, a live worker, a sweeper that looks.

A sweeper keeps no row of its own. Its connection carries its name and PostgreSQL tells when it last spoke, so
its age costs no write.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import connection

SWEEPER_MAX_AGE = 30.0
"""Seconds without a look after which sweeping counts as stopped; it looks every second."""

# One statement, so that a probe every few seconds is one transaction.
FACTS = """
SELECT (SELECT count(*) FROM sessions_app_worker
        WHERE NOT dead AND NOT draining AND expires_at > clock_timestamp()),
    (SELECT extract(epoch FROM clock_timestamp() - max(state_change)) FROM pg_stat_activity
     WHERE application_name = 'tenure sweep' AND datname = current_database())
"""


@dataclass(frozen=True, slots=True)
class Readiness:
    """`workers` that are alive and take work; `sweeper_age` in seconds, None where no sweeper is seen."""

    workers: int
    sweeper_age: float | None
    missing: tuple[str, ...]


def check() -> Readiness:
    """Raises the database's error where it can't be asked."""
    with connection.cursor() as cursor:
        cursor.execute(FACTS)
        workers, age = cursor.fetchone()
    sweeper_age = None if age is None else max(0.0, float(age))
    missing = []
    if not workers:
        missing.append("no live worker: is `manage.py runworker` running?")
    if sweeper_age is None:
        missing.append("no sweeper is connected: each `manage.py runworker` without --no-sweeper runs one")
    elif sweeper_age > max(SWEEPER_MAX_AGE, 10 * settings.TENURE.sweep_interval):
        missing.append(f"the sweeper has not looked for {sweeper_age:.0f} s")
    return Readiness(int(workers), sweeper_age, tuple(missing))
