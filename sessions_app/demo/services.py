"""The processes that the demo and `make run` keep: a web process and runworkers, as an operator starts them."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx2
from django.conf import settings

from sessions_app.demo.processes import Child, Processes, wait_until
from sessions_app.models import Worker

START_LIMIT = 60.0
HOST = "127.0.0.1"


def environment(**changes: str) -> dict[str, str]:
    """This process' environment for a child; `changes` are defaults that the environment overrules."""
    return changes | os.environ


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of an earlier server that are still closing don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def start_web(processes: Processes, *, port: int, env: Mapping[str, str], log: Path | None = None) -> Child:
    command = [sys.executable, "-m", "daphne", "-v", "0", "--no-server-name", "-b", HOST, "-p", str(port)]
    return processes.start(
        "web", [*command, "config.asgi:application"], env=env, cwd=settings.BASE_DIR, log=log
    )


def start_worker(
    processes: Processes, name: str, *, loops: int, env: Mapping[str, str], log: Path | None = None
) -> Child:
    command = [sys.executable, "manage.py", "runworker", "--loops", str(loops)]
    return processes.start(name, command, env=env, cwd=settings.BASE_DIR, log=log)


def wait_for_web(child: Child, base: str) -> None:
    wait_until(
        lambda: _answers(f"{base}/healthz"),
        limit=START_LIMIT,
        otherwise=f"the web process did not answer at {base}",
        children=[child],
    )


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, trust_env=False, timeout=5).is_success
    except httpx2.TransportError:
        return False


def wait_for_worker(child: Child, *, loops: int) -> None:
    """Until all of its loops are registered and may claim."""

    def ready() -> bool:
        pids = [process.pid for process in child.tree()]
        alive = Worker.objects.filter(pid__in=pids, host=socket.gethostname(), dead=False, draining=False)
        return alive.count() >= loops

    wait_until(
        ready,
        limit=START_LIMIT,
        otherwise=f"runworker {child.name} was not ready",
        children=[child],
        every=0.1,
    )
