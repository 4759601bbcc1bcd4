"""The sockets: a feed on its way out, and what the client says on its way in.

One socket is two tasks: `_feed` sends what its follower has, as fast as the client takes it, and `run` answers
frames, one at a time. Before it is accepted only one thing is decided: a page of another site that would use
somebody's cookie is refused (403, C139). Everything else is accepted and then told as an `error` frame and a close
code, because a browser can read those.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.urls import URLPattern, path

from sessions_app.api import problems
from sessions_app.api.parsers import Malformed, loads
from sessions_app.api.stream_access import Admission, ForeignOrigin, admit, request_of
from sessions_app.api.stream_requests import project_query, project_source, session_query, session_source
from sessions_app.errors import Invalid, TenureError
from sessions_app.feed import frames, standing
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.follower import CaughtUp, Entries, Event, Ping, Previewed
from sessions_app.feed.gate import SCOPE_KEY, Gate, SlowConsumer
from sessions_app.feed.hub import hub
from sessions_app.feed.reading import dumps
from sessions_app.feed.shutdown import before_shutdown
from sessions_app.feed.sources import SessionSource, Source
from sessions_app.feed.threads import in_answering_thread, in_thread

logger = structlog.get_logger(__name__)

FAILED = 1011
RESTART = 1012
TRY_AGAIN = 1013
SLOW = 4408
_FIRST_OWN_CODE = 4000

_PAUSE_EVERY = 20
"""Frames; then other sockets get their turn."""

_LAST_WORDS = 0.1
"""Seconds that a stopping server is given to carry the reason to its clients."""

_open: set["_Socket"] = set()

type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a handshake asked for and may have."""

    admission: Admission
    source: Source
    cursor: str
    only: Filter = EVERYTHING
    deltas: bool = False


class _Socket:
    """One connection, from its handshake to its end."""

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self._gate: Gate = scope.get(SCOPE_KEY) or Gate()
        self._cursor: str | None = None

    async def run(self) -> None:
        await self._receive()  # the handshake
        try:
            opened = await in_thread(self._admitted)
        except ForeignOrigin:
            await self._send({"type": "websocket.close"})
            return
        except Exception as error:
            problem = problems.explain(error)
            if problem is None:
                raise
            await self._send({"type": "websocket.accept"})
            await self._refuse(problem)
            return
        await self._send({"type": "websocket.accept"})
        self._gate.attach()
        _open.add(self)
        before_shutdown(_say_goodbye)
        feed = asyncio.create_task(self._feed(opened))
        source = opened.source
        session = source.session if isinstance(source, SessionSource) else None
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                self._gate.stop_reading()
                await self._answer(opened.admission, session, message)
                self._gate.read_on()
        except Exception:
            await self.close(FAILED)  # nobody would read what comes next, and the client could not tell
            raise
        finally:
            _open.discard(self)
            feed.cancel()
            with suppress(asyncio.CancelledError):
                await feed
            self._gate.detach()

    async def close(self, code: int) -> None:
        if code >= _FIRST_OWN_CODE or not self._gate.close(code):
            await self._send({"type": "websocket.close", "code": code})

    def _admitted(self) -> _Opened:
        """In a thread."""
        request = request_of(self.scope)
        admission = admit(request, is_socket=True)
        session = self.scope["url_route"]["kwargs"].get("session")
        if session is not None:
            one = session_query(request.GET)
            return _Opened(admission, session_source(admission, session), one.after, deltas=one.deltas)
        all_of_it = project_query(request.GET)
        return _Opened(admission, project_source(admission), all_of_it.after, only=all_of_it.filter())

    # --- out -----------------------------------------------------------------------------------------

    async def _feed(self, opened: _Opened) -> None:
        admission = opened.admission
        try:
            following = hub().follow(
                opened.source,
                access=admission.access,
                cursor=opened.cursor,
                only=opened.only,
                login=admission.login,
                deltas=opened.deltas,
            )
            async with following as follower, aclosing(follower.events()) as events:
                async for event in events:
                    await self._tell(event)
        except SlowConsumer as slow:
            logger.info("feed.slow_consumer", cursor=self._cursor)
            await self._say(_error_frame(slow, cursor=self._cursor))
            await self.close(SLOW)
        except Exception as error:
            problem = problems.explain(error)
            if problem is None:
                await self.close(FAILED)
                raise
            await self._refuse(problem)

    async def _tell(self, event: Event) -> None:
        match event:
            case Entries(entries):
                for number, frame in enumerate(entries):
                    await self._gate.passable()
                    await self._send({"type": "websocket.send", "text": frame.socket})
                    self._cursor = frame.cursor
                    if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                        await asyncio.sleep(0)
            case CaughtUp(cursor):
                await self._gate.passable()
                self._cursor = cursor
                await self._say({"type": "caught_up", "cursor": cursor})
            case Previewed(deltas):
                for text in deltas:
                    if self._gate.is_open:  # what is left out is missed by its number, and by nobody
                        await self._send({"type": "websocket.send", "text": text})
            case Ping():
                await self._gate.passable()
                await self._say({"type": "ping"})

    async def _say(self, frame: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "text": dumps(frame)})

    async def _refuse(self, problem: problems.Problem) -> None:
        """Say why, and close; codes from 4000 on are the HTTP statuses."""
        await self._say(_problem_frame(problem))
        code = TRY_AGAIN if problem.status >= 500 else _FIRST_OWN_CODE + problem.status
        await self.close(code)

    # --- in ------------------------------------------------------------------------------------------

    async def _answer(self, admission: Admission, session: UUID | None, message: dict[str, Any]) -> None:
        """Acknowledge a frame, or say what is wrong with it; the socket stays open either way."""

        def act(handler: frames.Handler) -> Mapping[str, Any]:
            # The feed's own look comes only every few seconds, and a REST call asks each time.
            caller = standing.Subject(access=admission.access, login=admission.login, session=session)
            for refusal in standing.refusals([caller]):
                if refusal is not None:
                    raise refusal
            return handler(admission.access, session, frame)

        reference: dict[str, Any] = {}
        try:
            frame = _parsed(message.get("text"))
            if "ref" in frame:
                reference = {"ref": frame.pop("ref")}
            kind = frame.pop("type", None)
            if kind == "pong":
                return
            handler = _handler_of(kind)
            said = await in_answering_thread(lambda: act(handler))
        except Exception as error:
            problem = problems.explain(error)
            if problem is None:
                logger.exception("feed.frame_failed")
                problem = problems.of_status(500)
            await self._say({**_problem_frame(problem), **reference})
            return
        await self._say({"type": "ack", **reference, **said})


async def _say_goodbye() -> None:
    """The server stops: tell every client, so that it comes back with its cursor."""
    for socket in list(_open):
        await socket.close(RESTART)
    await asyncio.sleep(_LAST_WORDS)


def _parsed(text: str | None) -> dict[str, Any]:
    """Read as strictly as a body, and cleaned like one (S8); what is repeated in an answer can be sent then."""
    try:
        frame = loads((text or "").encode("utf-8", "surrogatepass"))
    except Malformed as error:
        raise Invalid(f"a frame is a JSON object, as text: {error.detail}", errors=error.errors) from None
    if not isinstance(frame, dict):
        raise Invalid("a frame is a JSON object, as text")
    return frame


def _handler_of(kind: Any) -> frames.Handler:
    handler = frames.handler_of(kind) if isinstance(kind, str) else None
    if handler is None:
        raise Invalid(f"a frame's type is one of: pong, {', '.join(frames.kinds())}")
    return handler


def _error_frame(error: TenureError, **more: Any) -> dict[str, Any]:
    return {"type": "error", "code": error.code, "status": error.status, "detail": error.detail, **more}


def _problem_frame(problem: problems.Problem) -> dict[str, Any]:
    document = problem.document(None)
    kept = {name: value for name, value in document.items() if name not in {"type", "title", "request_id"}}
    return {"type": "error", **kept}


async def serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """`/ws/v1/sessions/{id}` and `/ws/v1/project`."""
    await _Socket(scope, receive, send).run()


async def nothing_here(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Closed before it opens, which is a 403; without this an upgrade at a wrong path is a crash of ours."""
    del scope
    await receive()
    await send({"type": "websocket.close"})


def routes(more: Sequence[URLPattern] = ()) -> list[URLPattern]:
    """Sockets by path; apps above add theirs."""
    return [
        path("ws/v1/sessions/<str:session>", serve),  # type: ignore[arg-type]
        path("ws/v1/project", serve),  # type: ignore[arg-type]
        *more,
        path("<path:anything>", nothing_here),  # type: ignore[arg-type]
        path("", nothing_here),  # type: ignore[arg-type]
    ]
