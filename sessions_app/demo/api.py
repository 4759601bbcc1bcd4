"""The calls of the REST API that the demo makes, over HTTP and with a key like any other client."""

import uuid
from types import TracebackType
from typing import Any, Self

import httpx2

type Json = dict[str, Any]

TIMEOUT = 30.0
PAGE = 200


class ApiFailed(Exception):
    """The API refused a call or could not be reached; the message quotes its answer."""


class Api:
    """`base` is the address of the web process. Every method returns the decoded body."""

    def __init__(self, base: str, key: str) -> None:
        self.base = f"{base}/api/v1"
        # Without the environment's proxies: the server is on this machine.
        self._http = httpx2.Client(
            base_url=self.base, headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def me(self) -> Json:
        return self._call("GET", "/me")

    def create_config(self, document: Json) -> Json:
        return self._call("POST", "/configs", json=document)

    def create_profile(self, *, name: str, config: str) -> Json:
        return self._call("POST", "/profiles", json={"name": name, "config": config})

    def delete_profile(self, profile: str) -> None:
        self._call("DELETE", f"/profiles/{profile}")

    def revoke_key(self, key: str) -> None:
        self._call("DELETE", f"/api-keys/{key}")

    def has_secret(self, name: str) -> bool:
        answer = self._send("GET", f"/secrets/{name}")
        return answer.status_code == httpx2.codes.OK

    def start_session(self, *, profile: str, name: str, text: str) -> Json:
        body = {"profile": profile, "name": name, "input": {"content": text}}
        return self._call("POST", "/sessions", json=body)

    def say(self, session: str, text: str) -> Json:
        return self._call("POST", f"/sessions/{session}/inputs", json={"content": text})

    def cancel(self, session: str) -> None:
        self._call("POST", f"/sessions/{session}/cancel", json={})

    def session(self, session: str) -> Json:
        return self._call("GET", f"/sessions/{session}")

    def wait(self, session: str, *, statuses: str, timeout: float) -> Json:
        """The session as soon as its status is one of these, or as it is after `timeout` seconds."""
        return self._call(
            "GET", f"/sessions/{session}/wait", params={"for": statuses, "timeout": f"{timeout:g}"}
        )

    def entries(self, session: str, *, after: int) -> list[Json]:
        """All entries behind `after`, page by page."""
        found: list[Json] = []
        while True:
            last = found[-1]["seq"] if found else after
            page = self._call("GET", f"/sessions/{session}/entries", params={"after": last, "limit": PAGE})
            found += page["data"]
            if not page["has_more"]:
                return found

    def open_approvals(self, session: str) -> list[Json]:
        return self._open("/approvals", session=session, state="open")

    def open_questions(self, session: str) -> list[Json]:
        return self._open("/questions", session=session, state="open")

    def waiting_calls(self, session: str) -> list[Json]:
        """Calls that wait for the team's backend."""
        return self._open("/tool-calls", session=session, state="waiting", **{"class": "custom"})

    def decide(self, approval: str, decision: str) -> Json:
        return self._call("POST", f"/approvals/{approval}/decision", json={"decision": decision})

    def answer(self, question: str, answers: list[Json]) -> Json:
        return self._call("POST", f"/questions/{question}/answer", json={"answers": answers})

    def give_result(self, call: str, content: str) -> Json:
        body = {"outcome": "succeeded", "content": content}
        return self._call("POST", f"/tool-calls/{call}/result", json=body)

    def _open(self, path: str, **wanted: str) -> list[Json]:
        found: list[Json] = self._call("GET", path, params=wanted)["data"]
        return found

    def _call(self, method: str, path: str, **request: Any) -> Json:
        answer = self._send(method, path, **request)
        if answer.is_error:
            raise ApiFailed(f"{method} {path} answered {answer.status_code}: {answer.text[:500]}")
        body: Json = answer.json() if answer.content else {}
        return body

    def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        if method == "POST":
            request["headers"] = {"Idempotency-Key": uuid.uuid4().hex}
        try:
            return self._http.request(method, path, **request)
        except httpx2.TransportError as error:
            raise ApiFailed(f"{method} {path}: {error}") from error
