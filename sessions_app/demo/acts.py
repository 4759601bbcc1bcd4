"""The four ends of a worker that the demo shows. Each waits until it sees the moment it is for.

With the scripted agent each act must happen as intended, or the demo falls short and says why. A real model
keeps no schedule: what it left no chance for is reported as skipped.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from bench.report import Report
from sessions_app.demo.api import Json
from sessions_app.demo.follower import FellShort, Follower, Held
from sessions_app.demo.processes import Child
from sessions_app.models import ModelCall, ModelCallState

_CLOSE = 0.05
SETTLED_IN = 0.4
"""Seconds that a scripted model call has been under way when it is hit: in its middle, not at its edge."""


class Missed(Exception):
    """The moment of an act did not come or was over too soon."""


@dataclass(kw_only=True)
class Stage:
    """What the acts share.

    `file` is what the scripted agent's dev_append writes to, `looked_up` the trace of the lookup that has to be
    allowed; `resumed` are the attempts that followed an act.
    """

    follower: Follower
    report: Report
    scripted: bool
    file: Path
    looked_up: Path
    start_worker: Callable[[], Child]
    wait_ready: Callable[[Child], None]
    resumed: set[int] = field(default_factory=set)

    def say(self, text: str) -> None:
        self.follower.timeline.act(text)

    def play(self, act: Callable[["Stage"], None], name: str) -> bool:
        """One act; False if it was skipped."""
        try:
            act(self)
        except Missed as missed:
            if self.scripted:
                raise FellShort(f"{name}: {missed}") from None
            self.say(f"skipped: {name}: {missed}")
            self.report.rows.append({"what": "skipped", "act": name, "why": str(missed)})
            return False
        return True

    def next_attempt(self, before: Held) -> Held:
        """Wait until a later attempt holds the session."""

        def taken_over() -> Held | None:
            held = self.follower.held
            if held and held.attempt > before.attempt:
                return held
            # It may be over before anybody looked at the lease; then the log is the witness.
            attempt = max((entry["attempt"] or 0 for entry in self.follower.entries), default=0)
            others = [tree for tree in self.follower.trees if tree is not before.tree and tree.running]
            if attempt > before.attempt and self.follower.at_rest() and others:
                return Held(attempt, others[0].pid, others[0])
            return None

        after = self.follower.until(taken_over, what="another worker to go on", every=_CLOSE)
        self.resumed.add(after.attempt)
        return after

    def recovered(self, what: str, before: Held, since: float) -> None:
        """Wait for the next attempt, and keep how long it took since the kill."""
        after = self.next_attempt(before)
        took = time.monotonic() - since
        self.recovery(
            what, took, f"attempt {after.attempt} runs with {after.worker}: {took:.2f} s after the kill"
        )

    def recovery(self, what: str, seconds: float, text: str) -> None:
        """Keep one of the demo's figures."""
        self.say(text)
        self.report.rows.append({"what": "recovery", "act": what, "recovery_s": round(seconds, 3)})


@dataclass(frozen=True, slots=True)
class Caught:
    """A model call under way, and who makes it."""

    call: ModelCall
    held: Held


def _in_a_model_call(stage: Stage, *, wanted: str, enough: Callable[[], bool]) -> Caught:
    """The first model call that is seen under way after `enough`."""
    follower = stage.follower
    seen: dict[object, float] = {}

    def caught() -> Caught | bool | None:
        call = follower.open_call()
        if call is not None and follower.held and call.attempt == follower.held.attempt and enough():
            first = seen.setdefault(call.pk, time.monotonic())
            if not stage.scripted or time.monotonic() - first >= SETTLED_IN:
                return Caught(call, follower.held)
        return follower.at_rest()

    found = follower.until(caught, what=wanted, every=_CLOSE)
    if not isinstance(found, Caught):
        raise Missed("the turn ended before a model call was seen under way")
    return found


def _was_cut(stage: Stage, caught: Caught) -> None:
    """Wait for the end of the call that was hit; `Missed` if it was over before."""

    def ended() -> str | None:
        state = stage.follower.state_of(caught.call)
        return state if state != ModelCallState.STARTED else None

    state = stage.follower.until(ended, what="the end of the killed attempt", every=_CLOSE)
    if state != ModelCallState.INTERRUPTED:
        raise Missed(f"the kill came too late: the model call had {state}")


def kill_loop(stage: Stage) -> None:
    """SIGKILL for the loop process that waits for the model."""
    results = stage.follower.of_kind
    caught = _in_a_model_call(
        stage, wanted="a model call after the first tool result", enough=lambda: bool(results("tool_result"))
    )
    killed = time.monotonic()
    os.kill(caught.held.pid, signal.SIGKILL)
    stage.say(f"SIGKILL for loop process {caught.held.worker}, in the middle of a model call")
    stage.recovered("loop process killed in a model call", caught.held, killed)
    _was_cut(stage, caught)


def kill_tree(stage: Stage) -> None:
    """SIGKILL for a `runworker` with everything below it while dev_append runs, and another in its place."""
    follower = stage.follower

    def running() -> tuple[Held, str] | bool | None:
        call = _running_call(follower, "dev_append")
        if call and follower.held and (stage.file.exists() or not stage.scripted):
            return follower.held, call
        return follower.at_rest()

    found = follower.until(running, what="the tool dev_append to run", every=_CLOSE)
    if not isinstance(found, tuple):
        raise Missed("the turn ended before dev_append was seen running")
    held, call = found
    killed = time.monotonic()
    count = len(held.tree.tree())
    held.tree.kill_tree()
    follower.trees.remove(held.tree)
    stage.say(f"SIGKILL for runworker {held.tree.name}, {count} processes, in the middle of dev_append")
    new = stage.start_worker()
    follower.trees.append(new)
    stage.say(f"runworker {new.name} started in its place")
    stage.recovered("whole runworker killed in a tool", held, killed)
    result = follower.until(lambda: _result(follower, call), what="the result of dev_append")
    if result["data"]["outcome"] != "interrupted":
        raise Missed(f"the kill came too late: dev_append had {result['data']['outcome']}")


def stop_worker(stage: Stage) -> None:
    """SIGTERM for the `runworker` that holds the session, as a deploy does it."""
    follower = stage.follower
    turns = len(follower.of_kind("turn_ended"))
    for tree in follower.trees:
        stage.wait_ready(tree)

    def in_the_new_turn() -> bool:
        return len(follower.of_kind("turn_started")) > turns

    caught = _in_a_model_call(stage, wanted="a model call of the second turn", enough=in_the_new_turn)
    tree = caught.held.tree
    told = time.monotonic()
    tree.process.terminate()
    stage.say(f"SIGTERM for runworker {tree.name}, which is in the middle of a model call")

    def stopped() -> bool:
        return not tree.running

    after = stage.next_attempt(caught.held)
    follower.until(stopped, what=f"runworker {tree.name} to stop", every=_CLOSE)
    follower.trees.remove(tree)
    status = tree.process.returncode
    stage.say(f"runworker {tree.name} stopped with status {status}: {time.monotonic() - told:.2f} s")
    if status != 0:
        raise FellShort(f"runworker {tree.name} stopped with status {status}, not 0")
    resumed = follower.until(lambda: _resumed(follower, after.attempt), what="the resumed attempt")
    stood = _moment(resumed) - _moment(follower.entries[resumed["seq"] - 2])
    stage.recovery(
        "runworker stopped as planned",
        stood,
        f"attempt {after.attempt} runs with {after.worker}: {stood:.2f} s after the last step of the one before",
    )
    if resumed["data"]["reason"] != "drain":
        raise FellShort(f"a planned stop counted as {resumed['data']['reason']}")
    if follower.state_of(caught.call) != ModelCallState.SUCCEEDED and stage.scripted:
        raise FellShort("the planned stop cut a model call that had time to end")


def answer_while_killed(stage: Stage) -> None:
    """People and a backend answer while the worker is killed that goes on with the first of their answers."""
    follower = stage.follower

    def asked() -> bool:
        enough = 3 if stage.scripted else 1
        return follower.at_rest() or (follower.status == "waiting" and len(_asked(stage)) >= enough)

    follower.until(asked, what="the agent to ask others")
    if follower.at_rest():
        raise Missed("the turn ended without a question to anybody")
    if follower.held:
        raise FellShort("a worker holds a session that waits for people")
    stage.say(f"waits for {', '.join(one.what for one in _asked(stage))}, and no worker holds it")
    if not any(one.what == "an approval" for one in _asked(stage)):
        raise Missed("nothing had to be allowed")
    answer_all(stage, only="an approval")

    def working() -> Held | bool | None:
        if _running_call(follower, "dev_lookup") and (stage.looked_up.exists() or not stage.scripted):
            return follower.held
        return follower.at_rest()

    held = follower.until(working, what="a worker to go on", every=_CLOSE)
    if not isinstance(held, Held):
        raise Missed("the turn ended before a worker was seen going on")
    killed = time.monotonic()
    os.kill(held.pid, signal.SIGKILL)
    stage.say(f"SIGKILL for loop process {held.worker}, while the others answer")
    answer_all(stage)
    stage.recovered("loop process killed while people answer", held, killed)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Something that others have to answer, and how the demo does it."""

    what: str
    answer: Callable[[], Json]


def _asked(stage: Stage) -> list[_Asked]:
    """What is open now, as a client sees it."""
    api, session = stage.follower.api, stage.follower.session
    found = [
        _Asked("an approval", partial(api.decide, row["id"], "allow")) for row in api.open_approvals(session)
    ]
    for row in api.open_questions(session):
        answers = [
            {"options": [0]} if one["options"] else {"text": "As you like."} for one in row["questions"]
        ]
        found.append(_Asked("an answer", partial(api.answer, row["id"], answers)))
    found += [
        _Asked("a backend", partial(api.give_result, row["id"], "ordered, number 4711"))
        for row in api.waiting_calls(session)
    ]
    return found


_GIVEN = {
    "an approval": "somebody allows it",
    "an answer": "somebody answers",
    "a backend": "the backend posts its result",
}


def answer_all(stage: Stage, *, only: str | None = None) -> bool:
    """Answer what is open, through the API; False if nothing was."""
    answered = False
    for one in _asked(stage):
        if only in {None, one.what}:
            one.answer()
            stage.say(_GIVEN[one.what])
            answered = True
    return answered


def _running_call(follower: Follower, tool: str) -> str | None:
    """The id of a call of `tool` that has started and has no result."""
    done = {entry["data"]["tool_call"] for entry in follower.of_kind("tool_result")}
    for entry in follower.of_kind("tool_started"):
        if entry["data"]["name"] == tool and entry["data"]["tool_call"] not in done:
            return str(entry["data"]["tool_call"])
    return None


def _result(follower: Follower, call: str) -> Json | None:
    return next((one for one in follower.of_kind("tool_result") if one["data"]["tool_call"] == call), None)


def _resumed(follower: Follower, attempt: int) -> Json | None:
    return next((one for one in follower.of_kind("session_resumed") if one["attempt"] == attempt), None)


def _moment(entry: Json) -> float:
    return datetime.fromisoformat(entry["created_at"]).timestamp()
