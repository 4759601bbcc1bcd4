"""`manage.py demo`: run an agent while its workers are killed, and show that nothing was lost."""

import logging
import sys
from typing import Any

from django.core.management.base import BaseCommand

from bench.report import Report
from sessions_app.demo import story


class Command(BaseCommand):
    """See `--help`."""

    help = (
        "Starts a web process and two runworkers, runs an agent through the REST API while its workers are "
        "killed and stopped, and checks what is left. With TENURE_DEMO_MODEL the agent is a real model. Ends "
        "with `demo: ok`, or with `demo: fell short` and exit status 1; the same is in bench/results/demo.json."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Play it; the story's result is the exit status."""
        # The events of this process belong to no worker and would stand between the lines of the timeline.
        logging.getLogger("sessions_app").setLevel(logging.WARNING)
        sys.exit(story.run(Report("demo", sys.stdout)))
