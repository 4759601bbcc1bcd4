"""What a project may take of a deployment that it shares with others."""

import structlog
from django.db import transaction

from sessions_app import keys, wakeups
from sessions_app.models import Project

logger = structlog.get_logger(__name__)


def set_max_running(*, name: str, max_running: int | None) -> Project:
    """How many sessions of the project run at once: a number, 0 for any number, None for the deployment's default.

    What runs already goes on; sessions beyond the limit stay due until places are free. Raises `NotFound`.
    """
    with transaction.atomic():
        row = keys.project_named(name)
        row.max_running = max_running
        # Only this column: claims count in the same row.
        row.save(update_fields=["max_running"])
        transaction.on_commit(wakeups.ring_due, robust=True)
        logger.info("project.limited", project=str(row.pk), max_running=max_running)
    return row
