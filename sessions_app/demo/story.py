"""The demo: three turns of one agent, four ends of its workers, and a look at what is left.

    start     web process, runworkers A and B, a key of project `default`, a config, a profile
    turn 1    a loop is killed in a model call; a whole runworker in a tool, and C takes its place
    turn 2    a runworker is stopped as in a deploy
    turn 3    the agent waits for an approval, an answer and a backend; a loop is killed while they come
    check     the invariants; what the tools did, counted where they did it

Everything but killing goes through the REST API.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from uuid import uuid4

from django.conf import settings
from django.core.management import call_command
from django.db import Error as DatabaseError

from bench.report import Report
from sessions_app.demo import acts, agent, checks, services
from sessions_app.demo import model as demo_model
from sessions_app.demo.api import Api, ApiFailed, Json
from sessions_app.demo.follower import FellShort, Follower
from sessions_app.demo.processes import Child, ChildFailed, Interrupted, Processes
from sessions_app.demo.timeline import HEAD, Timeline

LOOPS = 1  # of each runworker
LIMIT = 25.0
LIMIT_REAL = 240.0
"""Seconds that the demo waits for any one thing; a real model may take its time."""


def run(report: Report) -> int:
    """The exit status: 0, 1 if the demo fell short, 128 + the signal that ended it."""
    folder = Path(settings.BASE_DIR) / ".tenure" / "demo" / uuid4().hex[:8]
    interrupted = 0
    started = time.monotonic()
    try:
        with Processes() as processes:
            try:
                _play(report, processes, folder)
            except (FellShort, ApiFailed, demo_model.BadDemoModel) as error:
                report.expect(False, str(error))
                _show_logs(report, processes.children)
            except ChildFailed as error:
                report.expect(False, str(error))
                _show_logs(report, error.children)
            except DatabaseError as error:
                report.expect(False, f"the database: {error}".strip())
    except Interrupted as signalled:
        interrupted = signalled.number
        report.expect(False, f"interrupted by {signalled}")
    except Exception as error:
        # A mistake of the demo itself: with its stack trace, and without a closing line that says ok.
        report.expect(False, f"it broke off with {type(error).__name__}")
        report.close()
        raise
    report.row("whole demo", seconds=round(time.monotonic() - started, 1))
    if report.short and folder.exists():
        report.say(f"The logs of its processes are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    status = report.close()
    return 128 + interrupted if interrupted else status


def _play(report: Report, processes: Processes, folder: Path) -> None:
    model = demo_model.parse(settings.TENURE.demo_model)
    if model is not None:
        demo_model.check(model, allowed_networks=settings.TENURE.allowed_networks)
    timeline = Timeline(say=report.say, keep=report.rows.append)
    run_id, effects = folder.name, folder / "effects"
    folder.mkdir(parents=True)
    env = services.environment(TENURE_LOG_JSON="1") | {
        "TENURE_DEV_TOOLS": "1",
        "TENURE_DEV_TOOL_ROOT": str(effects),
    }
    if model is not None:
        env.setdefault("TENURE_PRELOAD_PROVIDERS", model["provider"])
    names = iter("ABCDEFGH")

    def start_worker() -> Child:
        name = next(names)
        return services.start_worker(
            processes, name, loops=LOOPS, env=env, log=folder / f"runworker-{name}.log"
        )

    shown = "a scripted model" if model is None else settings.TENURE.demo_model
    report.say(f"An agent with {shown}, whose workers are killed.\n")
    report.say(HEAD)
    port = services.free_port()
    base = f"http://{services.HOST}:{port}"
    web = services.start_web(processes, port=port, env=env, log=folder / "web.log")
    trees = [start_worker(), start_worker()]
    timeline.act(f"web process {web.pid}, runworkers A {trees[0].pid} and B {trees[1].pid} started")
    key = _key()
    wait_ready = partial(services.wait_for_worker, loops=LOOPS)
    services.wait_for_web(web, base)
    for tree in trees:
        wait_ready(tree)
    timeline.act(f"all ready at {base}: {timeline.elapsed():.1f} s")

    with ExitStack() as stack:
        api = stack.enter_context(Api(base, key["secret"]))
        stack.callback(_tidy, api.revoke_key, key["id"])
        things = agent.names(run_id)
        if model is not None and "base_url" in model and api.has_secret(demo_model.SECRET):
            model["credential"] = demo_model.SECRET
        config = api.create_config(agent.document(model, things))
        for warning in config["warnings"]:
            timeline.act(f"config {warning['path']}: {warning['message']}")
        profile = api.create_profile(name=f"demo-{run_id}", config=config["id"])
        stack.callback(_tidy, api.delete_profile, profile["id"])
        session = api.start_session(
            profile=profile["id"], name=f"demo {run_id}", text=agent.first_input(things)
        )
        # Left in the middle, it would go on as soon as any other worker starts.
        stack.callback(_tidy, api.cancel, session["id"])
        timeline.act(f"session {session['id']} started with profile {profile['name']}")
        follower = Follower(
            api=api,
            session=session["id"],
            timeline=timeline,
            trees=trees,
            others=[web],
            limit=LIMIT if model is None else LIMIT_REAL,
        )
        stage = acts.Stage(
            follower=follower,
            report=report,
            scripted=model is None,
            file=effects / things.file,
            looked_up=effects / f"lookup.{things.allowed}",
            start_worker=start_worker,
            wait_ready=wait_ready,
        )
        _perform(stage, things)
        _judge(stage, effects, things)


def _perform(stage: acts.Stage, things: agent.Names) -> None:
    """The turns, and what happens to their workers."""
    follower = stage.follower
    stage.play(acts.kill_loop, "killing a loop in a model call")
    stage.play(acts.kill_tree, "killing a runworker in a tool")
    follower.until(follower.at_rest, what="the end of the turn")
    for tree in follower.trees:
        stage.wait_ready(tree)
    follower.api.say(follower.session, agent.second_input())
    stage.play(acts.stop_worker, "stopping a runworker")
    follower.until(follower.at_rest, what="the end of the turn")
    follower.api.say(follower.session, agent.third_input(things))
    stage.play(acts.answer_while_killed, "killing a loop while people answer")
    # A real model may ask more than was planned.
    follower.until(lambda: not acts.answer_all(stage) and follower.at_rest(), what="the end of the turn")


def _key() -> Json:
    out = StringIO()
    call_command("createkey", project="default", name="demo", as_json=True, stdout=out)
    key: Json = json.loads(out.getvalue())
    return key


def _tidy(call: Callable[[str], None], thing: str) -> None:
    """Take back what the demo made; a web process that is gone must not hide why it is."""
    with suppress(ApiFailed):
        call(thing)


def _judge(stage: acts.Stage, effects: Path, things: agent.Names) -> None:
    report, follower = stage.report, stage.follower
    report.say("")
    for row in list(report.rows):
        if row["what"] == "recovery":
            report.say(f"  {row['act']:<40} {row['recovery_s']:5.2f} s until the next attempt ran")
    wrong = checks.general(follower, effects, resumed=stage.resumed if stage.scripted else None)
    if stage.scripted:
        wrong += checks.promised(follower, follower.api.session(follower.session), effects, things)
    for sentence in wrong:
        report.say(f"  violated: {sentence}")
        report.expect(False, sentence)
    if not wrong:
        calls = len(follower.of_kind("tool_result"))
        report.say(
            f"  the log: {len(follower.entries)} entries, {calls} tool calls, "
            f"{len(follower.of_kind('session_resumed'))} resumed attempts"
        )
        report.say("  every input delivered once, every call with one result, no effect repeated")
    report.rows.append({"what": "invariants", "violations": wrong})


def _show_logs(report: Report, children: Sequence[Child]) -> None:
    for child in children:
        if tail := child.tail():
            report.say(f"--- the last lines of {child.name}'s log")
            report.say(tail)
