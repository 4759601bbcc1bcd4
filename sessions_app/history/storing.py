"""From a transcript that was read to the entries of a new session. Pure but for new ids.

What the session goes on from is decided here, once, by the functions that decide it for every history:
`plan_resume` says which replies at the end never came to their end, `repair_orphaned_tool_calls` puts one
result behind every call. So what is stored is whole, no later attempt has to look at it again, and
`session_created` names the calls that had to be settled.

Every call gets an id of ours. No row of a tool call stands behind it: it is history, nobody can answer it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessions_app import entries, entry_kinds, ids
from sessions_app.engine.context import HEADING
from sessions_app.engine.resume import Start, plan_resume, repair_orphaned_tool_calls
from sessions_app.engine.transcript import ASSISTANT, SYNTHETIC, TOOL_RESULT, USER, read_frame, role_of
from sessions_app.entry_kinds import Actor, Block, Blocks
from sessions_app.log import NewEntry

_NO_USAGE = {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0}
_CARRIES_NOTHING_ON = ("note", "summary", "checkpoint")


@dataclass(slots=True)
class Stored:
    """The entries, the calls among them that had no result, and how many messages are not among them."""

    entries: list[NewEntry] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    left_out: int = 0


def entries_of(messages: Sequence[dict[str, Any]], *, actor: Actor, first_seq: int) -> Stored:
    """The entries for a transcript whose files are kept already; the first one gets `first_seq`."""
    plan = plan_resume(messages)
    if isinstance(plan, Start):
        whole = [message for message in messages if role_of(message) in _CARRIES_NOTHING_ON]
    else:
        whole, _ = repair_orphaned_tool_calls(list(messages[: plan.keep]))
    storing = _Storing(actor, first_seq)
    for message in whole:
        storing.add(message)
    made_up = sum(message.get(SYNTHETIC) is True for message in whole)
    storing.stored.left_out = len(messages) - (len(whole) - made_up)
    return storing.stored


class _Storing:
    def __init__(self, actor: Actor, first_seq: int) -> None:
        self.stored = Stored()
        self._actor = actor
        self._first_seq = first_seq
        self._calls: list[Block] = []  # of the last reply, whose results are still to come

    def add(self, message: Mapping[str, Any]) -> None:
        match message["role"]:
            case role if role == USER:
                data: Any = entry_kinds.UserMessage(input=None, delivery="queued", content=message["content"])
                self._append("user_message", data)
            case role if role == ASSISTANT:
                self._append("assistant_message", self._reply(message))
            case role if role == TOOL_RESULT:
                self._result(message)
            case "note":
                self._append("note", entry_kinds.Note(text=_text(message["content"])))
            case _:
                # A summary stands for what comes before it; a repaired history has no call open there.
                covers = self._first_seq + len(self.stored.entries) - 1
                summary = _text(message["content"]).removeprefix(HEADING)
                self._append("checkpoint", entry_kinds.Checkpoint(summary=summary, covers_seq=covers))

    def _append(self, kind: str, data: Any) -> None:
        self.stored.entries.append(NewEntry(kind=kind, data=data, actor=self._actor))

    def _reply(self, message: Mapping[str, Any]) -> entry_kinds.AssistantMessage:
        doubled = {place for call in read_frame(dict(message)).calls for place in call.blocks[1:]}
        provider = message.get("provider")
        blocks = [
            _entry_block(block, provider)
            for place, block in enumerate(message["content"])
            if place not in doubled
        ]
        self._calls = [block for block in blocks if block["type"] == "tool_call"]
        stop = "done"
        if self._calls:
            stop = "tool_calls"
        elif message.get("stop") == "pause":
            stop = "paused"
        return entry_kinds.AssistantMessage(
            model_call=None,
            provider=provider or "",
            model=message.get("model") or "",
            content=blocks,
            stop=stop,
            raw_stop=None,
            usage=dict(_NO_USAGE),
        )

    def _result(self, message: Mapping[str, Any]) -> None:
        call = self._calls.pop(0)  # results of a repaired history come in the order of the calls
        if message.get(SYNTHETIC):
            self.stored.repaired.append(call["tool_call"])
            self.stored.entries.append(entries.orphan_result(call, turn=None))
            return
        data = entry_kinds.ToolResult(
            tool_call=call["tool_call"],
            id=call["id"],
            name=message.get("name") or call["name"],
            outcome="failed" if message.get("error") else "succeeded",
            content=message["content"],
        )
        if message.get("answered"):
            data["answered"] = True
        self._append("tool_result", data)


def _entry_block(block: Block, provider: str | None) -> Block:
    made_by: dict[str, Any] = {
        name: block[name] for name in ("provider", "signature", "details") if name in block
    }
    match block["type"]:
        case "thinking":
            if provider:
                made_by.setdefault("provider", provider)
            return {"type": "reasoning", "text": block["thinking"], **made_by}
        case "tool_call":
            return {
                "type": "tool_call",
                "tool_call": ids.encode("tcl", ids.new_id()),
                "id": block["id"],
                "name": block["name"],
                **_arguments(block["args"]),
                **made_by,
            }
        case _:
            return block


def _arguments(args: dict[str, Any] | str) -> dict[str, Any]:
    return {"arguments": args} if isinstance(args, dict) else {"arguments": {}, "arguments_raw": args}


def _text(content: str | Blocks) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
