"""From the call blocks of a reply to calls, before anything is saved. Pure but for new ids.

Models call tools that do not exist, with arguments that fit nothing, twice, or several times under one id.
Each of these has one answer here, so that everything behind it can rely on calls that are whole and ids that
are unique in their message. What is left is judged by the agent's permissions: it runs, or a person is asked
first, or it is denied (T7). Arguments are what they are from here on; nothing changes them later.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sessions_app import ids
from sessions_app.text import clean_text
from sessions_app.tool_port import Ask, Blocks, Call, ToolOutcome
from tools_app import arguments, permissions, registry
from tools_app.ask_user import form_of
from tools_app.models import Outcome, ToolCallState, ToolClass

if TYPE_CHECKING:
    from tools_app.offers import Offer
    from tools_app.toolkit import Toolkit

MAX_NAME = 200
"""Characters of a tool name that are kept; the column is as wide."""
_MAX_NAMES_TOLD = 50

# Where a call goes that nothing holds back. Outside tools are committed as running with the reply (S5).
_FIRST_STATE = {
    ToolClass.INTERNAL: ToolCallState.READY,
    ToolClass.OUTSIDE: ToolCallState.RUNNING,
    ToolClass.CUSTOM: ToolCallState.WAITING,
    ToolClass.HUMAN: ToolCallState.WAITING,
}


def prepare(toolkit: "Toolkit", *, session: UUID, turn: UUID, blocks: Blocks) -> tuple[Blocks, list[Call]]:
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
        calls.append(_call(toolkit, name, values, problem, place))
        kept = {**block, "id": call_id, "name": name, "arguments": values, "tool_call": tool_call}
        if problem is not None and "arguments_raw" not in block:
            kept["arguments_raw"] = _as_text(block.get("arguments"))
        saved.append(kept)
    return saved, calls


def _call(
    toolkit: "Toolkit", name: str, values: dict[str, Any], problem: str | None, place: dict[str, Any]
) -> Call:
    offer = toolkit.offers.get(name)
    if offer is None:
        return _refused(name, values, _not_offered(toolkit, name), place)
    if problem is None:
        problem = arguments.problem_with(offer.validator, values)
    if problem is not None:
        return _refused(name, values, f"{name} was not called: {problem}.", place, offer.tool_class.value)
    verdict = judge(toolkit, offer, values)
    if verdict.then == "deny":
        why = f"{name} was not called: it is not allowed ({verdict.why})."
        return _refused(name, values, why, place, offer.tool_class.value, outcome=Outcome.DENIED)
    call = Call(
        name=name,
        tool_class=offer.tool_class.value,
        rerun_safe=offer.rerun_safe,
        arguments=values,
        state=first_state(offer.tool_class).value,
        time_limit=offer.time_limit,
        deadline=offer.deadline,
        **place,
    )
    if verdict.then == "ask":
        return _approval(call, verdict)
    return with_question(call) if offer.tool_class == ToolClass.HUMAN else call


def judge(toolkit: "Toolkit", offer: "Offer", values: Mapping[str, Any]) -> permissions.Verdict:
    """What the agent's permissions say of a call."""
    return permissions.decide(
        toolkit.config.get("permissions") or (),
        tool=offer.spec.name,
        tool_class=offer.tool_class.value,
        arguments=values,
        default=offer.permission,
        annotations=offer.annotations,
    )


def first_state(tool_class: str) -> ToolCallState:
    """Where a call of this class goes that nothing holds back."""
    return _FIRST_STATE[ToolClass(tool_class)]


def _approval(call: Call, verdict: permissions.Verdict) -> Call:
    """The call with a person to be asked; what is frozen here is all that can run."""
    approval = ids.new_id()
    data: dict[str, Any] = {
        "approval": ids.encode("apr", approval),
        "tool_call": ids.encode("tcl", call.id),
        "name": call.name,
        "arguments": call.arguments,
        "rule": None if verdict.rule is None else f"/permissions/{verdict.rule}",
    }
    if verdict.expires_after is not None:
        data["expires_after"] = verdict.expires_after
    return replace(
        call,
        state=ToolCallState.AWAITING_APPROVAL.value,
        deadline=verdict.expires_after,
        ask=Ask(
            id=approval, kind="approval", data=data, then_deadline=call.deadline, pattern=verdict.pattern
        ),
    )


def with_question(call: Call) -> Call:
    """A call of ask_user with the form that it puts to people."""
    question = ids.new_id()
    data: dict[str, Any] = {
        "question": ids.encode("qst", question),
        "tool_call": ids.encode("tcl", call.id),
        "questions": form_of(call.arguments),
    }
    if call.deadline is not None:
        data["expires_after"] = call.deadline
    return replace(call, ask=Ask(id=question, kind="question", data=data))


def _refused(
    name: str,
    values: dict[str, Any],
    why: str,
    place: dict[str, Any],
    tool_class: str = ToolClass.OUTSIDE.value,
    *,
    outcome: Outcome = Outcome.FAILED,
) -> Call:
    """A call that has its result before it could run (T3)."""
    return Call(
        name=name,
        tool_class=tool_class,
        rerun_safe=False,
        arguments=values,
        state=ToolCallState.COMPLETED.value,
        result=ToolOutcome(outcome.value, [{"type": "text", "text": why}]),
        **place,
    )


def _not_offered(toolkit: "Toolkit", name: str) -> str:
    server = name[: name.find("__", len("mcp__")) + 2] if name.startswith("mcp__") else name
    why = toolkit.unavailable.get(name) or toolkit.unavailable.get(server)
    names = list(toolkit.offers)
    told = ", ".join(names[:_MAX_NAMES_TOLD]) + (", …" if len(names) > _MAX_NAMES_TOLD else "")
    have = f"The tools you can call are: {told}." if names else "There are no tools you can call."
    if why is not None:
        return f"The tool {name} can't be called now: {why}. {have}"
    if name in (toolkit.config.get("tools") or {}):
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
