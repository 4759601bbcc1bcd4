"""HTTP calls that a config declares, against real servers (T3, T5; secrets)."""

import base64
import logging
from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import artifacts, ids, secrets
from sessions_app.agent_config.document import parse
from sessions_app.models import Project
from sessions_app.tool_port import Call, ToolContext, ToolOutcome
from tests.tools_app.outside import servers
from tests.tools_app.outside.conftest import committed, in_thread
from tests.tools_app.outside.servers import as_json, reply, serving
from tools_app import http_tools
from tools_app.models import ToolClass
from tools_app.offers import offer
from tools_app.results import ToolFailed
from tools_app.runtime import Runtime

KEY = "sk-very/secret+value=1"
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 50


def declared(method: str, url: str, **more: Any) -> dict[str, Any]:
    return {"class": "outside", "method": method, "url": url, **more}


async def blocks(
    own: dict[str, Any], arguments: dict[str, Any], context: ToolContext
) -> list[dict[str, Any]]:
    return (await http_tools.run(own, arguments, context)).blocks


async def failure(own: dict[str, Any], arguments: dict[str, Any], context: ToolContext) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        await http_tools.run(own, arguments, context)
    return failed.value


@pytest.fixture
def keyed(project: Project) -> ToolContext:
    """In a project with the secret `erp`."""
    committed(secrets.put_secret, project=project, name="erp", value=KEY)
    return ToolContext(project.id, ids.new_id(), 1, "tcl_token", {})


# --- the request -----------------------------------------------------------------------------------------


async def test_a_get_puts_arguments_into_the_url(nowhere: ToolContext) -> None:
    """T3, T5: named ones in their places, the others in the query; the call's id goes along."""
    async with serving(**{"/items/a%2F1": as_json({"price": "2.00"})}) as server:
        own = declared(
            "GET", server.url("/items/{sku}?v=2"), headers={"Accept": "application/json", "X-A": "b"}
        )
        found = await blocks(own, {"sku": "a/1", "currency": "EUR"}, nowhere)
    assert found == [{"type": "data", "value": {"price": "2.00"}}]
    (request,) = server.requests
    assert request.target == "/items/a%2F1?v=2&currency=EUR"
    assert (request.method, request.body) == ("GET", b"")
    assert request.headers["idempotency-key"] == "tcl_token"
    assert request.headers["accept"] == "application/json"
    assert request.headers["x-a"] == "b"
    assert "content-type" not in request.headers
    assert "authorization" not in request.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_a_post_puts_the_other_arguments_into_a_json_body(nowhere: ToolContext, method: str) -> None:
    """T3."""
    async with serving(**{"/orders/7": as_json({"ok": True}, status="201 Created")}) as server:
        own = declared(method, server.url("/orders/{order}"))
        found = await blocks(
            own, {"order": 7, "note": "grüße", "lines": [{"sku": "a"}], "gift": None}, nowhere
        )
    assert found == [{"type": "data", "value": {"ok": True}}]
    (request,) = server.requests
    assert request.headers["content-type"] == "application/json"
    assert request.json() == {"note": "grüße", "lines": [{"sku": "a"}], "gift": None}


async def test_a_delete_has_a_query_and_no_body(nowhere: ToolContext) -> None:
    """T3."""
    async with serving(**{"/x": reply(status="204 No Content")}) as server:
        found = await blocks(declared("DELETE", server.url("/x")), {"force": True}, nowhere)
    assert found == [{"type": "text", "text": "Done: the server answered 204 without a body."}]
    assert (server.requests[0].target, server.requests[0].body) == ("/x?force=true", b"")


async def test_a_head_tells_the_headers(nowhere: ToolContext) -> None:
    """T3."""
    answer = reply(
        status="200 OK", content_type="text/plain", content_length="1234", etag='"7"', set_cookie="a=b"
    )
    async with serving(**{"/x": answer}) as server:
        (block,) = await blocks(declared("HEAD", server.url("/x")), {}, nowhere)
    headers = {"content-type": "text/plain", "content-length": "1234", "etag": '"7"'}
    assert block["value"] == {"status": 200, "headers": headers}


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (None, b""),
        ({"type": "object", "properties": {"id": {"type": "string"}}}, b""),
        ({"type": "object", "properties": {"id": {}, "note": {"type": "string"}}}, b"{}"),
    ],
)
async def test_a_body_is_sent_where_the_tool_can_have_one(
    nowhere: ToolContext, schema: dict[str, Any] | None, body: bytes
) -> None:
    """T3: a server that expects JSON gets JSON, also where every argument is left out."""
    async with serving(**{"/1/close": reply("ok", content_type="text/plain")}) as server:
        own = declared("POST", server.url("/{id}/close"), **({"input_schema": schema} if schema else {}))
        await blocks(own, {"id": "1"}, nowhere)
    assert server.requests[0].body == body


async def test_an_argument_that_would_leave_its_place_sends_nothing(nowhere: ToolContext) -> None:
    """T3, W5."""
    async with serving(**{"/": reply("x")}) as server:
        failed = await failure(declared("DELETE", server.url("/items/{id}")), {"id": "../admin"}, nowhere)
    assert str(failed).startswith("Nothing was sent")
    assert server.connections == 0


# --- secrets ---------------------------------------------------------------------------------------------


async def test_secrets_go_into_headers(keyed: ToolContext) -> None:
    """As a bearer, and as headers of their own."""
    async with serving(**{"/": reply("ok", content_type="text/plain")}) as server:
        own = declared("GET", server.url("/"), auth={"bearer": "erp"}, headers={"X-Key": {"secret": "erp"}})
        await blocks(own, {}, keyed)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].headers["x-key"] == KEY


async def test_a_secret_is_never_told(keyed: ToolContext, caplog: pytest.LogCaptureFixture) -> None:
    """Not in results, failures or logs, whatever the server sends back."""
    caplog.set_level(logging.DEBUG)
    answers = {
        "/json": as_json({KEY: [f"Bearer {KEY}"], "url": "http://x/?k=sk-very%2Fsecret%2Bvalue%3D1"}),
        "/text": reply(f"you sent {KEY}", content_type="text/plain"),
        "/fails": reply(f"bad key {KEY}", status=f"401 {KEY}", content_type="text/plain"),
        "/moves": reply(status="302 Found", location=f"/?key={KEY}"),
        "/head": reply(etag=KEY),
    }
    said: list[Any] = []
    async with serving(**answers) as server:
        for path in answers:
            own = declared("HEAD" if path == "/head" else "GET", server.url(path), auth={"bearer": "erp"})
            try:
                said.append(await blocks(own, {}, keyed))
            except ToolFailed as failed:
                said += [str(failed), failed.more]
    assert len(server.requests) == 5
    assert "secret]" in repr(said)
    assert "very" not in repr(said)
    assert KEY not in caplog.text


async def test_a_missing_secret_says_what_to_do(keyed: ToolContext) -> None:
    """T3: nothing is sent without it."""
    async with serving(**{"/": reply("x")}) as server:
        failed = await failure(declared("GET", server.url("/"), auth={"bearer": "other"}), {}, keyed)
    assert "The secret 'other' is not stored in this project" in str(failed)
    assert "setsecret" in str(failed)
    assert server.connections == 0


async def test_a_secret_of_another_project_is_missing(keyed: ToolContext) -> None:
    """Tenancy."""
    elsewhere = ToolContext(ids.new_id(), keyed.session, 1, "tcl_token", {})
    async with serving(**{"/": reply("x")}) as server:
        failed = await failure(declared("GET", server.url("/"), auth={"bearer": "erp"}), {}, elsewhere)
    assert "is not stored" in str(failed)


@pytest.mark.parametrize("value", ["two\nlines", "grüße", "a\x01b"])
async def test_a_secret_that_is_no_header_is_not_sent(
    keyed: ToolContext, project: Project, value: str
) -> None:
    """And its value is not part of the message."""
    await in_thread(secrets.put_secret, project=project, name="odd", value=value)
    async with serving(**{"/": reply("x")}) as server:
        failed = await failure(declared("GET", server.url("/"), auth={"bearer": "odd"}), {}, keyed)
    assert "can't stand in a header" in str(failed)
    assert value not in str(failed)
    assert server.connections == 0


async def test_the_line_end_of_a_stored_file_is_no_part_of_a_secret(
    keyed: ToolContext, project: Project
) -> None:
    """`setsecret < file`."""
    await in_thread(secrets.put_secret, project=project, name="file", value="value\n")
    async with serving(**{"/": reply("ok", content_type="text/plain")}) as server:
        await blocks(declared("GET", server.url("/"), auth={"bearer": "file"}), {}, keyed)
    assert server.requests[0].headers["authorization"] == "Bearer value"


# --- the answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (as_json([1, None]), {"type": "data", "value": [1, None]}),
        (
            reply(b'{"a": NaN}', content_type="application/problem+json"),
            {"type": "data", "value": {"a": None}},
        ),
        (reply(b"{broken", content_type="application/json"), {"type": "text", "text": "{broken"}),
        (reply(b"[" * 5000, content_type="application/json"), {"type": "text", "text": "[" * 5000}),
        (
            reply(b"[" * 300 + b"]" * 300, content_type="application/json"),
            {"type": "text", "text": "[" * 300 + "]" * 300},
        ),
        (reply(b"9" * 5000, content_type="application/json"), {"type": "text", "text": "9" * 5000}),
        (reply("<b>hi</b>", content_type="text/html"), {"type": "text", "text": "<b>hi</b>"}),
        (
            reply(PNG, content_type="image/png"),
            {"type": "media", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
        ),
        (
            reply(b"%PDF-1.7", content_type="not a type"),
            {
                "type": "media",
                "media_type": "application/octet-stream",
                "data": base64.b64encode(b"%PDF-1.7").decode(),
            },
        ),
    ],
)
async def test_an_answer_becomes_what_it_is(
    nowhere: ToolContext, answer: bytes, expected: dict[str, Any]
) -> None:
    """T3, S8: JSON, text, files; what is only called JSON is text."""
    async with serving(**{"/": answer}) as server:
        assert await blocks(declared("GET", server.url("/")), {}, nowhere) == [expected]


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "409 Conflict", "429 Slow", "500 Oops"]
)
async def test_an_answer_that_is_no_success_is_a_failure_with_what_was_said(
    nowhere: ToolContext, status: str
) -> None:
    """T3: in bounds."""
    said = "The order is closed. " * 1000
    async with serving(
        **{"/": reply(said, status=status, content_type="application/problem+json")}
    ) as server:
        failed = await failure(declared("POST", server.url("/")), {"a": 1}, nowhere)
    assert str(failed) == f"The server answered {status}."
    assert failed.more.startswith("The order is closed.")
    assert len(failed.more) <= 4000


async def test_a_redirect_is_a_failure(nowhere: ToolContext) -> None:
    """W5: and for a POST the request is known to have arrived."""
    async with serving(**{"/": reply(status="307 Temporary", location="http://169.254.169.254/")}) as server:
        got = str(await failure(declared("GET", server.url("/")), {}, nowhere))
        posted = str(await failure(declared("POST", server.url("/")), {}, nowhere))
    assert got == "The server answered 307, a redirect to http://169.254.169.254/, which is not followed."
    assert posted == f"{got} The request itself reached the server."


async def test_a_large_answer_is_cut(nowhere: ToolContext, tenure: Callable[..., None]) -> None:
    """S8: text is told to be cut; half a file is of no use."""
    tenure(http_tool_max_bytes=2000)
    async with serving(
        **{"/": servers.endless, "/file": reply(PNG * 100, content_type="image/png")}
    ) as server:
        note, found = await blocks(declared("GET", server.url("/")), {}, nowhere)
        failed = str(await failure(declared("POST", server.url("/file")), {}, nowhere))
    assert "more than 2,000 bytes" in note["text"]
    assert len(found["text"]) == 2000
    assert "too large to be kept. The request itself took effect." in failed


async def test_a_refused_address_says_that_nothing_was_sent(
    nowhere: ToolContext, tenure: Callable[..., None]
) -> None:
    """W5."""
    tenure(allowed_networks=())
    async with serving(**{"/": reply("x")}) as server:
        failed = str(await failure(declared("POST", server.url("/")), {}, nowhere))
    assert failed == "Nothing was sent: 127.0.0.1 is not a public address."
    assert server.connections == 0


async def test_no_connection_says_that_nothing_was_sent(nowhere: ToolContext) -> None:
    """T4: a failure that is known to have had no effect is told as such."""
    async with serving() as server:
        own = declared("POST", server.url("/"))
    assert str(await failure(own, {}, nowhere)).startswith("Nothing was sent: no connection")


@pytest.mark.parametrize("answer", [servers.hang_up, servers.break_off, b"SSH-2.0\r\n"])
async def test_a_connection_that_breaks_after_sending_says_that_the_outcome_is_unknown(
    nowhere: ToolContext, answer: servers.Answer
) -> None:
    """T4: and only where the request could have had an effect."""
    async with serving(**{"/": answer}) as server:
        posted = str(await failure(declared("POST", server.url("/")), {"a": 1}, nowhere))
        got = str(await failure(declared("GET", server.url("/")), {}, nowhere))
    assert posted.endswith("The request may have reached the server; what came of it is unknown.")
    assert "may have reached" not in got
    assert got.startswith("There is no answer")


# --- in a config -----------------------------------------------------------------------------------------


def test_a_tool_without_a_schema_asks_for_what_its_url_names() -> None:
    """T3."""
    own = declared("GET", "https://e.example/{a}/{b}?x={a}")
    found = offer({"tools": {"look": own}}, "look")
    assert found is not None
    assert found.spec.description == "Send GET https://e.example/{a}/{b}?x={a}."
    assert found.spec.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 1}, "b": {"type": "string", "minLength": 1}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("own", "rerun_safe", "permission", "time_limit"),
    [
        (declared("GET", "https://e.example/"), False, "allow", 600.0),
        (declared("GET", "https://e.example/", rerun_safe=True, time_limit="5s"), True, "allow", 5.0),
        (declared("POST", "https://e.example/"), False, "ask", 600.0),
        (declared("HEAD", "https://e.example/"), False, "ask", 600.0),
        (declared("DELETE", "https://e.example/"), False, "ask", 600.0),
    ],
)
def test_only_what_is_declared_runs_again_and_only_a_get_is_allowed_by_itself(
    own: dict[str, Any], rerun_safe: bool, permission: str, time_limit: float
) -> None:
    """T4, T5, T7: what a crash does to a call, and the class defaults."""
    parse({"instructions": "x", "model": "scripted:x", "tools": {"t": own}})
    found = offer({"tools": {"t": own}}, "t")
    assert found is not None
    assert found.tool_class == ToolClass.OUTSIDE
    assert (found.rerun_safe, found.permission, found.time_limit) == (rerun_safe, permission, time_limit)


def test_reading_the_web_is_allowed_and_runs_again_after_a_crash() -> None:
    """T4, T7."""
    for name in ("web_fetch", "web_search"):
        found = offer({"tools": {name: {}}}, name)
        assert found is not None
        assert (found.tool_class, found.rerun_safe, found.permission) == (ToolClass.OUTSIDE, True, "allow")


def call(name: str, **arguments: Any) -> Call:
    return Call(
        id=ids.new_id(),
        session=ids.new_id(),
        turn=ids.new_id(),
        call_id="c",
        name=name,
        tool_class="outside",
        rerun_safe=False,
        arguments=arguments,
        position=0,
        state="running",
    )


async def run(runtime: Runtime, own: dict[str, Any], keyed: ToolContext) -> ToolOutcome:
    context = ToolContext(keyed.project, keyed.session, 1, "tcl_token", {"tools": {"lookup": own}})
    return await runtime.run_outside(call("lookup"), context)


async def test_the_engine_runs_it_and_keeps_its_files(runtime: Runtime, keyed: ToolContext) -> None:
    """T5, S8: a file becomes an artifact."""
    async with serving(**{"/": reply(PNG, content_type="image/png")}) as server:
        outcome = await run(runtime, declared("GET", server.url("/")), keyed)
    assert outcome.outcome == "succeeded"
    (media,) = outcome.content
    row = await in_thread(artifacts.get, project=keyed.project, artifact=ids.decode("art", media["artifact"]))
    assert (row.media_type, row.size) == ("image/png", len(PNG))


async def test_the_engine_keeps_what_a_failed_call_was_told(runtime: Runtime, keyed: ToolContext) -> None:
    """T3: status first, then what the server said, as one failed result."""
    async with serving(
        **{"/": reply("no stock", status="409 Conflict", content_type="text/plain")}
    ) as server:
        outcome = await run(runtime, declared("POST", server.url("/")), keyed)
    texts = [block["text"] for block in outcome.content]
    assert (outcome.outcome, texts) == ("failed", ["The server answered 409 Conflict.", "no stock"])


async def test_a_tool_that_the_config_lost_since_is_a_failed_result(
    runtime: Runtime, keyed: ToolContext
) -> None:
    """I7: an approval may come days later, under another config."""
    outcome = await runtime.run_outside(call("lookup"), keyed)
    assert "no longer available" in outcome.content[0]["text"]
