"""`manage.py setproject`: what a project may take of the deployment."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app import projects
from sessions_app.errors import TenureError


def _places(text: str) -> int | None:
    if text == "default":
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise ArgumentTypeError("expected a number of sessions, 0 for any number, or default")
    return int(text)


class Command(BaseCommand):
    """See `--help`."""

    help = "Limit how many sessions of a project run at once. More stay due, and start as places become free."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--project", default="default", help="name of the project (default)")
        parser.add_argument(
            "--max-running",
            type=_places,
            required=True,
            help="a number, 0 for any number, or default for what TENURE_PROJECT_MAX_RUNNING says",
        )

    def handle(self, *args: Any, project: str, max_running: int | None, **options: Any) -> None:
        """Store the limit; it holds from the next claim on."""
        try:
            row = projects.set_max_running(name=project, max_running=max_running)
        except TenureError as error:
            raise CommandError(error.detail) from None
        shown = "the default" if max_running is None else max_running or "any number"
        self.stdout.write(f"{row.name}: max running is {shown}")
