"""The soak from the first process to the closing line.

    start    the mock, a web process, a runworker with its loops; the proxy in front of the mock
    talk     all sessions at once, through the REST API; loops are killed meanwhile
    judge    identities, rules, turns that gave up

It has a project of its own, which is removed again unless something fell short or it is asked to stay.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from django.conf import settings
from django.db import Error as DatabaseError

from bench import rows
from bench.report import FellShort, Report
from bench.soak import mock
from bench.soak.judge import judge
from bench.soak.monitor import watch
from bench.soak.plans import PROTOCOLS, plans
from bench.soak.proxy import Proxy
from bench.soak.talk import Talk
from sessions_app import ids, keys
from sessions_app.demo import services
from sessions_app.demo.processes import Child, ChildFailed, Interrupted, Processes
from sessions_app.models import IdempotencyRecord, Project, Worker
from sessions_app.models.fields import ClockTimestamp

_RETRIES = {"TENURE_RETRY_BASE": "50ms", "TENURE_RETRY_MAX": "500ms"}
"""So that a turn uses up its retries in seconds; the environment overrules them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a soak is asked to do. `faults` is the share of requests that meet one."""

    seed: int
    sessions: int
    turns: int
    loops: int
    kills: int
    faults: float
    keep: bool


def run(report: Report, options: Options) -> int:
    """The exit status: 0, 1 if it fell short, 128 + the signal that ended it."""
    folder = Path(settings.BASE_DIR) / ".tenure" / "soak" / uuid4().hex[:8]
    interrupted = 0
    project = None
    try:
        mock.check_installed()
        _check_alone()
        folder.mkdir(parents=True)
        project = Project.objects.create(name=f"soak-{folder.name}")
        with Processes() as processes:
            try:
                _play(report, processes, project, folder, options)
            except FellShort as error:
                report.expect(False, str(error))
                _show_logs(report, processes.children)
            except ChildFailed as error:
                report.expect(False, str(error))
                _show_logs(report, error.children)
    except FellShort as error:
        report.expect(False, str(error))
    except DatabaseError as error:
        report.expect(False, f"the database: {error}".strip())
    except Interrupted as signalled:
        interrupted = signalled.number
        report.expect(False, f"interrupted by {signalled}")
    except Exception as error:
        # A mistake of the soak itself: with its stack trace, and without a closing line that says ok.
        report.expect(False, f"it broke off with {type(error).__name__}")
        report.close()
        raise
    if project is not None:
        _leave(report, project, folder, keep=options.keep)
    status = report.close()
    return 128 + interrupted if interrupted else status


def _check_alone() -> None:
    """Another runworker would take sessions whose model it may not reach."""
    found = Worker.objects.filter(dead=False, expires_at__gt=ClockTimestamp()).first()
    if found is not None:
        where = f"{found.host}, pid {found.pid}"
        raise FellShort(f"another runworker ({where}) works on this database; stop it and try again")


def _play(report: Report, processes: Processes, project: Project, folder: Path, options: Options) -> None:
    effects = folder / "effects"
    report.row(
        "soak",
        seed=options.seed,
        sessions=options.sessions,
        turns=options.turns,
        loops=options.loops,
        kills=options.kills,
        faults=options.faults,
    )
    env = services.environment(TENURE_LOG_JSON="1", TENURE_LOG_LEVEL="WARNING", **_RETRIES) | {
        "TENURE_ALLOWED_NETWORKS": "127.0.0.0/8",
        "TENURE_PRELOAD_PROVIDERS": ",".join(PROTOCOLS),
        # A session may be in the way of every kill; the crash limit is not what is measured here.
        "TENURE_CRASH_LIMIT": str(max(settings.TENURE.crash_limit, options.kills + 1)),
        "TENURE_DEV_TOOLS": "1",
        "TENURE_DEV_TOOL_ROOT": str(effects),
    }
    started = time.monotonic()
    port = services.free_port()
    base = f"http://{services.HOST}:{port}"
    server, address = mock.start(processes, folder)
    web = services.start_web(processes, port=port, env=env, log=folder / "web.log")
    worker = services.start_worker(
        processes, "runworker", loops=options.loops, env=env, log=folder / "runworker.log"
    )
    services.wait_for_web(web, base)
    services.wait_for_worker(worker, loops=options.loops)
    report.row("ready", seconds=round(time.monotonic() - started, 1))
    _, key = keys.create_key(project=project.pk, name="soak")
    proxy = Proxy(target=address, seed=options.seed, share=options.faults)
    said = plans(seed=options.seed, sessions=options.sessions, turns=options.turns)
    with ExitStack() as stack:
        talk = stack.enter_context(Talk(api=base, key=key, proxy=proxy, plans=said))
        watch(report, talk, project=project, worker=worker, others=[web, server], kills=options.kills)
        judge(report, talk, project=project, ledger=effects / "ledger")


def _leave(report: Report, project: Project, folder: Path, *, keep: bool) -> None:
    """Remove what was made, unless somebody has to look at it."""
    if report.short or keep:
        report.say(f"Its sessions stay in project {project.name}, the logs of its processes in {folder}")
        return
    holders = [f"key:{ids.encode('key', key.pk)}@{project.pk.hex}" for key in project.api_keys.all()]
    IdempotencyRecord.objects.filter(holder__in=holders).delete()
    rows.remove(project)
    shutil.rmtree(folder, ignore_errors=True)


def _show_logs(report: Report, children: Sequence[Child]) -> None:
    for child in children:
        if tail := child.tail():
            report.say(f"--- the last lines of {child.name}'s log")
            report.say(tail)
