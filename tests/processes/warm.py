"""The warm parent: a process with Django and the engine loaded that forks a child for each request.

It speaks JSON lines over stdin and stdout. A request names what to run (`worker`, `sweeper`
or any `module:function` with the arguments owner and stop), settings to change and where output goes. Each
child has its own process group and dies with this process, and this process ends when its stdin does.

    -> {"run": "worker", "owner": "a", "settings": {"crash_at": "step.written"}, "output": "/tmp/…/a.log"}
    <- {"pid": 4711}
    <- {"ended": 4711, "status": -9}
"""

import asyncio
import dataclasses
import faulthandler
import gc
import importlib
import json
import os
import selectors
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from sessions_app import leases, sweeper
from sessions_app.engine import worker
from sessions_app.hosting import process_tree
from sessions_app.hosting.stop import StopFlag

RUNS = {"worker": worker.run, "sweeper": sweeper.run}
_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def main() -> None:
    process_tree.found()
    # What is loaded stays shared with the children instead of being copied by the collector.
    gc.collect()
    gc.freeze()
    noticed, notice = os.pipe()
    os.set_blocking(notice, False)
    os.set_blocking(noticed, False)
    signal.set_wakeup_fd(notice, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the test run, whose end closes our stdin
    rest = b""
    children: set[int] = set()
    say({"ready": os.getpid()})
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(noticed, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if noticed in ready:
                os.read(noticed, 4096)
                reap(children)
            if 0 in ready:
                part = os.read(0, 65536)
                if not part:
                    break
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    children.add(start(json.loads(line)))
    for pid in children:
        process_tree.kill_group(pid)


def say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def reap(children: set[int]) -> None:
    for pid in tuple(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            children.discard(pid)
            process_tree.kill_group(pid)
            say({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def start(request: dict[str, Any]) -> int:
    # A signal or a kill may follow at once: the child is deaf from birth and its group is there.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    pid = os.fork()
    if pid == 0:
        be_child(request)
    os.setpgid(pid, pid)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    say({"pid": pid})
    return pid


def be_child(request: dict[str, Any]) -> None:
    """Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        process_tree.leave()
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGUSR1, show_tasks)
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)
        settings.TENURE = dataclasses.replace(settings.TENURE, **request.get("settings", {}))
        settings.DATABASES["default"].update(request.get("database", {}))
        only = request.get("only")
        if only is not None:
            # A worker of its own for these sessions, so that many cases can go on side by side.
            leases.claim = partial(leases.claim, sessions=[UUID(session) for session in only])
        target(request["run"])(request["owner"], stop_on_signals())
        status = 0
    except BaseException:  # noqa: BLE001 - the outermost frame of this process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def show_tasks(*_: Any) -> None:
    """What waits on the event loop, for a failing test to show; `faulthandler` shows the threads."""
    for task in asyncio.all_tasks():
        task.print_stack()


def target(name: str) -> Callable[[str, StopFlag], None]:
    if name in RUNS:
        return RUNS[name]
    module, _, function = name.partition(":")
    found: Callable[[str, StopFlag], None] = getattr(importlib.import_module(module), function)
    return found


def stop_on_signals() -> StopFlag:
    """The first SIGTERM drains, the second aborts; a thread waits for them, as a stop flag asks for."""
    stop = StopFlag()

    def wait() -> None:
        while True:
            signal.sigwait(_STOP_SIGNALS)
            if stop.draining:
                stop.abort()
                continue
            tenure = settings.TENURE
            stop.drain(limit=tenure.worker_drain_timeout, margin=tenure.worker_drain_margin)
            margin = max(0.0, tenure.worker_drain_timeout - tenure.worker_drain_margin)
            abort = threading.Timer(margin, stop.abort)
            abort.daemon = True
            abort.start()

    threading.Thread(target=wait, daemon=True, name="signals").start()
    return stop
