"""From commit to a browser's socket, and what idle sockets cost.

A real web process (daphne) serves many sockets that all follow one session. This process appends entries to it, one
at a time, and notes when each commit returned; its sockets note when the entry's frame arrived. Both ends are on
one machine and share one clock. The client's end is a bare reader of frames, so that it takes little of the
processor that the server needs.

Then a thousand sockets over a hundred sessions stand idle: the memory of the web process, and the connections it
holds to the database.
"""

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import psutil
from django.conf import settings
from django.db import connection, transaction

from bench import rows
from bench.report import FellShort, Report, percentile
from sessions_app import ids, keys, log, wakeups
from sessions_app.models import Project, Session

SOCKETS = (1, 50, 500)
TARGET_AT = 50
TARGET = 0.030
IDLE = 1000
IDLE_MEMORY = 200 * 2**20
_PAUSE = 0.05  # between two entries, so that each is measured by itself


def run(report: Report, *, entries: int) -> None:
    """Latency with 1, 50 and 500 sockets, `entries` entries each; then the idle ones."""
    report.say(f"{entries} entries each, one web process, one session")
    project = Project.objects.create(name=f"bench-{uuid.uuid4()}")
    try:
        _, key = keys.create_key(project=project.pk, name="bench")
        sessions = rows.sessions(project, 100, rows.config(project, {}))
        with _Web() as web:
            for count in SOCKETS:
                _latency(report, web, key, sessions[0], sockets=count, entries=entries)
        with _Web() as web:
            _idle(report, web, key, sessions)
    finally:
        wakeups.flush()
        rows.remove(project)


def _latency(report: Report, web: "_Web", key: str, session: Session, *, sockets: int, entries: int) -> None:
    taken = asyncio.run(_measure(web, key, session, sockets=sockets, entries=entries))
    p99 = percentile(taken, 0.99)
    report.row(
        f"commit to socket, {sockets} sockets",
        p50_ms=percentile(taken, 0.50) * 1000,
        p99_ms=p99 * 1000,
        frames=len(taken),
    )
    if sockets == TARGET_AT:
        report.expect(
            p99 < TARGET, f"p99 of {p99 * 1000:.1f} ms with {sockets} sockets, under {TARGET * 1000:g} wanted"
        )


async def _measure(web: "_Web", key: str, session: Session, *, sockets: int, entries: int) -> list[float]:
    path = f"/ws/v1/sessions/{ids.encode('ses', session.pk)}?after=now"
    open_sockets = await _connect(web, [path] * sockets, key)
    loop = asyncio.get_running_loop()
    committed: dict[str, float] = {}
    taken: list[float] = []
    warm_up = 5
    try:
        for number in range(entries + warm_up):
            cursor = await loop.run_in_executor(None, _append, session.pk)
            committed[cursor] = time.perf_counter()
            wakeups.ring_entries([session.pk])
            arrivals = [await one.arrival(cursor) for one in open_sockets]
            if number >= warm_up:
                taken += [at - committed[cursor] for at in arrivals]
            await asyncio.sleep(_PAUSE)
    finally:
        for one in open_sockets:
            one.close()
    return taken


def _append(session_id: uuid.UUID) -> str:
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=session_id)
        (placed,) = log.append(row, log.NewEntry(kind="note", data={"text": "x" * 400}))
        row.save(update_fields=["next_seq", "head_seq"])
    return str(placed.seq)


def _idle(report: Report, web: "_Web", key: str, sessions: Sequence[Session]) -> None:
    paths = [
        f"/ws/v1/sessions/{ids.encode('ses', sessions[number % len(sessions)].pk)}" for number in range(IDLE)
    ]

    async def stand(count: int, look: Callable[[], _Held]) -> _Held:
        open_sockets = await _connect(web, paths[:count], key)
        try:
            await asyncio.sleep(3)
            return await asyncio.to_thread(look)
        finally:
            for one in open_sockets:
                one.close()

    one, many = asyncio.run(stand(1, web.held)), asyncio.run(stand(IDLE, web.held))
    report.row(
        f"{IDLE} idle sockets",
        rss_mb=many.memory / 2**20,
        kb_each=(many.memory - one.memory) / 1024 / IDLE,
        listening=many.listening,
        in_use=many.busy,
        pooled=many.connections - many.listening,
        pooled_with_one=one.connections - one.listening,
    )
    report.expect(
        many.memory < IDLE_MEMORY, f"{many.memory / 2**20:.0f} MB with {IDLE} idle sockets, under 200 wanted"
    )
    report.expect(many.busy == 0, f"{many.busy} database connections in use by idle sockets")
    report.expect(many.listening == 1, f"{many.listening} connections listen, one wanted")


@dataclass(frozen=True, slots=True)
class _Held:
    """What the web process has: bytes of memory, and connections to the database."""

    memory: int
    connections: int
    listening: int
    busy: int


# --- the client's end ------------------------------------------------------------------------------------


async def _connect(web: "_Web", paths: Sequence[str], key: str) -> list["_Client"]:
    """All of them, caught up; a few at a time, as a server's backlog takes them."""
    made: list[_Client] = []
    for start in range(0, len(paths), 50):
        batch = [_Client(web.port, path, key) for path in paths[start : start + 50]]
        await asyncio.gather(*(one.open() for one in batch))
        made += batch
    return made


class _Client:
    """The least that reads a server's frames: unmasked text, whole in each frame."""

    def __init__(self, port: int, path: str, key: str) -> None:
        self._port = port
        self._path = path
        self._key = key
        self._arrived: dict[str, float] = {}
        self._news = asyncio.Event()

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        nonce = base64.b64encode(os.urandom(16)).decode()
        self._writer.write(
            f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {self._key}\r\n\r\n".encode()
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise FellShort(f"the socket was refused: {head[:100]!r}")
        while (frame := await self._next())["type"] != "caught_up":
            if frame["type"] == "error":
                raise FellShort(f"the socket was refused: {frame}")
        self._task = asyncio.create_task(self._read())

    async def arrival(self, cursor: str) -> float:
        """When the entry with this cursor came."""
        while cursor not in self._arrived:
            self._news.clear()
            async with asyncio.timeout(10):
                await self._news.wait()
        return self._arrived.pop(cursor)

    def close(self) -> None:
        self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        while True:
            payload = await self._payload()
            at = time.perf_counter()
            # The cursor stands at the end; parsing all of it would only heat the processor.
            if payload.startswith(b'{"type":"entry"'):
                cursor = payload.rsplit(b'"', 2)[1].decode()
                self._arrived[cursor] = at
                self._news.set()

    async def _next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self._payload())
        return found

    async def _payload(self) -> bytes:
        while True:
            first, length = await self._reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self._reader.readexactly(2))
            elif length == 127:
                length = int.from_bytes(await self._reader.readexactly(8))
            payload = await self._reader.readexactly(length)
            opcode = first & 15
            if opcode == 1:
                return payload
            if opcode == 9:
                self._writer.write(bytes([0x8A, 0x80 | len(payload)]) + bytes(4) + payload)
            elif opcode == 8:
                raise FellShort(f"the server closed a socket: {int.from_bytes(payload[:2])}")


# --- the server ------------------------------------------------------------------------------------------


class _Web:
    """A daphne of its own, on the configured database."""

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "daphne", "-v", "0", "-b", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen([*command, "config.asgi:application"], cwd=settings.BASE_DIR)
        limit = time.monotonic() + 60
        while True:
            if self._process.poll() is not None:
                raise FellShort("the web process did not start")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > limit:
                    raise FellShort("the web process did not start in 60 s") from None
                time.sleep(0.1)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def held(self) -> _Held:
        """In a thread of its own; its connections are found by the ports of the process's sockets."""
        process = psutil.Process(self._process.pid)
        ours = {one.laddr.port for one in process.net_connections(kind="tcp")}
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT client_port, application_name, state FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                found = [row for row in cursor.fetchall() if row[0] in ours]
        finally:
            connection.close()
        return _Held(
            memory=process.memory_info().rss,
            connections=len(found),
            listening=sum(name == "tenure listen" for _, name, _ in found),
            busy=sum(state != "idle" for _, _, state in found),
        )
