"""A small language for transcripts, so that a test reads like the table in the resume rules.

`U` user, `T` assistant text, `A[c1,c2]` assistant with calls, `r(c1)` its result, `rE(c1)` an error result,
`rA(c1)` a result that carries a person's answer; `thinking`, `empty`, `blank`, `unknown`, `nothing`
(an assistant message whose content is of a wrong type) and `"text"` (content is a bare string) are other
assistant messages; `note`, `summary`, `checkpoint`. Behind an assistant message `!stop` is its stop reason
and `!!` an error text. A call's tool is named after its id without digits: `c1` calls `c`, `ask` calls
`ask_user`.
"""

import re
from typing import Any

Message = dict[str, Any]

_TOKEN = re.compile(
    r'(?P<word>[A-Za-z]+|".*?")(?:[\[(](?P<ids>[^\])]*)[\])])?(?:!(?P<stop>[a-z_]+))?(?P<error>!!)?$'
)
_TOOLS = {"ask": "ask_user", "create": "create_skill"}


def transcript(text: str) -> list[Message]:
    """The messages that `text` describes."""
    return [_message(token, number) for number, token in enumerate(text.split())]


def tool_of(call_id: str) -> str:
    name = call_id.rstrip("0123456789")
    return _TOOLS.get(name, name)


def call(call_id: str, **args: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": tool_of(call_id), "args": args}


def shape(view: list[Message]) -> str:
    """What a view looks like in the same language; `r*` is a synthetic result."""
    return " ".join(_shape(message) for message in view)


def _message(token: str, number: int) -> Message:
    match = _TOKEN.match(token)
    assert match, token
    word, ids = match["word"], (match["ids"] or "").split(",") if match["ids"] else []
    if word == "U":
        return {"role": "user", "content": [{"type": "text", "text": f"message {number}"}]}
    if word in {"note", "summary", "checkpoint"}:
        return {"role": word, "content": f"{word} {number}"}
    if word in {"r", "rE", "rA"}:
        return {
            "role": "tool_result",
            "id": ids[0],
            "name": tool_of(ids[0]),
            "error": word == "rE",
            "answered": word == "rA",
            "content": f"result {number}",
        }
    contents: dict[str, Any] = {
        "A": [call(call_id) for call_id in ids],
        "T": [{"type": "text", "text": f"answer {number}"}],
        "thinking": [{"type": "thinking", "thinking": "hm"}],
        "empty": [],
        "blank": [{"type": "text", "text": " \n\t"}],
        "unknown": [{"type": "from_the_future", "x": 1}],
        "nothing": None,
    }
    content = word.strip('"') if word.startswith('"') else contents[word]
    error = "it broke" if match["error"] else None
    return {"role": "assistant", "content": content, "stop": match["stop"], "error": error}


def _shape(message: Message) -> str:
    role = message["role"]
    if role == "user":
        return "U"
    if role == "tool_result":
        mark = "*" if message.get("synthetic") else ""
        return f"r{mark}({message['id']})"
    if role != "assistant":
        return str(role)
    content = message["content"]
    calls = [block["id"] for block in content if block["type"] == "tool_call"] if content else []
    return f"A[{','.join(calls)}]" if calls else "T"
