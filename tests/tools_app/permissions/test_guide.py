"""The guide's examples are decided as it says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from sessions_app.agent_config.yaml import load_yaml
from tests.tools_app.permissions.calls import verdict
from tools_app.permissions import default_for

GUIDE = Path(settings.BASE_DIR, "docs/guides/permissions.md").read_text()
READS = {"mcp__linear__get_issue": {"read_only": True}}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def calls() -> list[tuple[str, dict[str, Any], str, int | None]]:
    found = []
    for line in "".join(blocks("calls")).splitlines():
        tool, rest = line.split(" ", 1)
        arguments, then, rule = rest.rsplit(maxsplit=2)
        found.append((tool, json.loads(arguments), then, None if rule == "-" else int(rule)))
    return found


@pytest.mark.parametrize(("tool", "arguments", "then", "rule"), calls())
def test_a_call_of_the_guide_is_decided_as_it_says(
    tool: str, arguments: dict[str, Any], then: str, rule: int | None
) -> None:
    """T7"""
    (rules,) = (load_yaml(block.encode())["permissions"] for block in blocks("yaml"))
    tool_class = "command" if tool == "run_command" else "outside"
    found = verdict(
        rules,
        tool,
        arguments,
        tool_class=tool_class,
        default=default_for(tool=tool, tool_class=tool_class),
        annotations=READS.get(tool),
    )
    assert (found.then, found.rule) == (then, rule)


def test_the_guide_shows_every_decision() -> None:
    """T7"""
    assert {then for _, _, then, _ in calls()} == {"allow", "ask", "deny"}
