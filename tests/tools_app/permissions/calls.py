"""What tests of permissions begin with."""

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.agent_config.document import parse
from tools_app.permissions import Verdict, decide


def verdict(
    rules: Sequence[Mapping[str, Any]],
    tool: str,
    arguments: Mapping[str, Any],
    *,
    tool_class: str = "outside",
    default: str = "ask",
    annotations: Mapping[str, bool] | None = None,
) -> Verdict:
    """The verdict of rules as a config stores them."""
    document = parse({"instructions": "x", "model": "scripted:x", "permissions": list(rules)})
    return decide(
        document.canonical_form()["permissions"],
        tool=tool,
        tool_class=tool_class,
        arguments=arguments,
        default=default,
        annotations=annotations,
    )


def then(rules: Sequence[Mapping[str, Any]], tool: str, arguments: Mapping[str, Any], **more: Any) -> str:
    return verdict(rules, tool, arguments, **more).then
