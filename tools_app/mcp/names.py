"""What a model calls the tools of MCP servers: `mcp__<server>__<tool>`. Pure.

Providers take names of at most 64 letters, digits, `_` and `-`; servers name their tools more freely. A name
that fits is used as it is, every other one is cut and marked with a hash of the whole, so that it is the same
on every worker and on every day, whatever else the server offers. Names are only ever looked up in a server's
list; nothing takes one apart but for its server.
"""

import hashlib
import re
from collections.abc import Iterable

PREFIX = "mcp__"
LONGEST = 64
_HASH = 8
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def prefix_of(server: str) -> str:
    """The beginning of the names of all tools of a server."""
    return f"{PREFIX}{server}__"


def is_mcp(name: str) -> bool:
    """Whether a tool can only be one of an MCP server."""
    return name.startswith(PREFIX)


def server_of(name: str) -> str | None:
    """The server in the name of a tool; None where it is no tool of an MCP server.

    The names of servers hold no `_`, so there is one way to read it.
    """
    if not is_mcp(name):
        return None
    server, found, _ = name.removeprefix(PREFIX).partition("__")
    return server if found else None


def exposed(server: str, tool: str) -> str:
    """What the tool `tool` of `server` is called by models."""
    prefix = prefix_of(server)
    fitting = _UNFIT.sub("_", tool)
    if fitting == tool and tool and len(prefix) + len(tool) <= LONGEST:
        return prefix + tool
    mark = "_" + hashlib.sha256(tool.encode()).hexdigest()[:_HASH]
    return prefix + fitting[: LONGEST - len(prefix) - len(mark)] + mark


def by_exposed_name(server: str, tools: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The tools by what models call them, in their order; and those whose name another one has already.

    A tool whose own name fits comes before one that was renamed to the same.
    """
    tools = list(dict.fromkeys(tools))
    own = {exposed(server, tool) for tool in tools if prefix_of(server) + tool == exposed(server, tool)}
    named: dict[str, str] = {}
    left_out: list[str] = []
    for tool in tools:
        name = exposed(server, tool)
        if name in named or (name in own and name != prefix_of(server) + tool):
            left_out.append(tool)
        else:
            named[name] = tool
    return named, left_out
