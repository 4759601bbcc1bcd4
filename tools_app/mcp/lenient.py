"""Lists in which one tool is not valid MCP, between the SDK's transport and its session.

The SDK holds a whole page against the protocol and throws all of it away for one tool whose schema has no type.
Here such a tool is taken out first, so that it costs nothing but itself. Imports the SDK, like `sdk`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from mcp_types import JSONRPCResponse, methods
from pydantic import ValidationError

type LeftOut = Callable[[str], None]
type Version = Callable[[], str | None]


@asynccontextmanager
async def lenient(
    transport: AbstractAsyncContextManager[Any], *, version: Version, left_out: LeftOut
) -> AsyncIterator[Any]:
    """The transport, with lists of tools that the session will take; `left_out` is told the others' names."""
    async with transport as (read, write):
        yield _Read(read, version, left_out), write


class _Read:
    """The stream of a server's messages, as the SDK reads it."""

    def __init__(self, inner: Any, version: Version, left_out: LeftOut) -> None:
        self._inner = inner
        self._version = version
        self._left_out = left_out

    @property
    def last_context(self) -> Any:
        return self._inner.last_context

    async def receive(self) -> Any:
        return self._taken(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._taken(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return await self._inner.__aexit__(kind, error, trace)

    def _taken(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            tools = [_with_type(tool) for tool in message.result["tools"]]
            message.result["tools"] = [tool for tool in tools if self._is_valid(message.result, tool)]
        return item

    def _is_valid(self, page: dict[str, Any], tool: Any) -> bool:
        version = self._version()
        try:
            if version is not None:
                methods.validate_server_result("tools/list", version, page | {"tools": [tool]})
        except KeyError:
            return True
        except ValidationError as error:
            if not any("tools" in problem["loc"] for problem in error.errors()):
                return True  # the page itself is no list
            self._left_out(str(tool.get("name")) if isinstance(tool, dict) else "")
            return False
        return True


def _with_type(tool: Any) -> Any:
    """Many servers describe a tool without arguments by `{}`."""
    if isinstance(tool, dict) and isinstance(tool.get("inputSchema"), dict):
        return tool | {"inputSchema": {"type": "object"} | tool["inputSchema"]}
    return tool
