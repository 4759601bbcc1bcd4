"""`manage.py soak`: many sessions over bad wires while loops are killed, and whether anything was lost."""

import logging
import secrets
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from bench.report import Report
from bench.soak import story


class Command(BaseCommand):
    """See `--help`."""

    help = (
        "Runs many sessions against a mock of the model providers whose answers meet faults, kills worker loops "
        "meanwhile, and checks that nothing was lost or doubled. Needs `make setup` for the mock. Ends with "
        "`soak: ok`, or with `soak: fell short` and exit status 1; the same is in bench/results/soak.json."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--seed", type=int, help="what is said and which faults come (random)")
        parser.add_argument("--sessions", type=int, default=200, help="sessions, all at once (200)")
        parser.add_argument("--turns", type=int, default=5, help="turns of each (5)")
        parser.add_argument("--loops", type=int, default=2, help="worker loops (2)")
        parser.add_argument("--kills", type=int, default=3, help="kills of a loop in the middle (3)")
        parser.add_argument("--faults", type=float, default=0.5, help="share of requests with a fault (0.5)")
        parser.add_argument("--keep", action="store_true", help="leave the sessions and logs there")
        parser.add_argument("--results", type=Path, help="folder of soak.json (bench/results)")

    def handle(self, *args: Any, results: Path | None, seed: int | None, **options: Any) -> None:
        """Run it; the story's result is the exit status."""
        logging.getLogger("sessions_app").setLevel(logging.ERROR)  # its own rows are what this command says
        names = ("sessions", "turns", "loops", "kills", "faults", "keep")
        asked = {name: options[name] for name in names}
        report = Report("soak", sys.stdout, results)
        sys.exit(
            story.run(report, story.Options(seed=secrets.randbelow(2**31) if seed is None else seed, **asked))
        )
