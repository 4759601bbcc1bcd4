"""`manage.py createkey`: an API key, shown once."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app import ids, keys
from sessions_app.errors import TenureError
from sessions_app.models import KeyRole


class Command(BaseCommand):
    """See `--help`."""

    help = "Make an API key of a project and print it. It is shown this once; only its hash is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--project", default="default", help="name of the project (default)")
        parser.add_argument("--name", default="command line", help="what the key is called in lists")
        parser.add_argument(
            "--role",
            choices=KeyRole.values,
            default=KeyRole.ADMIN,
            help="admin (also manages keys; the default here) or member (everything a product needs)",
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
        form.add_argument("--quiet", action="store_true", help="print the key and nothing else, for scripts")

    def handle(self, *args: Any, project: str, name: str, role: str, **options: Any) -> None:
        """Make the key and print it in the form that was asked for."""
        if not 0 < len(name.strip()) <= len(name) <= 100:
            raise CommandError("a key's name has 1 to 100 characters")
        try:
            owner = keys.project_named(project)
            row, text = keys.create_key(project=owner.pk, name=name, role=role)
        except TenureError as error:
            raise CommandError(error.detail) from None
        if options["as_json"]:
            found = {
                "id": ids.encode("key", row.pk),
                "project": ids.encode("prj", owner.pk),
                "name": row.name,
                "role": row.role,
                "secret": text,
            }
            self.stdout.write(json.dumps(found))
        elif options["quiet"]:
            self.stdout.write(text)
        else:
            self.stderr.write(
                f"Key {row.name!r} ({row.role}) of project {owner.name}; it is not shown again:"
            )
            self.stdout.write(text)
