"""The proxy between the workers and the mock: records every request as it came, and puts faults into answers.

The mock's own journal holds bodies in one neutral form, so what the request rules are about can only be read
here. A request knows its session by the session's name, which is in everything that it says. The mock's answer
is taken whole before it goes on: a fault's place in it is then the same in every run.
"""

import asyncio
import contextlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import httpx2

from bench.local_server import LocalServer
from bench.soak.faults import INSTEAD, Answer, Fault, damage, fault_of, refusal
from bench.soak.plans import NAME

_PROTOCOLS = {
    "/v1/responses": "openai",
    "/v1/chat/completions": "openai-chat",
    "/v1/messages": "anthropic",
}
BASE_PATHS = {"openai": "/v1", "openai-chat": "/v1", "anthropic": ""}
_PIECE = 512
_KEPT_HEADERS = frozenset({"content-type", "authorization", "x-api-key", "anthropic-version"})
_UPSTREAM_LIMIT = 30.0


@dataclass(slots=True)
class Exchange:
    """One request and what came of it. `status` is the mock's, None where it was not asked.

    `fails` is as in `faults.Answer`.
    """

    session: str
    protocol: str
    body: Any
    fault: Fault | None
    status: int | None = None
    fails: bool | None = False


class Proxy(LocalServer):
    """Start it with `async with`, on the event loop that is to serve it; `url` is its base."""

    def __init__(self, *, target: str, seed: int, share: float) -> None:
        self._target, self._seed, self._share = target, seed, share
        self._numbers: Counter[str] = Counter()
        self.exchanges: list[Exchange] = []
        self.strangers: list[str] = []

    async def __aenter__(self) -> Self:
        self._mock = httpx2.AsyncClient(
            trust_env=False,
            timeout=_UPSTREAM_LIMIT,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        )
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        await self._mock.aclose()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A worker that was killed or gave a call up is gone in the middle of anything.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            broken = False
            while not broken:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                path = head[0].split(" ")[1]
                exchange = self._note(path, raw)
                answer = await self._answer(exchange, path, headers, raw)
                exchange.fails, broken = answer.fails, answer.broken
                await _send(writer, answer)

    def _note(self, path: str, raw: bytes) -> Exchange:
        protocol = _PROTOCOLS.get(path, "")
        found = re.search(NAME.encode(), raw)
        session = found[0].decode() if found else ""
        if not protocol or not session:
            self.strangers.append(f"{path} {raw[:200]!r}")
        self._numbers[session] += 1
        fault = fault_of(seed=self._seed, session=session, number=self._numbers[session], share=self._share)
        exchange = Exchange(session=session, protocol=protocol, body=json.loads(raw), fault=fault)
        self.exchanges.append(exchange)
        return exchange

    async def _answer(self, exchange: Exchange, path: str, headers: dict[str, str], raw: bytes) -> Answer:
        fault = exchange.fault
        if fault is not None and fault.kind in INSTEAD:
            return refusal(exchange.protocol, fault)
        kept = {name: value for name, value in headers.items() if name in _KEPT_HEADERS}
        try:
            given = await self._mock.post(self._target + path, content=raw, headers=kept)
        except httpx2.TransportError as error:
            exchange.status = 502
            return Answer(502, {"content-type": "text/plain"}, str(error).encode(), fails=True)
        exchange.status = given.status_code
        told = {"content-type": given.headers.get("content-type", "application/json")}
        if fault is None or given.status_code != httpx2.codes.OK:
            return Answer(given.status_code, told, given.content)
        return damage(exchange.protocol, fault, told, given.content)


async def _send(back: asyncio.StreamWriter, answer: Answer) -> None:
    lines = [f"HTTP/1.1 {answer.status} Soaked"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += ["transfer-encoding: chunked", "", ""]
    back.write("\r\n".join(lines).encode("latin-1"))
    for start in range(0, len(answer.body), _PIECE):
        piece = answer.body[start : start + _PIECE]
        back.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await back.drain()
    if not answer.broken:
        back.write(b"0\r\n\r\n")
        await back.drain()
