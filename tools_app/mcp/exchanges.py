"""One exchange with an MCP server: connect, do one thing, say good-bye.

Each call has a connection and a session of its own. A session that is kept between calls expires between calls,
and a server's "no such session" would then be the answer to a call, which is an unknown outcome; with one that
is a moment old it means that the server has lost it while the call was there. What a server keeps in a session
would be gone with the worker anyway.

The SDK runs in a task of its own, because it holds scopes that must end in the order in which they began:
whoever is cancelled in the middle of a call leaves at once, and the task says good-bye in its own (bounded)
time. For the same reason a result is handed over before the good-byes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx2
import structlog

from sessions_app.network import NetworkRefused, RedirectRefused
from tools_app.mcp.failures import McpFailure, NoAnswer, NotDone, OutcomeUnknown, RefusesCredentials
from tools_app.mcp.wire import SentTwice, Sight, TooLarge, Wire

if TYPE_CHECKING:
    from tools_app.mcp.sdk import Connection, Protocol

logger = structlog.get_logger(__name__)

_SDK = "tools_app.mcp.sdk"
_MAX_TOLD = 300
_running: set[asyncio.Task[None]] = set()


async def exchange[T](
    url: str,
    headers: Mapping[str, str],
    work: "Callable[[Connection], Awaitable[T]]",
    *,
    connect_within: float,
    protocol: "Protocol" = None,
    tools_changed: Callable[[], None] = lambda: None,
) -> T:
    """What `work` gives back. Raises `NotDone` or `OutcomeUnknown`; nothing is ever tried again.

    `connect_within` is for the connection and the handshake; how long `work` may take is the caller's business.
    """
    # In a thread: seconds of importing must not hold up the other sessions of this loop.
    sdk = await asyncio.to_thread(import_module, _SDK)
    loop = asyncio.get_running_loop()
    connected: asyncio.Future[None] = loop.create_future()
    result: asyncio.Future[T] = loop.create_future()
    wire = Wire(connect_within)

    def now_connected() -> None:
        if not connected.done():
            connected.set_result(None)

    async def do_work(connection: "Connection") -> None:
        value = await work(connection)
        if not result.done():
            result.set_result(value)

    async def run() -> None:
        try:
            await sdk.connect(
                url,
                headers,
                wire,
                connect_within=connect_within,
                protocol=protocol,
                connected=now_connected,
                work=do_work,
                tools_changed=tools_changed,
            )
        except asyncio.CancelledError:
            result.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - told to whoever asked, or too late for anybody
            if not result.done():
                result.set_exception(_failure(error, wire.sight))

    task = loop.create_task(run())
    _running.add(task)
    task.add_done_callback(_running.discard)
    try:
        either: set[asyncio.Future[Any]] = {connected, result}
        await asyncio.wait(either, timeout=connect_within, return_when=asyncio.FIRST_COMPLETED)
        if not connected.done() and not result.done():
            raise NoAnswer(
                f"does not answer: nothing came within {connect_within:g} s", asked=wire.sight.asked
            )
        return await result
    except asyncio.CancelledError:
        if result.done() and not result.cancelled() and result.exception() is None:
            return result.result()  # it was there before whoever wanted to stop us
        raise
    finally:
        if not result.done() or result.cancelled():
            result.cancel()
            task.cancel()


async def goodbyes_said() -> None:
    """When no connection of this event loop is open any more."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in _running if task.get_loop() is loop), return_exceptions=True)


def _failure(error: BaseException, sight: Sight) -> McpFailure:
    """What the error means for whoever waits, by what was seen on the wire."""
    fault = sight.fault or _first(error, httpx2.TransportError)
    if isinstance(fault, RedirectRefused | NetworkRefused | SentTwice) and not _outlasts(fault, sight):
        return NotDone(f"can't be reached: {_told(fault)}")
    if sight.call_asked:
        return _failure_of_call(error, fault, sight)
    return _failure_to_connect(error, fault, sight)


def _outlasts(fault: Exception, sight: Sight) -> bool:
    """Whether a refusal of ours came when the call was already on its way."""
    return sight.call_sent and not isinstance(fault, RedirectRefused)


def _failure_to_connect(error: BaseException, fault: Exception | None, sight: Sight) -> McpFailure:
    sdk = import_module(_SDK)
    said = _first(error, sdk.MCPError)
    status = sight.status
    if fault is not None:
        return NotDone(f"can't be reached: {_told(fault)}")
    if status in {401, 403}:
        return RefusesCredentials(f"refuses the credentials that it was sent (status {status})")
    if status is not None and status >= 400:
        return NotDone(f"does not speak MCP at its address (status {status})")
    if status is not None and sight.content_type not in {"application/json", "text/event-stream"}:
        return NotDone(
            f"does not speak MCP at its address: it answers with {sight.content_type or 'nothing'}"
        )
    if said is not None:
        return NotDone(f"could not be spoken to: {_told(said)}")
    if _first(error, sdk.ValidationError) is not None:
        return NotDone(f"gave an answer to {sight.asked} that is not valid MCP")
    _log(error, sight)
    return NotDone(f"could not be spoken to: {_told(_first(error, Exception) or error)}")


def _failure_of_call(error: BaseException, fault: Exception | None, sight: Sight) -> McpFailure:
    sdk = import_module(_SDK)
    said = _first(error, sdk.MCPError)
    status = sight.status
    if not sight.call_sent:
        return NotDone(f"can't be reached: {_told(fault or error)}; the call was not sent")
    if isinstance(fault, TooLarge):
        return NotDone(f"did the call, but {_told(fault)}")
    if status == 404 and sight.in_session:
        return OutcomeUnknown("ended the session in the middle of the call")
    if fault is not None:
        return OutcomeUnknown(f"broke off in the middle of the call: {_told(fault)}")
    if status in {401, 403}:
        return RefusesCredentials(f"refuses the credentials that it was sent (status {status})")
    if status is not None and 400 <= status < 500:
        return NotDone(f"refused the call (status {status}){_detail(said)}")
    if status is None or status >= 500 or status == 202:
        return OutcomeUnknown(f"answered the call with status {status}")
    if sight.content_type not in {"application/json", "text/event-stream"}:
        return OutcomeUnknown(f"answered the call with {sight.content_type or 'nothing'}, which is no MCP")
    if said is not None:
        # These codes are also the SDK's own, for answers that ended early or can't be read.
        if said.code in {sdk.CONNECTION_CLOSED, sdk.PARSE_ERROR}:
            return OutcomeUnknown(f"gave no whole answer to the call: {_told(said)}")
        return NotDone(f"answered the call with an error: {_told(said)} (code {said.code})")
    if _first(error, sdk.ValidationError) is not None:
        return NotDone("did the call, but its answer is not valid MCP")
    _log(error, sight)
    return OutcomeUnknown("could not be heard any more in the middle of the call")


def _detail(said: BaseException | None) -> str:
    return f": {_told(said)}" if said is not None else ""


def _first[E: BaseException](error: BaseException, kind: type[E]) -> E | None:
    """The first error of this kind in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _first(inner, kind))), None)
    return error if isinstance(error, kind) else None


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_TOLD else text[:_MAX_TOLD] + "…"


def _log(error: BaseException, sight: Sight) -> None:
    logger.warning("mcp.unexpected_failure", asked=sight.asked, status=sight.status, exc_info=error)
