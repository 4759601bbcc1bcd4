"""Reasoning that goes back to OpenAI's Responses: as the item that it was, or not at all.

Whether a model takes reasoning items the library tells from its name, and for a name that it does not know (a
deployment's alias, a model newer than the library, a compatible server) it writes the reasoning into the
conversation as text between tags. The model would read its own thoughts as what it said, and the item ids of
what follows would name reasoning that is not there.

So for such a name the history decides. Reasoning of this very model goes back as items, which a model that
made some takes; reasoning of another model is left out, with the names under which its provider stored what
follows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.models import Model

from sessions_app.providers.library.models import model_for
from sessions_app.providers.port import ModelRequest

type Message = Mapping[str, Any]

_STORED = ("provider", "details")


def readable(request: ModelRequest) -> tuple[Model, Sequence[Message]]:
    """The library's model for `request`, and the messages as that model can read them."""
    model = model_for(request)
    if request.provider != "openai" or model.profile.get("openai_supports_encrypted_reasoning_content"):
        return model, request.messages
    kept = [_without_others(message, request.model) for message in request.messages]
    if any(_reasons(message) for message in kept):
        model = model_for(request, reasons=True)
    return model, kept


def _without_others(message: Message, name: str) -> Message:
    if not _reasons(message) or _made_by(message.get("model"), name):
        return message
    # An item that is named asks for the reasoning that it followed.
    content = [
        {key: value for key, value in block.items() if key not in _STORED}
        for block in message["content"]
        if block.get("type") != "thinking"
    ]
    return {**message, "content": content}


def _reasons(message: Message) -> bool:
    content = message.get("content")
    return (
        message.get("role") == "assistant"
        and isinstance(content, list)
        and any(isinstance(block, dict) and block.get("type") == "thinking" for block in content)
    )


def _made_by(made: Any, name: str) -> bool:
    """Providers answer to a name with that of one of its versions: gpt-5 as gpt-5-2025-08-07."""
    return isinstance(made, str) and (made == name or made.startswith(f"{name}-"))
