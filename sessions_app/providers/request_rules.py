"""What a provider refuses in a request, checked without a provider.

Libraries and wire mocks let requests pass that the real service answers with a 400, and a session whose
history makes such a request can never go on. `check_request` reads one request body as it goes over the wire
and returns what is wrong with it, in sentences; an empty list means that every rule holds. It is used by
tests, on the bodies that adapters really send.

The rules that all three protocols share: text is valid UTF-8 and never empty; call ids are 1 to 64 (Chat
Completions: 40) characters of `A-Z a-z 0-9 _ -` and unique in the request; every call is answered exactly
once, directly behind its message, in call order; arguments are a JSON object; reasoning is only what this
protocol signed; every message has a role and content of that protocol; the last one is a user message or a
tool result. Where a protocol asks for more, its function below says so.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sessions_app.text import MAX_JSON_DEPTH

type Body = dict[str, Any]

CALL_ID_LIMIT = {"openai": 64, "openai-chat": 40, "anthropic": 64}

_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAGGED_REASONING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)


def check_request(protocol: str, body: Any) -> list[str]:
    """What is wrong with this request body; empty where it is valid.

    `protocol` is `openai` (Responses), `openai-chat` (Chat Completions) or `anthropic` (Messages).
    """
    checks: dict[str, Callable[[_Rules, Body], None]] = {
        "openai": _responses,
        "openai-chat": _chat,
        "anthropic": _messages,
    }
    if protocol not in checks:
        return [f"unknown protocol {protocol!r}"]
    if not isinstance(body, dict):
        return ["the body is not an object"]
    rules = _Rules(CALL_ID_LIMIT[protocol])
    if not _walk(rules, body):
        return rules.broken
    if not _is_text(body.get("model")):
        rules.fail("model is missing")
    checks[protocol](rules, body)
    return rules.broken


class _Rules:
    """The violations found so far, and the calls that wait for their results."""

    def __init__(self, id_limit: int) -> None:
        self.broken: list[str] = []
        self._id_limit = id_limit
        self._seen: set[str] = set()
        self._items: set[str] = set()
        self._waiting: list[str] = []
        self._answered: set[str] = set()

    def fail(self, what: str) -> None:
        self.broken.append(what)

    def call(self, where: str, call_id: Any, name: Any) -> None:
        """A call is made: its id and name are legal and the id is new."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.fail(f"{where}: tool name {name!r} is not legal")
        if not isinstance(call_id, str) or not _ID.fullmatch(call_id):
            self.fail(f"{where}: call id {call_id!r} has illegal characters or is missing")
            return
        if len(call_id) > self._id_limit:
            self.fail(f"{where}: call id {call_id!r} is longer than {self._id_limit}")
        if call_id in self._seen:
            self.fail(f"{where}: call id {call_id!r} is used twice")
        self._seen.add(call_id)
        self._waiting.append(call_id)

    def result(self, where: str, call_id: Any) -> None:
        """A call is answered: the oldest one that waits."""
        if not isinstance(call_id, str):
            self.fail(f"{where}: the result names no call")
        elif call_id in self._waiting:
            if self._waiting[0] != call_id:
                self.fail(f"{where}: result of {call_id!r} is not in call order")
            self._waiting.remove(call_id)
            self._answered.add(call_id)
        elif call_id in self._answered:
            self.fail(f"{where}: call {call_id!r} is answered twice")
        elif call_id in self._seen:
            self.fail(f"{where}: result of {call_id!r} is not directly behind its call")
        else:
            self.fail(f"{where}: result of {call_id!r} has no call before it")

    def settled(self, where: str) -> None:
        """No call may be waiting here."""
        for call_id in self._waiting:
            self.fail(f"{where}: call {call_id!r} is not answered directly behind its message")
        self._waiting.clear()

    def item(self, where: str, item_id: Any) -> None:
        """A stored item is named: once in a request."""
        if not isinstance(item_id, str) or not item_id or len(item_id) > 64:
            self.fail(f"{where}: item id {item_id!r} is not legal")
        elif item_id in self._items:
            self.fail(f"{where}: item id {item_id!r} is used twice")
        else:
            self._items.add(item_id)

    def text(self, where: str, value: Any) -> None:
        if not _is_text(value):
            self.fail(f"{where}: text is empty")

    def said(self, where: str, value: Any) -> None:
        """Text of the model's own: not empty, and no reasoning dressed up as text."""
        self.text(where, value)
        if isinstance(value, str) and _TAGGED_REASONING.match(value):
            self.fail(f"{where}: reasoning is sent as text")

    def arguments(self, where: str, value: Any) -> None:
        """Arguments as a JSON text of an object."""
        try:
            parsed = json.loads(value, parse_constant=_refuse_constant) if isinstance(value, str) else None
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            self.fail(f"{where}: arguments are not a JSON object")
        elif not _walk(_Rules(0), parsed):
            self.fail(f"{where}: arguments hold text that is not valid UTF-8")


def _messages(rules: _Rules, body: Body) -> None:
    """Anthropic Messages.

    The first message is the user's. All results of a message stand in the one user message behind it, before
    anything else. Thinking is signed and never the last block of a message.
    """
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        rules.fail("max_tokens is missing")
    if "system" in body:
        _parts(rules, "system", body["system"], ("text",), rules.text)
    messages = _entries(rules, "messages", body.get("messages"))
    for index, message in enumerate(messages):
        where, role, content = f"messages[{index}]", message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            rules.fail(f"{where}: role {role!r} is not allowed")
        if index == 0 and role != "user":
            rules.fail(f"{where}: the first message is not the user's")
        if role == "assistant":
            rules.settled(where)
            _messages_assistant(rules, where, content)
        else:
            _messages_user(rules, where, content)
            rules.settled(where)
    if messages and messages[-1].get("role") == "assistant":
        rules.fail("the last message is an assistant message")
    rules.settled("end")


def _messages_assistant(rules: _Rules, where: str, content: Any) -> None:
    types = ("text", "thinking", "redacted_thinking", "tool_use")
    blocks = _parts(rules, where, content, types, rules.said)
    for at, block in blocks:
        match block.get("type"):
            case "tool_use":
                rules.call(at, block.get("id"), block.get("name"))
                if not isinstance(block.get("input"), dict):
                    rules.fail(f"{at}: arguments are not a JSON object")
            case "thinking":
                if not isinstance(block.get("thinking"), str) or not _is_text(block.get("signature")):
                    rules.fail(f"{at}: thinking is not signed")
            case "redacted_thinking":
                if not _is_text(block.get("data")):
                    rules.fail(f"{at}: redacted thinking has no data")
    if blocks and blocks[-1][1].get("type") in ("thinking", "redacted_thinking"):
        rules.fail(f"{where}: thinking is the last block")


def _messages_user(rules: _Rules, where: str, content: Any) -> None:
    said_something = False
    types = ("text", "image", "document", "tool_result")
    for at, block in _parts(rules, where, content, types, rules.text):
        if block.get("type") != "tool_result":
            said_something = True
            continue
        if said_something:
            rules.fail(f"{at}: a result stands behind other content")
        rules.result(at, block.get("tool_use_id"))
        _parts(rules, f"{at}.content", block.get("content"), ("text", "image", "document"), rules.text)
        if "is_error" in block and not isinstance(block["is_error"], bool):
            rules.fail(f"{at}: is_error is not a boolean")


def _chat(rules: _Rules, body: Body) -> None:
    """OpenAI Chat Completions. Tool messages hold text only; reasoning has no place in a request at all."""
    messages = _entries(rules, "messages", body.get("messages"))
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", message.get("role")
        if role == "tool":
            rules.result(where, message.get("tool_call_id"))
            _parts(rules, where, message.get("content"), ("text",), rules.text)
            continue
        rules.settled(where)
        match role:
            case "assistant":
                _chat_assistant(rules, where, message)
            case "user":
                types = ("text", "image_url", "input_audio", "file")
                _parts(rules, where, message.get("content"), types, rules.text)
            case "system" | "developer":
                _parts(rules, where, message.get("content"), ("text",), rules.text)
            case _:
                rules.fail(f"{where}: role {role!r} is not allowed")
    _ends_well(rules, messages, ("user", "tool"))
    rules.settled("end")


def _chat_assistant(rules: _Rules, where: str, message: Body) -> None:
    for field in ("reasoning", "reasoning_content", "reasoning_details", "thinking"):
        if field in message:
            rules.fail(f"{where}: reasoning is sent as {field}")
    content, calls = message.get("content"), message.get("tool_calls")
    if content is not None:
        _parts(rules, where, content, ("text", "refusal"), rules.said)
    elif not calls:
        rules.fail(f"{where}: an assistant message holds nothing")
    if "tool_calls" in message:
        for at, entry in _numbered(f"{where}.tool_calls", _entries(rules, f"{where}.tool_calls", calls)):
            function = entry.get("function")
            if entry.get("type") != "function" or not isinstance(function, dict):
                rules.fail(f"{at}: the call is no function call")
                continue
            rules.call(at, entry.get("id"), function.get("name"))
            rules.arguments(at, function.get("arguments"))


def _responses(rules: _Rules, body: Body) -> None:
    """OpenAI Responses.

    The model's items (messages, reasoning, calls) that stand together are one reply; the outputs of its calls
    follow before anything else. A reasoning item is encrypted and followed by the item it led to.
    """
    given = body.get("input")
    if isinstance(given, str):
        rules.text("input", given)
        return
    items = _entries(rules, "input", given)
    reasoning: str | None = None
    answering = False
    for index, item in enumerate(items):
        where, kind = f"input[{index}]", item.get("type", "message")
        is_from_model = kind in ("reasoning", "function_call") or item.get("role") == "assistant"
        if reasoning is not None and kind != "reasoning":
            if not is_from_model:
                rules.fail(f"{reasoning}: reasoning is not followed by what it led to")
            reasoning = None
        if kind == "function_call_output":
            answering = True
            rules.result(where, item.get("call_id"))
            _parts(rules, where, item.get("output"), ("input_text", "input_image", "input_file"), rules.text)
            continue
        if answering or not is_from_model:
            rules.settled(where)
        answering = False
        if kind == "reasoning":
            reasoning = where
        _responses_item(rules, where, kind, item)
    if reasoning is not None:
        rules.fail(f"{reasoning}: reasoning is not followed by what it led to")
    rules.settled("end")
    last = items[-1] if items else {}
    if items and last.get("role") != "user" and last.get("type") != "function_call_output":
        rules.fail("the last item is neither a user message nor a result")


def _responses_item(rules: _Rules, where: str, kind: Any, item: Body) -> None:
    if "id" in item and kind != "reasoning" and item["id"] is not None:
        rules.item(where, item["id"])
    match kind:
        case "message":
            _responses_message(rules, where, item)
        case "function_call":
            rules.call(where, item.get("call_id"), item.get("name"))
            rules.arguments(where, item.get("arguments"))
        case "reasoning":
            rules.item(where, item.get("id"))
            if not _is_text(item.get("encrypted_content")):
                rules.fail(f"{where}: reasoning is not this provider's: it is not encrypted")
            if not isinstance(item.get("summary"), list):
                rules.fail(f"{where}: reasoning has no summary")
        case _:
            rules.fail(f"{where}: item type {kind!r} is not allowed")


def _responses_message(rules: _Rules, where: str, item: Body) -> None:
    role, content = item.get("role"), item.get("content")
    if role == "assistant":
        _parts(rules, where, content, ("output_text", "refusal"), rules.said)
    elif role in ("user", "system", "developer"):
        _parts(rules, where, content, ("input_text", "input_image", "input_file"), rules.text)
    else:
        rules.fail(f"{where}: role {role!r} is not allowed")


def _ends_well(rules: _Rules, messages: Sequence[Body], roles: tuple[str, ...]) -> None:
    if messages and messages[-1].get("role") not in roles:
        rules.fail(
            f"the last message is neither a user message nor a result, but {messages[-1].get('role')!r}"
        )


def _entries(rules: _Rules, where: str, value: Any) -> list[Body]:
    """The objects of a list that has to hold some."""
    if not isinstance(value, list) or not value:
        rules.fail(f"{where} is empty")
        return []
    if not all(isinstance(entry, dict) for entry in value):
        rules.fail(f"{where} holds something that is no object")
    return [entry for entry in value if isinstance(entry, dict)]


def _numbered(where: str, entries: list[Body]) -> Iterator[tuple[str, Body]]:
    return ((f"{where}[{index}]", entry) for index, entry in enumerate(entries))


def _parts(
    rules: _Rules, where: str, content: Any, types: tuple[str, ...], text: Callable[[str, Any], None]
) -> list[tuple[str, Body]]:
    """Content that is a text, or blocks of these types; `text` judges every piece of text."""
    if content is None or isinstance(content, str):
        text(where, content)
        return []
    blocks = list(_numbered(where, _entries(rules, where, content)))
    for at, block in blocks:
        kind = block.get("type")
        if kind not in types:
            rules.fail(f"{at}: block type {kind!r} is not allowed here")
        elif kind in ("text", "input_text", "output_text"):
            text(at, block.get("text"))
    return blocks


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _walk(rules: _Rules, value: Any) -> bool:
    """Whether this is JSON that can be sent: finite numbers, string keys, text that UTF-8 can carry."""
    faults: Counter[str] = Counter()
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.keys())
                below.extend(item.values())
                faults["a key is not text"] += not all(isinstance(key, str) for key in item)
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str):
                faults["text is not valid UTF-8 (lone surrogate)"] += not _is_utf8(item)
            elif isinstance(item, float):
                faults["a number is not finite"] += not math.isfinite(item)
            elif not (item is None or isinstance(item, int)):
                faults[f"{type(item).__name__} is not JSON"] += 1
        level = below
        if not level:
            break
    else:
        faults["nested too deeply"] += 1
    found = [fault for fault, count in faults.items() if count]
    rules.broken.extend(found)
    return not found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
