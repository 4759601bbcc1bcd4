"""From the call blocks of a reply to calls, before anything is saved. Pure but for new ids.

Models call tools that do not exist, with arguments that fit nothing, twice, or several times under one id.
Each of these has one answer here, so that everything behind it can rely on calls that are whole and ids that
are unique in their message.
"""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sessions_app import ids
from sessions_app.text import clean_text
from sessions_app.tool_port import Blocks, Call, ToolOutcome
from tools_app import arguments, registry
from tools_app.models import Outcome, ToolCallState, ToolClass
from tools_app.offers import offer, offers

MAX_NAME = 200
"""Characters of a tool name that are kept; the column is as wide."""
_MAX_NAMES_TOLD = 50

# Where a call goes that nothing holds back. Outside tools are committed as running with the reply (S5).
_FIRST_STATE = {
    ToolClass.INTERNAL: ToolCallState.READY,
    ToolClass.OUTSIDE: ToolCallState.RUNNING,
    ToolClass.CUSTOM: ToolCallState.WAITING,
}


def prepare(
    config: Mapping[str, Any], *, session: UUID, turn: UUID, blocks: Blocks
) -> tuple[Blocks, list[Call]]:
    """The blocks as they are saved, and a call for each call block among them; the input is not changed."""
    saved: Blocks = []
    calls: list[Call] = []
    taken: set[str] = set()
    seen: set[tuple[str, str, str]] = set()
    for block in blocks:
        if block.get("type") != "tool_call":
            saved.append(block)
            continue
        name = clean_text(str(block.get("name") or ""))[:MAX_NAME]
        call_id = clean_text(str(block.get("id") or ""))
        values, problem = _arguments(block)
        # Compared as text: in Python 1 == True, and a call with one is not a call with the other.
        same = (call_id, name, json.dumps(values, sort_keys=True) if problem is None else problem)
        if call_id and same in seen:
            continue  # the same call said twice is meant once (C05)
        seen.add(same)
        own_id = ids.new_id()
        tool_call = ids.encode("tcl", own_id)
        if not call_id or call_id in taken:
            call_id = tool_call  # two calls under one id are two calls (C06)
        taken.add(call_id)
        place = {"id": own_id, "session": session, "turn": turn, "call_id": call_id, "position": len(calls)}
        calls.append(_call(config, name, values, problem, place))
        kept = {**block, "id": call_id, "name": name, "arguments": values, "tool_call": tool_call}
        if problem is not None and "arguments_raw" not in block:
            kept["arguments_raw"] = _as_text(block.get("arguments"))
        saved.append(kept)
    return saved, calls


def _call(
    config: Mapping[str, Any], name: str, values: dict[str, Any], problem: str | None, place: dict[str, Any]
) -> Call:
    found = offer(config, name)
    if found is None:
        return _refused(name, values, _not_offered(config, name), place)
    if problem is None:
        problem = arguments.problem_with(found.validator, values)
    if problem is not None:
        return _refused(name, values, f"{name} was not called: {problem}.", place, found.tool_class.value)
    return Call(
        name=name,
        tool_class=found.tool_class.value,
        rerun_safe=found.rerun_safe,
        arguments=values,
        state=_FIRST_STATE[found.tool_class].value,
        time_limit=found.time_limit,
        deadline=found.deadline,
        **place,
    )


def _refused(
    name: str,
    values: dict[str, Any],
    why: str,
    place: dict[str, Any],
    tool_class: str = ToolClass.OUTSIDE.value,
) -> Call:
    """A call that has its result before it could run (T3)."""
    return Call(
        name=name,
        tool_class=tool_class,
        rerun_safe=False,
        arguments=values,
        state=ToolCallState.COMPLETED.value,
        result=ToolOutcome(Outcome.FAILED.value, [{"type": "text", "text": why}]),
        **place,
    )


def _not_offered(config: Mapping[str, Any], name: str) -> str:
    names = [found.spec.name for found in offers(config)]
    told = ", ".join(names[:_MAX_NAMES_TOLD]) + (", …" if len(names) > _MAX_NAMES_TOLD else "")
    have = f"The tools you can call are: {told}." if names else "There are no tools you can call."
    if name in (config.get("tools") or {}):
        return f"The tool {name} is not available here. {have}"
    if registry.get(name) is not None:
        return f"The tool {name} is disabled for this agent. {have}"
    return f"There is no tool named {name!r}. {have}"


def _arguments(block: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    try:
        return arguments.read(block), None
    except arguments.BadArguments as error:
        return {}, str(error)


def _as_text(value: Any) -> str:
    """What the model wrote instead of an object, for people; its blocks hold `{}`."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except RecursionError:
        return "(nested too deep)"
