"""Tools of MCP servers, reached over streamable HTTP.

A config names servers; what they offer is asked for (`listings`) and offered to the model beside the config's own
tools (`offering`), and a call is sent once (`calling`). Below these, `exchanges` makes one connection for one
purpose, `wire` watches what that does to the network, and `sdk` (with `lenient`) is what knows the SDK; it
is imported when the first server is asked, never at start. `names`, `contents` and `failures` are the small print:
what tools are called, what their results become, and how all this can go wrong.

Servers that are started as a program and spoken to over its standard input are not supported: workers come and
go, and nothing that lives in one may be needed by a session.
"""

from tools_app.mcp.calling import run
from tools_app.mcp.names import is_mcp
from tools_app.mcp.offering import offers

__all__ = ["is_mcp", "offers", "run"]
