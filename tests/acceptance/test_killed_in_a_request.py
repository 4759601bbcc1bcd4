"""A worker that dies while a provider answers, on a socket with the protocol of OpenAI-compatible servers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sessions_app.models import Lease, ModelCall
from sessions_app.providers.request_rules import check_request
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.processes.workers import Workers
from tests.sessions_app.providers.streams import chat
from tests.staging import eventually

pytestmark = pytest.mark.processes


class Model(ThreadingHTTPServer):
    """Begins its first answer and never ends it; answers every later request whole."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def end(self) -> None:
        self.over.set()
        self.shutdown()
        self._thread.join(5)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        first = len(self.server.bodies) == 1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        whole = chat({"role": "assistant", "content": "Half of it"}, {"content": " and the rest."})
        if first:
            self.wfile.write(whole.partition("\n\n")[0].encode() + b"\n\n")
            self.wfile.flush()
            self.server.over.wait()
        else:
            self.wfile.write(whole.encode())

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    yield made
    made.end()


@pytest.mark.timeout(90)
def test_a_provider_request_that_its_worker_does_not_survive_is_made_once_more(
    workers: Workers, model: Model
) -> None:
    """A23, R1, L6: SIGKILL in the middle of the stream; the sweeper sees it, a second worker asks again."""
    local = {"allowed_networks": ["127.0.0.0/8"]}
    session = agents.start(
        script=None, tools={}, model={"provider": "openai-chat", "name": "some-model", "base_url": model.url}
    )
    first = workers.start(**local)
    eventually(lambda: len(model.bodies) == 1, within=40)
    one = agents.wait_until_asking(session)
    first.kill()
    sweeper = workers.start("sweeper")
    eventually(lambda: not Lease.objects.exists(), within=10)
    one.refresh_from_db()
    assert (one.state, one.may_be_billed, one.attempt) == ("interrupted", True, 1)
    row = agents.row(session)
    assert (row.status, row.retry_at) == ("queued", None)
    assert row.wake_at is not None

    second = workers.start(**local)
    agents.wait_until_at_rest(session, second, sweeper, within=40)
    two = ModelCall.objects.get(session_id=session, state="succeeded")
    assert (two.attempt, two.config_id, two.turn_id) == (2, one.config_id, one.turn_id)
    # The same place in the conversation: between them stands only the entry that tells of the resume.
    between = [entry.kind for entry in agents.log_of(session) if one.covers_seq < entry.seq <= two.covers_seq]
    assert between == ["session_resumed"]
    assert agents.said(session) == ["Half of it and the rest."]
    assert len(model.bodies) == 2
    assert model.bodies[0]["messages"] == model.bodies[1]["messages"]
    assert [check_request("openai-chat", body) for body in model.bodies] == [[], []]
    assert check(session, workers.folder / "effects", resumed=(2,)) == []
