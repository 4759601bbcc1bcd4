"""`manage.py runworker` with the loops of `loops.py` in the place of the engine: run as a module."""

import os
import sys
import threading

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django
from django.core.management import execute_from_command_line

from sessions_app.hosting import loop_process, process_tree, roles
from tests.sessions_app.hosting import loops


def main() -> None:
    roles.ROLES["worker"] = "tests.sessions_app.hosting.loops:worker"
    roles.ROLES["sweeper"] = "tests.sessions_app.hosting.loops:sweeper"
    roles.END_WORKER = "tests.sessions_app.hosting.loops:end_worker"
    django.setup()
    if os.environ.get("HOSTING_NO_PRCTL"):
        # As on a system whose kernel does not kill the children of a dead parent.
        process_tree._LINUX = False
    if os.environ.get("HOSTING_NO_WIRE"):
        # Loops that do not notice the end of their wire are left to the kernel.
        loop_process.die_with_the_supervisor = threading.Event().wait

    from django_q.signals import post_spawn

    post_spawn.connect(loops.note_spawn)
    execute_from_command_line(["manage.py", "runworker", *sys.argv[1:]])


if __name__ == "__main__":
    main()
