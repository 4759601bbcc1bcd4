"""What is printed while it happens: one line for each entry of the log, with who wrote it and how long it took."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

type Json = dict[str, Any]

PROGRESS_EVERY = 1.0
_WIDTH = 76
HEAD = f"{'time':>8}  {'attempt':>7}  {'worker':<12}  what"


class Timeline:
    """`say` writes a line, `keep` a row for the JSON. Workers of attempts are told with `holder`."""

    def __init__(self, *, say: Callable[[str], None], keep: Callable[[Json], None]) -> None:
        self._say, self._keep = say, keep
        self._started = time.monotonic()
        self._last_line = self._started
        self._workers: dict[int, str] = {}
        self._previous: datetime | None = None
        self._tool_started: dict[str, datetime] = {}
        self._turn_started: dict[str, datetime] = {}

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def holder(self, attempt: int, worker: str) -> None:
        self._workers[attempt] = worker

    def entry(self, entry: Json) -> None:
        """An entry of the log, as the API gives it."""
        at = datetime.fromisoformat(entry["created_at"])
        attempt = entry["attempt"]
        worker = self._workers.get(attempt, "") if attempt is not None else ""
        took = self._took(entry, at)
        text = _short(_text_of(entry))
        shown = f"{entry['kind']} {text}".strip() + (f"  ({took:.2f} s)" if took is not None else "")
        self._line(f"{self.elapsed():7.1f}s  {attempt or '':>7}  {worker:<12}  {shown}")
        self._keep(
            {
                "what": "entry",
                "at": round(self.elapsed(), 3),
                "seq": entry["seq"],
                "attempt": attempt,
                "worker": worker,
                "kind": entry["kind"],
                "text": text,
                "took_s": took,
            }
        )

    def act(self, text: str, **fields: Any) -> None:
        """Something that the demo itself does or sees."""
        self._line(f"{self.elapsed():7.1f}s  {'':>7}  {'demo':<12}  ** {text}")
        self._keep({"what": "act", "at": round(self.elapsed(), 3), "text": text, **fields})

    def waiting(self, what: str) -> None:
        """A sign of life, when nothing has been printed for a second."""
        if time.monotonic() - self._last_line >= PROGRESS_EVERY:
            self._line(f"{self.elapsed():7.1f}s  {'':>7}  {'':<12}  .. {what}")

    def _line(self, text: str) -> None:
        self._say(text)
        self._last_line = time.monotonic()

    def _took(self, entry: Json, at: datetime) -> float | None:
        """How long what this entry ends has taken: a model call since the step before it, a tool since its start."""
        began: datetime | None = None
        data = entry["data"]
        match entry["kind"]:
            case "tool_started":
                self._tool_started[data["tool_call"]] = at
            case "assistant_message" | "model_call_failed":
                began = self._previous
                for block in data.get("content", ()):
                    if block["type"] == "tool_call":
                        self._tool_started[block["tool_call"]] = at
            case "tool_result":
                began = self._tool_started.get(data["tool_call"])
            case "turn_started":
                self._turn_started[entry["turn"]] = at
            case "turn_ended":
                began = self._turn_started.get(entry["turn"])
        self._previous = at
        return (at - began).total_seconds() if began is not None else None


def _text_of(entry: Json) -> str:
    data = entry["data"]
    match entry["kind"]:
        case "user_message" | "input_received":
            return _quoted(data["content"])
        case "assistant_message":
            calls = [block["name"] for block in data["content"] if block["type"] == "tool_call"]
            return _quoted(data["content"]) + (f" -> {', '.join(calls)}" if calls else "")
        case "tool_started":
            return str(data["name"])
        case "tool_result":
            return f"{data['name']}: {data['outcome']}"
        case "session_resumed":
            repaired = len(data["repaired_tool_calls"])
            return f"after {data['reason']}" + (f", {repaired} tool calls settled" if repaired else "")
        case "session_updated":
            return ", ".join(f"{name} {_plain(value)}" for name, value in data["changes"].items())
        case "approval_requested":
            return str(data["name"])
        case "approval_decided":
            return str(data["decision"])
        case "question_asked":
            return _short(" ".join(one["text"] for one in data["questions"]), 60)
        case "session_waiting":
            return "for " + ", ".join(one["kind"] for one in data["waiting_on"])
        case "turn_started":
            return str(data["number"])
        case "turn_ended":
            return f"{data['number']}: {data['status']}, {data['reason']}"
        case "model_call_failed":
            return f"{data['category']}: {data['detail']}"
        case "retry_scheduled":
            return f"in {data['delay']:.1f} s"
    return ""


def _quoted(content: list[Json]) -> str:
    text = " ".join(block["text"] for block in content if block["type"] == "text")
    return f'"{_short(text, 60)}"' if text else ""


def _short(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _plain(value: Any) -> str:
    return " ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
