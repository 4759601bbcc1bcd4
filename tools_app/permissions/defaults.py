"""What happens to a call that no rule matches: the default of its tool's class (api.md). Pure.

What stays inside (the session, the database, the team's own backend and people) is allowed, and so is reading from
the web. What may change something outside asks: other HTTP methods, commands, MCP. A tool of the deployment says it
itself where it knows better; looking up (`rerun_safe`) is allowed.
"""

from typing import Literal

Then = Literal["allow", "ask", "deny"]

READS_THE_WEB = frozenset({"web_search", "web_fetch"})
_INSIDE = frozenset({"internal", "human", "custom"})


def default_for(
    *,
    tool: str,
    tool_class: str,
    method: str | None = None,
    rerun_safe: bool = False,
    declared: Then | None = None,
) -> Then:
    """`method` is that of an HTTP tool of the config, `declared` what the deployment's own tool says of itself."""
    if declared is not None:
        return declared
    if tool.startswith("mcp__"):
        return "ask"
    if tool_class in _INSIDE:
        return "allow"
    if tool_class != "outside":
        return "ask"
    if method is not None:
        return "allow" if method == "GET" else "ask"
    return "allow" if tool in READS_THE_WEB or rerun_safe else "ask"
