"""`manage.py retryfailed`: another try for sessions whose last turn failed."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app import failures, ids, keys
from sessions_app.entry_kinds import SYSTEM
from sessions_app.errors import TenureError
from sessions_app.models import TurnReason


class Command(BaseCommand):
    """See `--help`."""

    help = (
        "Repeat the last turn of sessions in which it failed, as POST /sessions/{id}/retry does, the oldest "
        "failure first. Sessions that have gone on meanwhile are left alone."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--project", help="name of the project; all of them unless given")
        parser.add_argument(
            "--reason", choices=TurnReason.values, help="only turns that failed for this reason"
        )
        parser.add_argument("--limit", type=int, help="at most so many sessions")
        parser.add_argument("--dry-run", action="store_true", help="only list them")

    def handle(
        self, *args: Any, project: str | None, reason: str | None, limit: int | None, **options: Any
    ) -> None:
        """Retry and say for each session what came of it; a refusal of one stops no other."""
        if limit is not None and limit < 1:
            raise CommandError("--limit is at least 1")
        try:
            owner = keys.project_named(project).pk if project is not None else None
        except TenureError as error:
            raise CommandError(error.detail) from None
        rows = failures.failed_sessions(project=owner, reason=reason).order_by("last_turn__ended_at", "pk")
        found = list(rows.values_list("pk", "last_turn__reason", "last_turn__error__detail")[:limit])
        if options["dry_run"]:
            for session, why, detail in found:
                self.stdout.write(f"{ids.encode('ses', session)}  {why}  {detail or ''}".rstrip())
            self.stdout.write(f"{len(found)} sessions, none of them retried")
            return
        retried = 0
        for session, refusal in failures.retry_each([row[0] for row in found], actor=SYSTEM):
            retried += refusal is None
            self.stdout.write(f"{ids.encode('ses', session)}  {refusal or 'retried'}")
        self.stdout.write(f"{retried} of {len(found)} sessions retried")
