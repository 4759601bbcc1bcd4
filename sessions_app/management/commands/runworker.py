"""`manage.py runworker`: run agents on this host until told to stop."""

import dataclasses
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from sessions_app.hosting.supervisor import Supervisor

DEFAULT_LOOPS = 2

HELP = """\
Runs agents until told to stop: a supervisor keeps worker loops and a sweeper alive, each a process.
Any number of these may run, on any number of hosts.

Signals: SIGTERM or Ctrl-C once stops in order: nothing new is claimed, running steps get
TENURE_WORKER_DRAIN_TIMEOUT (20s), what is left is aborted and released, and other workers go on with it at
once. A second signal aborts right away. Exit status 0, or 1 if the database could not be reached to release
everything (the sweepers of other workers do it then).

Writes the event `runworker.ready` when all loops run."""


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= number <= high:
            raise ArgumentTypeError(f"{number} is not between {low} and {high}")
        return number

    return parse


class Command(BaseCommand):
    """See `--help`."""

    help = HELP

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Django's parser, which else would fill the paragraphs of the help into one."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.formatter_class = RawDescriptionHelpFormatter
        return parser

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options of api.md."""
        parser.add_argument(
            "--loops",
            type=_between(1, 64),
            default=DEFAULT_LOOPS,
            metavar="N",
            help=f"worker loops, one process each (default {DEFAULT_LOOPS}; about one per core)",
        )
        parser.add_argument(
            "--capacity",
            type=_between(1, 1000),
            metavar="N",
            help="sessions that one loop runs at once (default: TENURE_WORKER_CAPACITY, 64)",
        )
        parser.add_argument(
            "--no-sweeper",
            action="store_true",
            help="no sweeper loop here; at least one host must run one",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the supervisor; its result is the exit status."""
        if options["capacity"] is not None:
            # Loops are forked from this process and see the same value.
            settings.TENURE = dataclasses.replace(settings.TENURE, worker_capacity=options["capacity"])
        _preload_providers()
        sys.exit(Supervisor(loops=options["loops"], sweeper=not options["no_sweeper"]).run())


def _preload_providers() -> None:
    """Import the providers' SDKs once, before the forks: they cost seconds of CPU and over 100 MB."""
    names = settings.TENURE.preload_providers
    if names:
        from sessions_app.providers import registry

        registry.load_for(names)
