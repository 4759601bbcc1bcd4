"""`manage.py dev`: serve the API, the admin and workers until Ctrl-C, for development."""

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.demo import serve
from sessions_app.demo.model import BadDemoModel
from sessions_app.demo.processes import ChildFailed


class Command(BaseCommand):
    """See `--help`."""

    help = (
        "Serves the console, the API, the admin and workers until Ctrl-C, and prints where to log in and two "
        "curl commands: one starts a session, one shows its answer. For development only; needs TENURE_DEBUG."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--port", type=int, default=8000, help="where to serve (8000); if taken, the next free one"
        )

    def handle(self, *args: Any, port: int, **options: Any) -> None:
        """Serve; exit status 0 after Ctrl-C or SIGTERM."""
        if not 1 <= port <= 65535:
            raise CommandError("a port is a number from 1 to 65535")
        logging.getLogger("sessions_app").setLevel(logging.WARNING)
        try:
            status = serve.run(port=port, say=self._say)
        except (serve.CannotServe, BadDemoModel, ChildFailed) as error:
            raise CommandError(str(error)) from None
        sys.exit(status)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
