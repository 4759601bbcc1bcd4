"""Messages of OpenAI's Chat Completions, and input items of its Responses. Pure.

System and developer messages become notes: a session's instructions are those of its config. What a reply is
made of in Responses (reasoning, text, calls) are items of their own there and one reply here. Reasoning is
kept for people; encrypted reasoning belongs to stored items of another conversation and is not sent again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.history.shape import (
    MAX_ID,
    Block,
    Reader,
    assistant,
    call,
    data_url,
    invalid,
    media,
    objects,
    optional,
    result,
    string,
)

_INSTRUCTIONS = ("system", "developer")
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def read(reader: Reader, message: dict[str, Any], path: str) -> None:
    kind = message.get("type")
    if kind not in {None, "message"}:
        item = _ITEMS.get(kind) if isinstance(kind, str) else None
        if item is None:
            known = ", ".join(["message", *_ITEMS])
            raise invalid(f"{path}/type", "not_allowed", f"must be one of {known}")
        item(reader, message, path)
        return
    role = message.get("role")
    if role in _INSTRUCTIONS:
        text = "\n".join(_texts(message.get("content"), f"{path}/content"))
        reader.add({"role": "note", "content": f"{role}: {text}"}, path)
    elif role == "user":
        reader.add({"role": "user", "content": _parts(message.get("content"), f"{path}/content")}, path)
    elif role == "assistant":
        if kind == "message":
            _go_on(reader, path, _said(message.get("content"), f"{path}/content"))
        else:
            reader.add(_reply(message, path), path)
    elif role == "tool":
        content = _parts(message.get("content"), f"{path}/content")
        reader.add(result(string(message, "tool_call_id", path, most=MAX_ID), content), path)
    else:
        known = ", ".join([*_INSTRUCTIONS, "user", "assistant", "tool"])
        raise invalid(f"{path}/role", "not_allowed", f"must be one of {known}")


def _reply(message: dict[str, Any], path: str) -> dict[str, Any]:
    if message.get("function_call") is not None:
        raise invalid(f"{path}/function_call", "not_allowed", "must be given as tool_calls")
    blocks = _said(message.get("content"), f"{path}/content")
    refusal = optional(message, "refusal", path, str, "a string")
    if refusal:
        blocks.append({"type": "text", "text": refusal})
    for item, place in objects(message.get("tool_calls") or [], f"{path}/tool_calls"):
        if item.get("type", "function") != "function":
            raise invalid(f"{place}/type", "not_allowed", "must be function")
        function = item.get("function")
        if not isinstance(function, dict):
            raise invalid(f"{place}/function", "wrong_type", "must be an object")
        named = {"id": item.get("id"), **{key: function.get(key) for key in ("name", "arguments")}}
        string(item, "id", place, most=MAX_ID)
        blocks.append(call(named, f"{place}/function", id_="id", name="name", arguments="arguments"))
    return assistant(blocks, "openai-chat")


def _go_on(reader: Reader, path: str, blocks: list[Block]) -> None:
    """Add to the reply that is being put together, or begin one."""
    last = reader.found[-1].message if reader.found else None
    if last is not None and last["role"] == "assistant" and last["provider"] == "openai":
        last["content"] += blocks
    else:
        reader.add(assistant(blocks, "openai"), path)


def _function_call(reader: Reader, item: dict[str, Any], path: str) -> None:
    _go_on(reader, path, [call(item, path, id_="call_id", name="name", arguments="arguments")])


def _function_result(reader: Reader, item: dict[str, Any], path: str) -> None:
    content = _parts(item.get("output"), f"{path}/output")
    reader.add(result(string(item, "call_id", path, most=MAX_ID), content), path)


def _reasoning(reader: Reader, item: dict[str, Any], path: str) -> None:
    texts = [
        string(part, "text", place) for part, place in objects(item.get("summary") or [], f"{path}/summary")
    ]
    if any(texts):
        _go_on(reader, path, [{"type": "thinking", "thinking": "\n\n".join(texts), "provider": "openai"}])


_ITEMS: Mapping[str, Callable[[Reader, dict[str, Any], str], None]] = {
    "function_call": _function_call,
    "function_call_output": _function_result,
    "reasoning": _reasoning,
}


def _texts(value: Any, path: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    found = []
    for part, place in objects(value, path):
        field = _TEXTS.get(part.get("type", ""))
        if field is None:
            raise invalid(f"{place}/type", "not_allowed", f"must be one of {', '.join(_TEXTS)}")
        found.append(string(part, field, place))
    return found


def _said(value: Any, path: str) -> list[Block]:
    return [{"type": "text", "text": text} for text in _texts(value, path) if text]


def _parts(value: Any, path: str) -> list[Block]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [_part(part, place) for part, place in objects(value, path)]


def _part(part: dict[str, Any], path: str) -> Block:
    kind = part.get("type")
    match kind:
        case "text" | "input_text" | "output_text":
            return {"type": "text", "text": string(part, "text", path)}
        case "image_url":
            image = part.get("image_url")
            if not isinstance(image, dict):
                raise invalid(f"{path}/image_url", "wrong_type", "must be an object")
            return data_url(image.get("url"), f"{path}/image_url/url")
        case "input_image":
            return data_url(part.get("image_url"), f"{path}/image_url")
        case "input_audio":
            audio = part.get("input_audio")
            if not isinstance(audio, dict):
                raise invalid(f"{path}/input_audio", "wrong_type", "must be an object")
            place = f"{path}/input_audio"
            kind_of_audio = f"audio/{string(audio, 'format', place, most=20)}"
            return media({"media_type": kind_of_audio, "data": string(audio, "data", place)}, place)
        case "file":
            file = part.get("file")
            if not isinstance(file, dict):
                raise invalid(f"{path}/file", "wrong_type", "must be an object")
            return data_url(file.get("file_data"), f"{path}/file/file_data")
        case "input_file":
            return data_url(part.get("file_data"), f"{path}/file_data")
        case _:
            raise invalid(f"{path}/type", "not_allowed", "not a kind of content that can be imported")
