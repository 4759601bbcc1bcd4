"""`manage.py bench`: measure, and say what was measured."""

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from bench import feed, recovery, steps
from bench.report import Report


class Command(BaseCommand):
    help = (
        "Measures on the configured database and writes bench/results/<name>.json. Rows are printed as they "
        "come; the last line says `<name>: ok` or `<name>: fell short`, with the matching exit status."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = parser.add_subparsers(dest="name", required=True, metavar="steps | recovery | feed")
        step = names.add_parser("steps", help="durable steps per second, as a share of the database's floor")
        step.add_argument("--seconds", type=float, default=10.0, help="length of each measurement (10)")
        step.add_argument("--loops", type=int, default=2, help="worker processes (2)")
        step.add_argument("--sessions", type=int, default=64, help="sessions at once (64)")
        recover = names.add_parser(
            "recovery", help="how long a session stands still when its worker is killed"
        )
        recover.add_argument("--kills", type=int, default=10, help="kills of each kind (10)")

        live = names.add_parser("feed", help="from commit to a browser's socket, and what idle sockets cost")
        live.add_argument("--entries", type=int, default=100, help="entries for each number of sockets (100)")

    def handle(self, *_: Any, **options: Any) -> None:
        logging.getLogger().setLevel(logging.ERROR)  # its own rows are what this command says
        report = Report(options["name"], sys.stdout)
        match options["name"]:
            case "steps":
                steps.run(
                    report, seconds=options["seconds"], loops=options["loops"], sessions=options["sessions"]
                )
            case "recovery":
                recovery.run(report, kills=options["kills"])
            case "feed":
                feed.run(report, entries=options["entries"])
        sys.exit(report.close())
