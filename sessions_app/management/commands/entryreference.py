"""`manage.py entryreference`: write docs/reference/entries.md from the code."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from sessions_app.entry_reference import render


class Command(BaseCommand):
    help = "Writes docs/reference/entries.md from the types of entries."
    requires_system_checks = ()

    def handle(self, *_: Any, **__: Any) -> None:
        path = Path(settings.BASE_DIR) / "docs" / "reference" / "entries.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render())
        self.stdout.write(f"wrote {path}")
