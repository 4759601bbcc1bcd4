"""The decision: the config's rules in their order, then the default (see the package). Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sessions_app.agent_config.values import seconds
from tools_app.permissions.matchers import holds, is_command
from tools_app.permissions.matching import Match

_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
_VERBS = {"allow": "allows it", "ask": "asks", "deny": "denies it"}
_DEFAULTS = {"allow": "is allowed", "ask": "asks", "deny": "is denied"}
_MAX_TOLD = 200
_MAX_DOUBTS = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a call. `rule` counts from 0; None where the default of the class has decided."""

    then: str
    rule: int | None
    why: str
    expires_after: float | None = None
    """Seconds, of a rule that asks."""
    on_expiry: str | None = None
    pattern: Mapping[str, Any] | None = None
    """The rule's argument matchers, where it asks and surely matches: what a remembered decision can cover."""


def decide(
    rules: Sequence[Mapping[str, Any]] | None,
    *,
    tool: str,
    tool_class: str,
    arguments: Mapping[str, Any],
    default: str,
    annotations: Mapping[str, bool] | None = None,
) -> Verdict:
    """The verdict for a call with these arguments; `rules` are the document's `permissions`.

    `default` is what happens without a rule, `annotations` are `read_only` and `destructive` of an MCP tool.
    """
    strictest: Verdict | None = None
    doubts: list[str] = []
    for index, rule in enumerate(rules or ()):
        match = _match(rule, tool, tool_class, arguments, annotations or {})
        if match is Match.NO:
            continue
        if match is Match.MAYBE and rule["then"] == "allow":
            doubts.append(f"rule {index} ({_told(rule)}) does not surely match, so it does not allow it")
            continue
        found = _verdict(index, rule, match, arguments)
        strictest = found if strictest is None else _stricter(strictest, found)
        if match is Match.YES:
            break
    else:
        found = Verdict(default, None, f"no rule surely matches; without one {tool} {_DEFAULTS[default]}")
        strictest = found if strictest is None else _stricter(strictest, found)
    return replace(strictest, why="; ".join([strictest.why, *doubts[:_MAX_DOUBTS]]))


def _stricter(first: Verdict, second: Verdict) -> Verdict:
    return second if _STRICTNESS[second.then] > _STRICTNESS[first.then] else first


def _verdict(index: int, rule: Mapping[str, Any], match: Match, arguments: Mapping[str, Any]) -> Verdict:
    surely = match is Match.YES
    conditions = rule.get("arguments") or {}
    # One command on a machine must not stand for every other command there.
    covers = surely and conditions and all(name in conditions for name in arguments if is_command(name))
    expires = rule.get("expires_after")
    return Verdict(
        rule["then"],
        index,
        f"rule {index} ({_told(rule)}) {'matches' if surely else 'may match'} and {_VERBS[rule['then']]}",
        expires_after=None if expires is None else seconds(expires),
        on_expiry=rule.get("on_expiry"),
        pattern=conditions if covers and rule["then"] == "ask" else None,
    )


def _match(
    rule: Mapping[str, Any],
    tool: str,
    tool_class: str,
    arguments: Mapping[str, Any],
    annotations: Mapping[str, bool],
) -> Match:
    if not _is_named(tool, rule["tool"]):
        return Match.NO
    answer = Match.YES
    for name, wanted in (rule.get("annotations") or {}).items():
        answer = min(answer, _annotated(name, wanted, tool, annotations))
    for name, matcher in (rule.get("arguments") or {}).items():
        if answer is Match.NO or name not in arguments:
            return Match.NO
        # What a machine's tool takes may be given to a shell, whatever it is called.
        command = is_command(name) or ("starts_with" in matcher and tool_class == "command")
        answer = min(answer, holds(matcher, arguments[name], is_command=command))
    return answer


def _is_named(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern in which `*` stands for any characters; linear, unlike a regular expression."""
    first, *others = pattern.split("*")
    if not others:
        return name == pattern
    last = others.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in others:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _annotated(name: str, wanted: bool, tool: str, annotations: Mapping[str, bool]) -> Match:  # noqa: FBT001
    """What a server says of its tool is a hint; where it says nothing, the worse is possible."""
    if name in annotations:
        return Match.YES if annotations[name] is wanted else Match.NO
    if name == "destructive" and annotations.get("read_only") is True:
        return Match.NO if wanted else Match.YES
    if not tool.startswith("mcp__"):
        return Match.NO  # only MCP has them
    worse = name == "destructive"
    return Match.MAYBE if wanted is worse else Match.NO


def _told(rule: Mapping[str, Any]) -> str:
    conditions = {
        name: value for name, value in rule.items() if name in {"arguments", "annotations"} and value
    }
    text = f"{rule['tool']} {json.dumps(conditions, ensure_ascii=False)}" if conditions else rule["tool"]
    return text if len(text) <= _MAX_TOLD else text[: _MAX_TOLD - 1] + "…"
