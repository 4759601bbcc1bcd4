"""How full a session's context is, and whether the next model call has to wait for a compaction. Pure.

A `Pressure` is kept up to date one entry at a time beside the context. All of it follows from the log, so an
attempt that takes over from a dead one judges the same: what the provider counted last, that it refused a
request as too long, and whether anything was said since the last checkpoint.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.engine import tokens
from sessions_app.engine.compaction import WORTH, Because, Rule

COMPACTION = "compaction"
"""The purpose of a model call that asks for a summary; the other is `reply`."""

REPLY = "reply"

_UNCOUNTED = "scripted"
"""This provider counts the last message only, which tells nothing about a tokenizer."""


@dataclass(slots=True)
class Pressure:
    """See the module's docstring. `pending` are the estimated tokens of what is about to be saved."""

    ratio: float = 1.0
    grown: bool = False
    overflowed: bool = False
    overflows: int = 0  # requests for the summary that were too long themselves
    requested: bool = False
    pending: int = 0
    checkpoint: int | None = None  # where the newest one stands

    def take(self, seq: int, kind: str, data: Mapping[str, Any], size: int) -> None:
        """The next entry of the branch; `size` is the estimate of a request with all that came before it."""
        match kind:
            case "model_call_failed":
                if data.get("category") == "context_too_long":
                    if data.get("purpose") == COMPACTION:
                        self.overflows += 1
                    else:
                        self.overflowed = True
            case "checkpoint":
                self.ratio = data.get("ratio") or self.ratio
                self.checkpoint = seq
                self.settle()
            case "assistant_message":
                # Behind a checkpoint only: what one covers is not in the context of whoever reads it again.
                if data.get("provider") != _UNCOUNTED and (self.checkpoint is None or seq > self.checkpoint):
                    counted = (data.get("usage") or {}).get("input_tokens") or 0
                    if counted:
                        self.ratio = tokens.calibrated(counted=counted, estimated=size)
                self.overflowed = False
                self.overflows = 0
                self.grown = True
            case "user_message" | "tool_result":
                self.grown = True
            case "config_changed":
                self.overflowed = False  # perhaps of a model that reads more

    def settle(self) -> None:
        """A checkpoint was written: nothing asks for another one until more is said or refused."""
        self.grown = self.overflowed = self.requested = False
        self.overflows = self.pending = 0

    def about_to_save(self, entries: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """What happened and is not in the context yet counts towards the next request all the same."""
        self.pending = sum(
            tokens.MESSAGE_TOKENS + tokens.of_content(data.get("content"))
            for kind, data in entries
            if kind in {"user_message", "assistant_message", "tool_result"}
        )

    def why(self, *, rule: Rule, size: int, new: int, covered: Callable[[], int | None]) -> Because | None:
        """Whether the next model call waits for a compaction.

        `size` is the estimate of a request as things are, `new` of what is delivered with the call; `covered` says
        how much of it a summary would stand for, None where it can stand for nothing.

        Where nothing can be covered the model is asked all the same: an estimate is no reason to refuse to try.
        """
        if self.requested:
            return Because.IN_VAIN if covered() is None else Because.REQUESTED
        if self.overflowed:
            return None if covered() is None else Because.OVERFLOW
        new += self.pending
        if (self.grown or new) and (size + new) * self.ratio >= rule.limit:
            return Because.ESTIMATE if (covered() or 0) >= WORTH * (size + new) else None
        return None
