"""Secrets as headers, and OAuth tokens that are renewed under a lock."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import pytest

from bench.local_server import LocalServer
from sessions_app import secrets
from sessions_app.models import Project
from tests.tools_app.mcp.bad_server import BadServer, answer
from tests.tools_app.mcp.conftest import Offers, Run
from tools_app.keeping import in_thread
from tools_app.mcp import credentials
from tools_app.mcp.exchanges import goodbyes_said

pytestmark = pytest.mark.usefixtures("no_leaks", "stored_project")


class Issuer(LocalServer):
    """Gives out tokens; each refresh token works once."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.status = 200
        self.lifetime: int | None = 3600
        self.good = "refresh-0"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(line.partition(":")[2] for line in head if line.startswith("content-length"))
        form = parse_qs((await reader.readexactly(int(length))).decode())
        self.asked.append(form)
        number = len(self.asked)
        body: dict[str, Any] = {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}"}
        if self.lifetime is not None:
            body["expires_in"] = self.lifetime
        status = self.status
        if form["refresh_token"] != [self.good]:
            status = 400
        if status == 200:
            self.good = f"refresh-{number}"
        else:
            body = {"error": "invalid_grant"}
        writer.write(answer(status, json.dumps(body).encode(), content_type="application/json"))
        await writer.drain()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_refused() -> Iterator[None]:
    credentials._refused.clear()
    yield
    credentials._refused.clear()


type Store = Callable[..., Any]


@pytest.fixture
def store(stored_project: UUID) -> Store:
    """Store a secret of the project."""

    async def put(name: str, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        project = Project(pk=stored_project)
        await asyncio.to_thread(in_thread, lambda: secrets.put_secret(project=project, name=name, value=text))

    return put


@pytest.fixture
def stored(stored_project: UUID) -> Store:
    """A secret's value as JSON."""

    async def get(name: str) -> Any:
        return json.loads(await asyncio.to_thread(in_thread, secrets.reveal, stored_project, name))

    return get


def token(issuer: Issuer, **changes: Any) -> dict[str, Any]:
    return {
        "access_token": "access-0",
        "refresh_token": "refresh-0",
        "token_endpoint": f"{issuer.url}/token",
        "client_id": "tenure",
        "expires_at": int(time.time()) + 3600,
    } | changes


def authorizations(bad: BadServer) -> set[str | None]:
    return {received.headers.get("authorization") for received in bad.received}


async def test_a_bearer_secret_and_secret_headers_go_with_every_request(
    bad: BadServer, run: Run, store: Store
) -> None:
    await store("token", "t0p\n")
    await store("key", "k3y")
    headers = {"X-Key": {"secret": "key"}, "X-Team": "blue", "authorization": "mine"}
    outcome = await run(bad.url, "deploy", auth={"bearer": "token"}, headers=headers)
    assert outcome.outcome == "succeeded"
    await goodbyes_said()
    assert authorizations(bad) == {"Bearer t0p"}
    assert {(received.headers["x-key"], received.headers["x-team"]) for received in bad.received} == {
        ("k3y", "blue")
    }


async def test_a_replaced_secret_counts_from_the_next_call_on(bad: BadServer, run: Run, store: Store) -> None:
    await store("token", "old")
    await run(bad.url, "deploy", auth={"bearer": "token"})
    await goodbyes_said()
    bad.received.clear()
    await store("token", "new")
    await run(bad.url, "deploy", auth={"bearer": "token"})
    assert authorizations(bad) == {"Bearer new"}


async def test_a_secret_that_is_missing_or_no_header_is_told_and_nothing_is_sent(
    bad: BadServer, offers_of: Offers, run: Run, store: Store
) -> None:
    offers, missing = await offers_of(bad.url, auth={"bearer": "token"})
    assert offers == {}
    assert missing["mcp__peer__"] == "the MCP server peer needs the secret token, which does not exist"
    await store("odd", "a\nb")
    outcome = await run(bad.url, "deploy", headers={"X-Key": {"secret": "odd"}})
    assert "needs the secret odd, which holds characters that can't be sent" in outcome.content[0]["text"]
    assert bad.received == []


@pytest.mark.parametrize("value", ["plain text", "[]", '{"access_token": 7}'])
async def test_a_secret_that_is_no_token_is_told(bad: BadServer, run: Run, store: Store, value: str) -> None:
    await store("token", value)
    outcome = await run(bad.url, "deploy", auth={"oauth": "token"})
    assert "is no JSON object with an access_token" in outcome.content[0]["text"]
    assert bad.received == []


async def test_a_token_that_is_good_is_sent_as_it_is(
    bad: BadServer, run: Run, store: Store, issuer: Issuer
) -> None:
    await store("token", token(issuer))
    assert (await run(bad.url, "deploy", auth={"oauth": "token"})).outcome == "succeeded"
    assert authorizations(bad) == {"Bearer access-0"}
    assert issuer.asked == []


async def test_a_token_that_is_about_to_expire_is_renewed_and_stored(
    bad: BadServer, run: Run, store: Store, stored: Store, issuer: Issuer
) -> None:
    old = token(issuer, expires_at=int(time.time()) + 30, client_secret="s", scope="read", note="kept")
    await store("token", old)
    assert (await run(bad.url, "deploy", auth={"oauth": "token"})).outcome == "succeeded"
    assert authorizations(bad) == {"Bearer access-1"}
    assert issuer.asked == [
        {
            "grant_type": ["refresh_token"],
            "refresh_token": ["refresh-0"],
            "scope": ["read"],
            "client_id": ["tenure"],
            "client_secret": ["s"],
        }
    ]
    new = await stored("token")
    assert new == old | {
        "access_token": "access-1",
        "refresh_token": "refresh-1",
        "expires_at": new["expires_at"],
    }
    assert new["expires_at"] > time.time() + 3000


async def test_many_who_need_a_new_token_at_once_renew_it_once(
    bad: BadServer, run: Run, store: Store, issuer: Issuer
) -> None:
    """A second use of a refresh token would lose it: the issuer here takes each of them once."""
    await store("token", token(issuer, expires_at=0))
    outcomes = await asyncio.gather(*(run(bad.url, "deploy", auth={"oauth": "token"}) for _ in range(6)))
    assert {outcome.outcome for outcome in outcomes} == {"succeeded"}
    assert len(issuer.asked) == 1


async def test_a_token_that_the_server_refused_is_renewed_for_the_next_call(
    bad: BadServer, offers_of: Offers, run: Run, store: Store, issuer: Issuer
) -> None:
    """The refused call has failed and is not sent again by itself."""
    await store("token", token(issuer))
    await offers_of(bad.url, auth={"oauth": "token"})
    bad.on["tools/call"] = 401
    outcome = await run(bad.url, "deploy", auth={"oauth": "token"})
    assert (outcome.outcome, bad.calls, issuer.asked) == ("failed", 1, [])
    del bad.on["tools/call"]
    assert (await run(bad.url, "deploy", auth={"oauth": "token"})).outcome == "succeeded"
    assert bad.asked("tools/call")[-1].headers["authorization"] == "Bearer access-1"


async def test_a_token_that_its_list_was_refused_with_is_renewed_for_the_next_attempt(
    bad: BadServer, offers_of: Offers, store: Store, issuer: Issuer, tenure: Any
) -> None:
    tenure(mcp_retry_interval=0.0)
    await store("token", token(issuer))
    bad.on["initialize"] = 401
    assert (await offers_of(bad.url, auth={"oauth": "token"}))[0] == {}
    del bad.on["initialize"]
    offers, _ = await offers_of(bad.url, auth={"oauth": "token"})
    assert list(offers) == ["mcp__peer__deploy"]
    assert "Bearer access-1" in authorizations(bad)


async def test_a_token_that_can_not_be_renewed_is_used_as_it_is(
    bad: BadServer, run: Run, store: Store
) -> None:
    await store("token", {"access_token": "a", "expires_at": 1})
    await run(bad.url, "deploy", auth={"oauth": "token"})
    assert authorizations(bad) == {"Bearer a"}


async def test_an_issuer_that_refuses_is_told_and_the_secret_stays(
    bad: BadServer, run: Run, store: Store, stored: Store, issuer: Issuer
) -> None:
    old = token(issuer, expires_at=0, refresh_token="spent")
    await store("token", old)
    outcome = await run(bad.url, "deploy", auth={"oauth": "token"})
    assert outcome.outcome == "failed"
    assert (
        "needs the token in the secret token, which could not be renewed: the issuer answers with status 400 "
        "invalid_grant"
    ) in outcome.content[0]["text"]
    assert await stored("token") == old
    assert bad.received == []


async def test_an_issuer_at_a_private_address_is_not_asked(
    bad: BadServer, run: Run, store: Store, issuer: Issuer, tenure: Any
) -> None:
    await store("token", token(issuer, expires_at=0))
    tenure(allowed_networks=())
    outcome = await run(bad.url, "deploy", auth={"oauth": "token"})
    assert "could not be renewed: 127.0.0.1 is not a public address" in outcome.content[0]["text"]
    assert issuer.asked == []
