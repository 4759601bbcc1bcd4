"""What must be true at the end, whatever died: the invariants of every session, and what this demo promised.

The general rules are those of the crash tests (`invariants`). What tools did outside is counted where they did
it: each run of one leaves a byte in a file.
"""

from pathlib import Path

from sessions_app import invariants
from sessions_app.demo.agent import Names
from sessions_app.demo.api import Api, Json
from sessions_app.demo.follower import Follower
from sessions_app.invariants import Effect


def general(follower: Follower, folder: Path, *, resumed: set[int] | None) -> list[str]:
    """Violations of the rules that hold for every session; `resumed` where it is known who must have."""
    return invariants.check_session(
        follower.key, resumed=resumed, effects=effects(follower.entries, folder)
    ) + _paging(follower.api, follower.session, follower.entries)


def effects(entries: list[Json], folder: Path) -> list[Effect]:
    """What each call of the development tools did, counted in its file; only for files that one call had."""
    files: dict[str, list[tuple[str, bool]]] = {}
    for entry in entries:
        if entry["kind"] != "assistant_message":
            continue
        for block in entry["data"]["content"]:
            if block["type"] != "tool_call":
                continue
            arguments = block["arguments"] if isinstance(block["arguments"], dict) else {}
            match block["name"]:
                case "dev_append":
                    files.setdefault(str(arguments.get("file")), []).append((block["tool_call"], False))
                case "dev_lookup":
                    name = f"lookup.{arguments.get('key')}"
                    files.setdefault(name, []).append((block["tool_call"], True))
    return [
        Effect(tool_call=calls[0][0], times=size(folder / file), rerun_safe=calls[0][1])
        for file, calls in files.items()
        if len(calls) == 1
    ]


def size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def promised(follower: Follower, session: Json, folder: Path, things: Names) -> list[str]:
    """What the scripted agent's acts must have left behind, exactly."""
    wrong = []
    ends = [entry["data"]["status"] for entry in follower.of_kind("turn_ended")]
    if ends != ["succeeded"] * 3:
        wrong.append(f"three turns should have succeeded, they are {ends}")
    delivered = len(follower.of_kind("user_message"))
    if delivered != 3:
        wrong.append(f"three inputs should have been delivered once, {delivered} deliveries are in the log")
    reasons = [entry["data"]["reason"] for entry in follower.of_kind("session_resumed")]
    if reasons != ["crash", "crash", "drain", "crash"]:
        wrong.append(f"four attempts should have resumed after crash, crash, drain and crash, not {reasons}")
    appended = size(folder / things.file)
    if appended != 1:
        wrong.append(f"dev_append should have written once, it wrote {appended} times")
    looked = size(folder / f"lookup.{things.during}")
    if looked != 2:
        wrong.append(f"the interrupted lookup should have run again (2 runs), it ran {looked} times")
    allowed = size(folder / f"lookup.{things.allowed}")
    if allowed != 2:
        wrong.append(
            f"the lookup that was allowed should have run, and again (2 runs), it ran {allowed} times"
        )
    answered = {kind: len(follower.of_kind(kind)) for kind in ("approval_decided", "question_answered")}
    wrong += [
        f"there should be one {kind}, there are {count}" for kind, count in answered.items() if count != 1
    ]
    others = [
        entry["data"]["outcome"]
        for entry in follower.of_kind("tool_result")
        if entry["data"]["name"] in {"ask_user", "order_part"}
    ]
    if others != ["succeeded", "succeeded"]:
        wrong.append(f"the question and the backend's call should have succeeded, they are {others}")
    if session["labels"].get("phase") != "done":
        wrong.append(f"the label phase should be done, it is {session['labels'].get('phase')!r}")
    return wrong


def _paging(api: Api, session: str, followed: list[Json]) -> list[str]:
    """Whoever follows a log and whoever reads it at once sees the same."""
    at_once = [entry["id"] for entry in api.entries(session, after=0)]
    if at_once != [entry["id"] for entry in followed]:
        return ["the log as it was followed differs from the log as it is"]
    return []
