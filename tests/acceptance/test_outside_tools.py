"""HTTP tools and `web_fetch` in real workers: what a kill in the middle does to each."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sessions_app import configs, control, leases
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import EndReason
from tests.acceptance import agents
from tests.crash.invariants import check
from tests.people import answer_everything
from tests.processes.workers import Workers
from tests.staging import eventually
from tools_app.models import ToolCall

pytestmark = pytest.mark.processes

OPEN = {"allowed_networks": ["127.0.0.1"]}


class Shop:
    """Keeps its visitors waiting until it opens; counts what was asked, with the keys."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked: list[tuple[str, str, str]] = []
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                self.rfile.read(length)
                shop.asked.append((self.command, self.path, self.headers.get("idempotency-key", "")))
                shop.open.wait(30)
                body = b"In stock: 3"
                try:
                    self.send_response(200)
                    self.send_header("content-type", "text/plain")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except ConnectionError:
                    self.close_connection = True

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def times(self, method: str, path: str) -> int:
        return len([1 for seen in self.asked if seen[:2] == (method, path)])

    def keys(self, method: str, path: str) -> set[str]:
        return {key for *seen, key in self.asked if seen == [method, path]}


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.open.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_a_kill_repeats_lookups_under_their_key_and_no_order(workers: Workers, shop: Shop) -> None:
    """T4, T5, A75: a declared lookup and a fetched page run again, the same call to the server; a POST does not."""
    outside = {"class": "outside"}
    session = agents.start(
        {
            "tool_calls": [
                agents.call("stock", sku="a1"),
                agents.call("web_fetch", url=f"{shop.url}/page"),
                agents.call("order", sku="a1"),
            ]
        },
        {"text": "Done."},
        tools={
            "stock": outside | {"method": "GET", "url": f"{shop.url}/stock/{{sku}}", "rerun_safe": True},
            "order": outside | {"method": "POST", "url": f"{shop.url}/orders/{{sku}}"},
            "web_fetch": {},
        },
        permissions=[{"tool": "order", "then": "allow"}],
    )
    first = workers.start(**OPEN)
    eventually(lambda: len(shop.asked) == 3, within=15)
    first.kill()
    assert leases.end_worker(owner=first.owner, reason=EndReason.CRASH) == 1
    shop.open.set()
    second = workers.start(**OPEN)
    agents.wait_until_at_rest(session, second)
    assert sorted(agents.outcomes(session)) == [
        ("order", "interrupted"),
        ("stock", "succeeded"),
        ("web_fetch", "succeeded"),
    ]
    assert shop.times("GET", "/stock/a1") == shop.times("GET", "/page") == 2
    assert shop.times("POST", "/orders/a1") == 1
    assert len(shop.keys("GET", "/stock/a1")) == 1
    page = ToolCall.objects.get(session_id=session, name="web_fetch").content
    assert page == [{"type": "text", "text": f"URL: {shop.url}/page\n\nIn stock: 3"}]
    assert check(session, workers.folder / "effects", resumed=(2,)) == []


def test_what_was_allowed_runs_as_it_was_when_it_was_asked(workers: Workers, shop: Shop) -> None:
    """T7, I7, C99: the config has another address for the tool by then; the allowed call goes to the one it had."""
    order = {"class": "outside", "method": "POST"}
    session = agents.start(
        {"tool_calls": [agents.call("order", sku="a1")]},
        {"tool_calls": [agents.call("order", sku="a1")]},
        {"text": "Done."},
        tools={"order": order | {"url": f"{shop.url}/orders/{{sku}}"}},
    )
    shop.open.set()
    worker = workers.start(**OPEN)
    agents.wait_until_at_rest(session, worker)
    changed = agents.row(session).config.document | {
        "tools": {"order": order | {"url": f"{shop.url}/changed/{{sku}}"}}
    }
    config = configs.create_config(project=agents.row(session).project_id, document=changed).row
    control.change_config(session=session, config=config.pk, actor=SYSTEM)
    answer_everything([session])
    eventually(lambda: shop.times("POST", "/orders/a1") == 1, within=15)
    eventually(lambda: answer_everything([session]), within=15)
    agents.wait_until_at_rest(session, worker)
    assert [path for _, path, _ in shop.asked] == ["/orders/a1", "/changed/a1"]
