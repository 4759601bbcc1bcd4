"""The scripted provider: plays replies from the agent config, for demos, tests and benchmarks.

Deterministic and cheap: the same script, position and last message give the same reply, ids included, and an
attempt that a crash or a stop interrupted plays its reply again. No SDK, no network, no state.

The position is the number of steps already played: replies saved, plus `error` and `cut` steps (both leave
a failed call in the log). Replies whose `when` does not match are passed over for good; how the pointer moves
is told in `provider_details["script_next"]` of the reply or the failure; it equals position + 1 where nothing
was passed over.
"""

import asyncio
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sessions_app.providers.categories import category_of
from sessions_app.providers.port import (
    Category,
    Delta,
    ModelCallFailed,
    ModelRequest,
    OnDelta,
    Reply,
    Stop,
    Usage,
)
from sessions_app.providers.retry_after import parse_retry_after

_CHARACTERS_PER_TOKEN = 4
_DELTA_KIND: dict[str, Literal["text", "reasoning", "arguments"]] = {
    "text": "text",
    "reasoning": "reasoning",
    "tool_call": "arguments",
}
_WHOLE = 1 << 30
_TICK = 0.02  # seconds; a fast stream sends several tokens a tick instead of waking up for each
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Step:
    """The step to play: its definition, and the position of the call after it."""

    reply: Mapping[str, Any]
    next_position: int


def pick(script: Mapping[str, Any] | None, position: int, last_text: str) -> Step | None:
    """The step at or after `position` whose `when` matches; None past the end. With `loop` it goes round."""
    replies: Sequence[Mapping[str, Any]] = (script or {}).get("replies") or ()
    count = len(replies)
    loop = bool((script or {}).get("loop"))
    end = position + count if loop else count
    for index in range(position, end):
        reply = replies[index % count]
        when = reply.get("when")
        if not when or when.get("contains", "") in last_text:
            return Step(reply=reply, next_position=index + 1)
    return None


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message that `when: {contains}` looks at: its text blocks, and data values as JSON."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = []
    for block in content or ():
        kind = block.get("type")
        if kind == "text":
            texts.append(block.get("text") or "")
        elif kind == "data":
            texts.append(json.dumps(block.get("value"), ensure_ascii=False))
    return "\n".join(texts)


def seconds(value: Any) -> float:
    """A duration of a script: a number of seconds, or text like `1.5s`, `200ms`, `10m`."""
    if isinstance(value, int | float):
        return float(value)
    match = _DURATION.fullmatch(str(value).strip())
    return float(match[1]) * _UNIT[match[2]] if match else 0.0


class ScriptedProvider:
    """Plays `request.script` at `request.script_position`."""

    async def reply(self, request: ModelRequest, on_delta: OnDelta | None = None) -> Reply:
        """The scripted reply, in its time; `ModelCallFailed` for `error`, `cut` and past the end."""
        last_text = text_of(request.messages[-1]) if request.messages else ""
        step = pick(request.script, request.script_position, last_text)
        if step is None:
            raise ModelCallFailed(
                f"the script has no reply left at position {request.script_position}",
                category=Category.SCRIPT_EXHAUSTED,
                code="script_exhausted",
            )
        definition = step.reply
        details = {"script_next": step.next_position}
        delay = definition.get("delay")
        if delay:
            await asyncio.sleep(seconds(delay))
        if definition.get("error"):
            raise _failure(definition["error"], details)

        content = _content(definition, request.script_position)
        tokens = _tokens_of(content)
        cut = bool(definition.get("cut"))
        first_at = await _stream(content, definition.get("tokens_per_second"), on_delta, half=cut)
        usage = Usage(
            input_tokens=math.ceil((len(request.instructions) + len(last_text)) / _CHARACTERS_PER_TOKEN),
            output_tokens=tokens // 2 if cut else tokens,
        )
        if cut:
            raise ModelCallFailed(
                "the stream ended before the reply was complete",
                category=Category.CUT,
                usage=usage,
                may_be_billed=True,
                time_to_first_token=first_at,
                provider_details=details,
            )
        if not content:
            raise ModelCallFailed("the reply is empty", category=Category.EMPTY, provider_details=details)
        stop = Stop.TOOL_CALLS if content[-1]["type"] == "tool_call" else Stop.DONE
        return Reply(
            content=content,
            stop=stop,
            raw_stop=stop.value,
            usage=usage,
            time_to_first_token=first_at,
            provider_details=details,
            model=request.model,
        )


def _failure(error: Mapping[str, Any], details: dict[str, Any]) -> ModelCallFailed:
    status = int(error.get("status") or 500)
    code = error.get("code")
    detail = str(error.get("message") or f"the script answers with status {status}")
    wait = error.get("retry_after")
    return ModelCallFailed(
        detail,
        category=category_of(status, code, detail),
        status=status,
        code=code,
        retry_after=None if wait is None else _wait(wait),
        provider_details=details,
    )


def _wait(value: Any) -> float | None:
    """`retry_after` of a script: seconds, a duration, or anything a Retry-After header can hold."""
    if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        return seconds(value)
    return parse_retry_after({"retry-after": str(value)})


def _content(definition: Mapping[str, Any], position: int) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    reasoning = definition.get("reasoning")
    if reasoning:
        content.append({"type": "reasoning", "text": reasoning, "provider": "scripted"})
    text = definition.get("text")
    if text:
        content.append({"type": "text", "text": text})
    for number, call in enumerate(definition.get("tool_calls") or ()):
        content.append(
            {
                "type": "tool_call",
                "id": call.get("id") or f"call_{position}_{number}",
                "name": call["name"],
                "arguments": dict(call.get("arguments") or {}),
            }
        )
    return content


def _payload(block: Mapping[str, Any]) -> str:
    return json.dumps(block["arguments"]) if block["type"] == "tool_call" else block["text"]


def _tokens_of(content: Sequence[Mapping[str, Any]]) -> int:
    return sum(math.ceil(len(_payload(block)) / _CHARACTERS_PER_TOKEN) for block in content)


def _pieces(content: Sequence[Mapping[str, Any]], size: int) -> Iterator[Delta]:
    for index, block in enumerate(content):
        kind = _DELTA_KIND[block["type"]]
        payload = _payload(block)
        for start in range(0, len(payload), size):
            yield Delta(block=index, kind=kind, text=payload[start : start + size])


async def _stream(
    content: Sequence[Mapping[str, Any]], speed: float | None, on_delta: OnDelta | None, *, half: bool
) -> float | None:
    """Send the deltas at `speed` tokens a second, at once without one; seconds to the first."""
    if not speed:
        if on_delta is not None:
            deltas = list(_pieces(content, _CHARACTERS_PER_TOKEN if half else _WHOLE))
            for delta in deltas[: len(deltas) // 2] if half else deltas:
                on_delta(delta)
        return 0.0 if content else None
    tokens = max(1, round(speed * _TICK))
    deltas = list(_pieces(content, tokens * _CHARACTERS_PER_TOKEN))
    if half:
        deltas = deltas[: len(deltas) // 2]
    loop = asyncio.get_running_loop()
    started = loop.time()
    for number, delta in enumerate(deltas, start=1):
        # Counted from the start, so that late wake-ups do not add up.
        await asyncio.sleep(max(0.0, started + number * tokens / speed - loop.time()))
        if on_delta is not None:
            on_delta(delta)
    return tokens / speed if deltas else None
