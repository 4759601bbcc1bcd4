"""Corrects and judges a provider's event stream before an SDK parses it; one corrector per wire protocol.

The library below us lets four things pass that would corrupt a session: two calls that share one index are
merged into one, a stream without its end event counts as whole, a missing finish reason is reported as a
normal stop, and an error event may be dropped. A corrector repairs the first and remembers the rest:
`ended` (the protocol's end event or finish reason was seen), `stop` (the provider's raw reason) and
`error`. Pure.
"""

import json
from dataclasses import dataclass
from typing import Any

from sessions_app.providers.library.sse import Event

Json = dict[str, Any]
MADE_UP = "tenure-item-"  # ids that a stream lacked; never sent back to a provider


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that the provider reported inside a stream."""

    code: str | None
    kind: str | None
    message: str
    status: int | None = None


class Corrector:
    """Passes every event on; the base of the protocols."""

    protocol = "other"

    def __init__(self) -> None:
        self.ended = False
        self.stop: str | None = None
        self.error: StreamError | None = None
        self.malformed: str | None = None
        self.events = 0

    def correct(self, event: Event) -> Event | None:
        """The event to pass on, None to leave it out."""
        self.events += 1
        if event.data.strip() == "[DONE]":
            return event
        try:
            data = json.loads(event.data)
        except ValueError:
            self.malformed = "an event of the stream is not JSON"
            return None
        if not isinstance(data, dict):
            return event
        if data.get("error"):
            self.error = error_of(data["error"])
        return event.with_data(json.dumps(data)) if self._see(event, data) else event

    def _see(self, event: Event, data: Json) -> bool:
        """Look at the event's data; True if it was changed."""
        return False


class ChatCorrector(Corrector):
    """OpenAI Chat Completions and everything compatible: a whole reply has a finish reason."""

    protocol = "openai-chat"

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Any, tuple[str | None, int]] = {}  # index as sent -> (call id, index passed on)
        self._calls = 0

    def _see(self, event: Event, data: Json) -> bool:
        changed = False
        for choice in data.get("choices") or ():
            if not isinstance(choice, dict):
                continue
            if choice.get("finish_reason"):
                self.ended = True
                self.stop = str(choice["finish_reason"])
            delta = choice.get("delta")
            calls = delta.get("tool_calls") if isinstance(delta, dict) else None
            for call in calls or ():
                if isinstance(call, dict):
                    changed |= self._place(call)
        return changed

    def _place(self, call: Json) -> bool:
        """Give each call an index of its own: a new id at a used index opens a new call (C42)."""
        sent, call_id = call.get("index"), call.get("id") or None
        known = self._open.get(sent)
        if known is None or (call_id is not None and known[0] not in {None, call_id}):
            known = (call_id, self._calls)
            self._calls += 1
        elif known[0] is None:
            known = (call_id, known[1])
        self._open[sent] = known
        call["index"] = known[1]
        return sent != known[1]


class AnthropicCorrector(Corrector):
    """Anthropic Messages: a whole reply ends with message_stop, after a stop reason."""

    protocol = "anthropic"

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Any, int] = {}
        self._blocks = 0

    def _see(self, event: Event, data: Json) -> bool:
        match data.get("type"):
            case "message_stop":
                self.ended = self.stop is not None
            case "message_delta":
                reason = (data.get("delta") or {}).get("stop_reason")
                if reason:
                    self.stop = str(reason)
            case "content_block_start":
                self._open[data.get("index")] = self._blocks
                self._blocks += 1
                return self._place(data)
            case "content_block_delta" | "content_block_stop":
                return self._place(data)
        return False

    def _place(self, data: Json) -> bool:
        sent = data.get("index")
        place = self._open.get(sent)
        if place is None or place == sent:
            return False
        data["index"] = place
        return True


class ResponsesCorrector(Corrector):
    """OpenAI Responses: ends with response.completed or response.incomplete; response.failed is an error."""

    protocol = "openai"

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[Any, str] = {}  # (output index, item id as sent) -> item id passed on
        self._used: set[str] = set()

    def _see(self, event: Event, data: Json) -> bool:
        match data.get("type"):
            case "response.completed":
                self.ended = True
                self.stop = self._reason(data) or "completed"
            case "response.incomplete":
                self.ended = True
                self.stop = self._reason(data) or "incomplete"
            case "response.failed":
                failed = (data.get("response") or {}).get("error")
                self.error = error_of(failed or {"message": "the provider reports a failed response"})
            case "error":
                self.error = error_of(data.get("error") or data)
            case "response.output_item.added":
                return self._open_item(data)
            case "response.output_item.done":
                return self._rename(data, data.get("item"), "id")
            case _:
                return self._rename(data, data, "item_id")
        return False

    @staticmethod
    def _reason(data: Json) -> str | None:
        details = (data.get("response") or {}).get("incomplete_details")
        return details.get("reason") if isinstance(details, dict) else None

    def _open_item(self, data: Json) -> bool:
        item = data.get("item")
        if not isinstance(item, dict) or item.get("type") != "function_call":
            return False
        sent = item.get("id") or ""
        item_id = sent
        while not item_id or item_id in self._used:
            item_id = f"{MADE_UP}{len(self._used)}"
        self._used.add(item_id)
        self._items[sent] = item_id
        item["id"] = item_id
        return item_id != sent

    def _rename(self, data: Json, holder: Any, key: str) -> bool:
        if not isinstance(holder, dict):
            return False
        sent = holder.get(key) or ""
        item_id = self._items.get(sent)
        if item_id is None or item_id == sent:
            return False
        if key == "id" and holder.get("type") != "function_call":
            return False
        if key == "item_id" and "function_call" not in str(data.get("type")):
            return False
        holder[key] = item_id
        return True


class GoogleCorrector(Corrector):
    """Google generateContent: a whole reply has a finish reason, or the prompt was blocked."""

    protocol = "google"

    def _see(self, event: Event, data: Json) -> bool:
        for candidate in data.get("candidates") or ():
            if isinstance(candidate, dict) and candidate.get("finishReason"):
                self.ended = True
                self.stop = str(candidate["finishReason"])
        blocked = data.get("promptFeedback")
        if isinstance(blocked, dict) and blocked.get("blockReason"):
            self.ended = True
            self.stop = self.stop or "PROHIBITED_CONTENT"
        return False


def error_of(value: Any) -> StreamError:
    """An error object in any of the shapes providers use."""
    if not isinstance(value, dict):
        return StreamError(code=None, kind=None, message=str(value))
    code, status = value.get("code"), None
    if isinstance(code, int) or (isinstance(code, str) and code.isdigit()):
        # Gateways send the HTTP status itself as the code.
        status, code = int(code), None
    kind = value.get("type") or value.get("status")
    return StreamError(
        code=str(code) if code else None,
        kind=str(kind) if kind and kind != "error" else None,
        message=str(value.get("message") or "the provider reports an error"),
        status=status if status is not None and 400 <= status < 600 else None,
    )


def corrector_for(path: str) -> Corrector:
    """The corrector for a request's URL path."""
    if path.endswith("/chat/completions"):
        return ChatCorrector()
    if path.endswith("/responses"):
        return ResponsesCorrector()
    if path.endswith("/messages"):
        return AnthropicCorrector()
    if path.endswith(":streamGenerateContent"):
        return GoogleCorrector()
    return Corrector()
