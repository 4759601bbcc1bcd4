"""What clients do: start sessions, say things, change configs, wait. Over HTTP, all sessions at once.

It runs on an event loop of its own in a thread, next to the proxy, so that the main thread is left to look at
the database and to be interrupted.
"""

import asyncio
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import httpx2

from bench.soak.plans import PROTOCOLS, Plan, steering_text
from bench.soak.proxy import BASE_PATHS, Proxy

type Json = dict[str, Any]

_TIMEOUT = 60.0
_WAIT = 20.0
_PAGE = 200
_ALLOWED = ("dev_lookup", "dev_append")


@dataclass(slots=True)
class Said:
    """What the API accepted for one session: ids of inputs; `done` once it was seen at rest behind them all."""

    plan: Plan
    session: str = ""
    queued: list[str] = field(default_factory=list)
    steering: list[str] = field(default_factory=list)
    turns: list[Json] = field(default_factory=list)
    done: bool = False


class Talk:
    """`with Talk(…)`: everything is being said in the background; `finished` tells when, `failure` if it broke."""

    def __init__(self, *, api: str, key: str, proxy: Proxy, plans: Sequence[Plan]) -> None:
        self._api, self._key, self.proxy = f"{api}/api/v1", key, proxy
        self.said = [Said(plan) for plan in plans]
        self.failed_sessions: list[str] = []
        """What the API lists as failed when everything is over."""
        self.failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="soak-talk")

    def __enter__(self) -> Self:
        self._task = self._loop.create_task(self._all())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.finished:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()

    @property
    def finished(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._task)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the main thread says it
            self.failure = error

    async def _all(self) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            self.proxy,
            httpx2.AsyncClient(
                base_url=self._api,
                headers={"Authorization": f"Bearer {self._key}"},
                timeout=_TIMEOUT,
                limits=limits,
                trust_env=False,
            ) as self._http,
        ):
            configs = {name: await self._config(name) for name in PROTOCOLS}
            async with asyncio.TaskGroup() as group:
                for said in self.said:
                    group.create_task(self._converse(said, configs))
            self.failed_sessions = [row["id"] for row in await self._list("/sessions", failed="true")]

    async def _config(self, protocol: str) -> str:
        model = {
            "provider": protocol,
            "name": "soak-model",
            "base_url": self.proxy.url + BASE_PATHS[protocol],
        }
        document = {
            "version": 1,
            "instructions": "You keep the books of a lighthouse.",
            "model": model,
            "tools": {name: {} for name in _ALLOWED},
            "permissions": [{"tool": name, "then": "allow"} for name in _ALLOWED],
        }
        return str((await self._call("POST", "/configs", document))["id"])

    async def _converse(self, said: Said, configs: dict[str, str]) -> None:
        plan = said.plan
        start = {"config": configs[plan.turns[0].protocol], "name": plan.name}
        said.session = (await self._call("POST", "/sessions", start))["id"]
        path = f"/sessions/{said.session}"
        protocol = plan.turns[0].protocol
        async with asyncio.TaskGroup() as steering:
            for turn in plan.turns:
                if turn.protocol != protocol:
                    protocol = turn.protocol
                    await self._call("POST", f"{path}/config", {"config": configs[protocol]})
                made = await self._call("POST", f"{path}/inputs", {"content": turn.text})
                said.queued.append(made["id"])
                if turn.steer_after is not None:
                    steering.create_task(self._steer(said, path, turn.steer_after))
                if not plan.at_once:
                    await self._at_rest(path)
        await self._at_rest(path)
        said.turns = await self._list(f"{path}/turns")
        said.done = True

    async def _steer(self, said: Said, path: str, after: float) -> None:
        await asyncio.sleep(after)
        body = {"content": steering_text(said.plan), "delivery": "steering"}
        said.steering.append((await self._call("POST", f"{path}/inputs", body))["id"])

    async def _at_rest(self, path: str) -> None:
        while True:
            found = await self._call("GET", f"{path}/wait?for=idle,waiting&timeout={_WAIT:g}")
            if found["status"] == "idle":
                return
            if found["status"] == "waiting":
                raise Refused(f"{path} waits for somebody: {found['waiting_on']}")

    async def _list(self, path: str, **query: str) -> list[Json]:
        """All pages of a list."""
        found: list[Json] = []
        while True:
            page = await self._call("GET", f"{path}?{urlencode({'limit': _PAGE, **query})}")
            found += page["data"]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        try:
            answer = await self._http.request(method, path, json=body, headers=headers)
        except httpx2.TransportError as error:
            raise Refused(f"{method} {path}: {type(error).__name__} {error}") from error
        if answer.is_error:
            raise Refused(f"{method} {path} answered {answer.status_code}: {answer.text[:300]}")
        found: Json = answer.json()
        return found


class Refused(Exception):
    """The API does not go along: it refused a call, could not be reached, or left a session waiting."""
