"""`manage.py setsecret`: store a secret without showing it to the process list or the shell's history."""

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app import keys, secrets
from sessions_app.errors import TenureError


class Command(BaseCommand):
    """See `--help`."""

    help = (
        "Store a secret of a project. The value is asked for, or read from standard input; never an argument."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("name", help="what configs call it, such as openai-prod")
        parser.add_argument("--project", default="default", help="name of the project (default)")

    def handle(self, *args: Any, name: str, project: str, **options: Any) -> None:
        """Read the value and store it."""
        try:
            owner = keys.project_named(project)
            value = getpass.getpass("Value: ") if sys.stdin.isatty() else sys.stdin.read()
            value = value.rstrip("\r\n")
            if not value:
                raise CommandError("the value is empty")
            _, is_new = secrets.put_secret(project=owner, name=name, value=value)
        except TenureError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(f"{'stored' if is_new else 'replaced'} {name}")
