"""Event streams as providers send them, written out for tests."""

import json
from typing import Any


def sse(*events: dict[str, Any] | str, named: bool = False) -> str:
    """The events on the wire; `named` puts each event's type into its `event:` line, as two protocols do."""
    lines = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
        lines.append(f"{name}data: {data}\n\n")
    return "".join(lines)


def chat(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True, **last: Any) -> str:
    """A Chat Completions stream."""
    events: list[Any] = [{"id": "c1", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish is not None:
        events.append({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **last})
    return sse(*events, *(["[DONE]"] if done else []))


def chat_call(index: int | None, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    """A delta of one tool call."""
    call: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call["id"] = call_id
    if name is not None:
        call["function"]["name"] = name
    return {"tool_calls": [call]}


def anthropic(*events: dict[str, Any], stop: str | None = "end_turn", end: bool = True) -> str:
    """A Messages stream around these events."""
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "some-model",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 5, "output_tokens": 0},
    }
    whole: list[Any] = [{"type": "message_start", "message": start}, *events]
    if stop is not None:
        usage = {"output_tokens": 7}
        whole.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
    if end:
        whole.append({"type": "message_stop"})
    return sse(*whole, named=True)


def anthropic_text(index: int, text: str) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_call(index: int, call_id: str, name: str, arguments: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def responses(*events: dict[str, Any], last: dict[str, Any] | None = None) -> str:
    """A Responses stream; `last` replaces the completed event, an empty dict leaves it out."""
    created = {"id": "resp_1", "model": "some-model", "status": "in_progress", "output": []}
    whole: list[Any] = [{"type": "response.created", "response": created}, *events]
    if last is None:
        usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
        done = {"id": "resp_1", "model": "some-model", "status": "completed", "output": [], "usage": usage}
        last = {"type": "response.completed", "response": done}
    if last:
        whole.append(last)
    return sse(*[{"sequence_number": number, **event} for number, event in enumerate(whole)], named=True)


def responses_text(item: str, text: str, output: int = 0) -> list[dict[str, Any]]:
    place = {"item_id": item, "output_index": output, "content_index": 0}
    message = {"type": "message", "id": item, "role": "assistant", "status": "in_progress", "content": []}
    return [
        {"type": "response.output_item.added", "output_index": output, "item": message},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
    ]


def responses_call(
    item: str, call_id: str, name: str, arguments: str, output: int = 0
) -> list[dict[str, Any]]:
    call = {"type": "function_call", "id": item, "call_id": call_id, "name": name, "arguments": ""}
    place = {"item_id": item, "output_index": output}
    return [
        {"type": "response.output_item.added", "output_index": output, "item": call},
        {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
        {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
        {
            "type": "response.output_item.done",
            "output_index": output,
            "item": {**call, "arguments": arguments, "status": "completed"},
        },
    ]


def responses_reasoning(
    item: str, summaries: list[str], encrypted: str, output: int = 0
) -> list[dict[str, Any]]:
    """A reasoning item with its summaries and, at its end, its encrypted content."""
    place = {"item_id": item, "output_index": output}
    reasoning = {"type": "reasoning", "id": item, "summary": []}
    parts = [{"type": "summary_text", "text": summary} for summary in summaries]
    return [
        {"type": "response.output_item.added", "output_index": output, "item": reasoning},
        *(
            {
                "type": "response.reasoning_summary_text.delta",
                **place,
                "summary_index": number,
                "delta": summary,
            }
            for number, summary in enumerate(summaries)
        ),
        {
            "type": "response.output_item.done",
            "output_index": output,
            "item": {**reasoning, "summary": parts, "encrypted_content": encrypted},
        },
    ]
