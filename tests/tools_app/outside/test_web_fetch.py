"""`web_fetch`, over real sockets: what comes back, and what a stranger's server can't do (W5, T5, S8)."""

import asyncio
import base64
import gzip
from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import network
from sessions_app.tool_port import ToolContext
from tests.tools_app.outside import servers
from tests.tools_app.outside.servers import reply, serving
from tools_app.outside import readable as reading
from tools_app.outside.web_fetch import web_fetch
from tools_app.results import ToolFailed

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 50
STORY = servers.page(
    "Otters &amp; rivers",
    "Otters hold hands while they sleep, so that the river does not part them. " * 5,
    "A second paragraph says where they live, and what they eat when nobody looks. " * 5,
)


async def fetched(url: str, context: ToolContext) -> list[dict[str, Any]]:
    return (await web_fetch({"url": url}, context)).blocks


async def text(url: str, context: ToolContext) -> str:
    (block,) = await fetched(url, context)
    return str(block["text"])


async def failure(url: str, context: ToolContext) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        await web_fetch({"url": url}, context)
    return failed.value


async def test_a_page_is_read_as_text(nowhere: ToolContext) -> None:
    """An article without what stands around it, under its address and title."""
    html = STORY.replace("<article>", "<nav><a href='/'>Home</a></nav><script>evil()</script><article>")
    async with serving(**{"/story": reply(html, content_type="text/html; charset=utf-8")}) as server:
        found = await text(server.url("/story#part"), nowhere)
    head, _, body = found.partition("\n\n")
    assert head == f"URL: {server.url('/story')}\nTitle: Otters & rivers"
    assert body.startswith("Otters hold hands")
    assert "where they live" in body
    assert "evil" not in body
    (request,) = server.requests
    assert request.method == "GET"
    assert request.headers["user-agent"].startswith("Tenure/")
    assert request.headers["accept-encoding"] == "gzip, deflate"
    assert "cookie" not in request.headers


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain; charset=latin-1", "Grüße".encode("latin-1"), "Grüße"),
        ("text/markdown", b"# Title\n\n- one", "# Title\n\n- one"),
        ("application/json", b'{"a": [1, 2]}', '{"a": [1, 2]}'),
        ("application/atom+xml", b"<feed>x</feed>", "<feed>x</feed>"),
        ("", b"just words", "just words"),
    ],
)
async def test_text_comes_as_it_is(
    nowhere: ToolContext, content_type: str, body: bytes, expected: str
) -> None:
    """Plain text, Markdown, JSON, feeds."""
    headers = {"content_type": content_type} if content_type else {}
    async with serving(**{"/": reply(body, **headers)}) as server:
        assert await text(server.url("/"), nowhere) == f"URL: {server.url('/')}\n\n{expected}"


async def test_an_image_comes_as_media_of_its_true_type(nowhere: ToolContext) -> None:
    """A provider would refuse a PNG that is called a JPEG, and the whole request with it."""
    async with serving(**{"/": reply(PNG, content_type="image/jpeg")}) as server:
        _, media = await fetched(server.url("/"), nowhere)
    assert media == {"type": "media", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}


async def test_what_is_called_an_image_and_is_none_is_refused(nowhere: ToolContext) -> None:
    """The same."""
    async with serving(**{"/": reply(b"<html>not found</html>", content_type="image/png")}) as server:
        assert "is none" in str(await failure(server.url("/"), nowhere))


async def test_a_file_is_refused_before_it_is_read(nowhere: ToolContext) -> None:
    """Its type and size are told; not a byte of the body is waited for."""

    async def announced(_request: servers.Request, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/pdf\r\ncontent-length: 4000000000\r\n\r\n"
        )
        await asyncio.Event().wait()

    async with serving(**{"/": announced}) as server:
        message = str(await failure(server.url("/"), nowhere))
    assert "a file of 4,000,000,000 bytes of type application/pdf" in message


async def test_an_error_page_is_a_failure_with_its_status(nowhere: ToolContext) -> None:
    """T3."""
    gone = reply("It was moved\n to the attic.", status="410 Gone", content_type="text/plain")
    async with serving(**{"/": gone}) as server:
        message = str(await failure(server.url("/"), nowhere))
    assert message == f"{server.url('/')} was refused with status 410 Gone: It was moved to the attic."


# --- the network rule ------------------------------------------------------------------------------------


async def test_a_private_address_is_not_reached(nowhere: ToolContext, tenure: Callable[..., None]) -> None:
    """W5: whatever its name is; the server never sees a connection."""
    tenure(allowed_networks=())
    async with serving(**{"/": reply("secret")}) as server:
        for host in ("127.0.0.1", "localhost"):
            message = str(await failure(server.url("/", host), nowhere))
            assert "is not a public address" in message
    assert server.connections == 0


async def test_a_name_that_resolves_to_a_private_address_is_not_reached(
    nowhere: ToolContext, tenure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W5: also where the first look-up said something else, as in rebinding; each hop is checked anew."""
    tenure(allowed_networks=())
    looked_up: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(network, "resolve", resolve)
    async with serving(**{"/": reply("secret")}) as server:
        message = str(await failure(server.url("/", "public.example"), nowhere))
    assert "public.example resolves to 127.0.0.1, which is not a public address" in message
    assert (looked_up, server.connections) == (["public.example"], 0)


async def test_a_redirect_on_the_same_host_is_followed_through_the_guard(
    nowhere: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W5: the second hop resolves to something else, and is refused."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    monkeypatch.setattr(network, "resolve", resolve)
    async with serving(**{"/": reply(status="302 Found", location="/next"), "/next": reply("x")}) as server:
        message = str(await failure(server.url("/", "shifty.example"), nowhere))
    assert "169.254.169.254, which is not a public address" in message
    assert [request.target for request in server.requests] == ["/"]


async def test_redirects_on_the_same_host_are_followed(nowhere: ToolContext) -> None:
    """The result names the address that was reached."""
    hops = {
        "/": reply(status="301 Moved", location="/b?x=1"),
        "/b": reply(status="303 See Other", location="c"),
        "/c": reply("here", content_type="text/plain"),
    }
    async with serving(**hops) as server:
        assert await text(server.url("/"), nowhere) == f"URL: {server.url('/c')}\n\nhere"


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://www.example.com/x",
        "//other.example/",
        "http://127.0.0.1:1/",
    ],
)
async def test_a_redirect_to_another_place_is_told_and_not_followed(
    nowhere: ToolContext, location: str
) -> None:
    """T7: a rule on hosts decides about every host that is asked."""
    async with serving(**{"/": reply("x", status="302 Found", location=location)}) as server:
        failed = await failure(server.url("/"), nowhere)
    assert "Nothing was fetched" in str(failed)
    assert failed.more.endswith(location.lstrip("/").removeprefix("//"))
    assert server.connections == 1


async def test_a_long_target_of_a_redirect_is_told_whole(nowhere: ToolContext) -> None:
    """It is of use as a whole only."""
    target = "https://other.example/" + "a" * 1500
    async with serving(**{"/": reply("x", status="302 Found", location=target)}) as server:
        assert (await failure(server.url("/"), nowhere)).more == target


async def test_a_redirect_loop_ends(nowhere: ToolContext) -> None:
    """W5: after five hops."""
    async with serving(**{"/": reply(status="302 Found", location="/")}) as server:
        assert "redirects again and again" in str(await failure(server.url("/"), nowhere))
    assert len(server.requests) == 6


@pytest.mark.parametrize("location", ["file:///etc/passwd", "", "http://127.0.0.1\\@evil.example/"])
async def test_a_redirect_to_nowhere_is_a_failure(nowhere: ToolContext, location: str) -> None:
    """W5."""
    async with serving(**{"/": reply(status="302 Found", location=location)}) as server:
        message = str(await failure(server.url("/"), nowhere))
    assert "redirects" in message


async def test_a_tricky_address_is_refused_before_anything_is_sent(nowhere: ToolContext) -> None:
    """T7."""
    async with serving(**{"/": reply("x")}) as server:
        url = f"http://127.0.0.1:{server.port}\\@docs.example.com/"
        assert "backslashes" in str(await failure(url, nowhere))
    assert server.connections == 0


# --- bounds ----------------------------------------------------------------------------------------------


async def test_a_page_that_never_ends_is_cut(nowhere: ToolContext, tenure: Callable[..., None]) -> None:
    """S8: and the model is told."""
    tenure(web_fetch_max_bytes=50_000)
    async with serving(**{"/": servers.endless}) as server:
        found = await text(server.url("/"), nowhere)
    assert "This is the beginning only: the page has more than 50,000 bytes." in found
    assert len(found) < 51_000


async def test_a_bomb_is_cut_while_it_unpacks(nowhere: ToolContext, tenure: Callable[..., None]) -> None:
    """S8: 200 MB in 200 kB."""
    tenure(web_fetch_max_bytes=50_000)
    bomb = reply(gzip.compress(b"a" * 200_000_000), content_type="text/plain", content_encoding="gzip")
    async with serving(**{"/": bomb}) as server:
        found = await text(server.url("/"), nowhere)
    assert len(found) < 51_000


async def test_an_image_that_is_too_large_is_refused(
    nowhere: ToolContext, tenure: Callable[..., None]
) -> None:
    """S8: half an image is none."""
    tenure(web_fetch_max_bytes=1024)
    async with serving(**{"/": reply(PNG * 100, content_type="image/png")}) as server:
        assert "more than 1,024 bytes" in str(await failure(server.url("/"), nowhere))


@pytest.mark.parametrize("slow", [servers.drip, servers.silent])
async def test_a_slow_server_does_not_hold_the_tool(
    nowhere: ToolContext, tenure: Callable[..., None], slow: servers.Answer
) -> None:
    """T5: neither by silence nor by a byte from time to time."""
    tenure(web_fetch_timeout=0.3)
    async with serving(**{"/": slow}) as server:
        assert str(await failure(server.url("/"), nowhere)) == "The page did not arrive within 0.3 s."


async def test_a_time_limit_of_the_config_is_the_engines(
    nowhere: ToolContext, tenure: Callable[..., None]
) -> None:
    """T5: it may also be longer than the deployment's."""
    tenure(web_fetch_timeout=0.05)
    config = {"tools": {"web_fetch": {"time_limit": "1m"}}}
    context = ToolContext(nowhere.project, nowhere.session, 1, "tcl_token", config)

    async def late(_request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(reply("late", content_type="text/plain"))

    async with serving(**{"/": late}) as server:
        assert (await text(server.url("/"), context)).endswith("late")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000 + b"\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!", "does not speak HTTP"),
        (reply(b"junk", content_type="text/plain", content_encoding="gzip"), "not packed as it says"),
        (reply(b"junk", content_type="text/plain", content_encoding="br"), "was not asked for"),
        (servers.hang_up, "does not speak HTTP"),
        (servers.break_off, "broke off"),
    ],
)
async def test_a_server_that_misbehaves_is_a_failed_result(
    nowhere: ToolContext, answer: servers.Answer, words: str
) -> None:
    """T3: one sentence for the model, and no more memory than the rule of the protocol library."""
    async with serving(**{"/": answer}) as server:
        assert words in str(await failure(server.url("/"), nowhere))


async def test_nobody_listens(nowhere: ToolContext) -> None:
    """T3."""
    async with serving() as server:
        url = server.url("/")
    assert "could not be fetched: no connection" in str(await failure(url, nowhere))


async def test_cancelling_ends_it_at_once(nowhere: ToolContext) -> None:
    """T5, I6: a stopped call leaves no connection and no process."""
    asked = asyncio.Event()

    async def waits(_request: servers.Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with serving(**{"/": waits}) as server:
        task = asyncio.create_task(web_fetch({"url": server.url("/")}, nowhere))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await task


# --- reading ---------------------------------------------------------------------------------------------


async def test_a_page_in_another_encoding_is_read(nowhere: ToolContext) -> None:
    """Also where the page itself repeats the encoding that it was decoded from."""
    html = STORY.replace("<head>", '<head><meta charset="windows-1251">').replace(
        "hold hands", "держатся за лапы"
    )
    page = reply(html.encode("cp1251"), content_type="text/html")
    async with serving(**{"/": page}) as server:
        assert "держатся за лапы" in await text(server.url("/"), nowhere)


@pytest.mark.parametrize(
    ("base", "link", "expected"),
    [
        ("", "next", "http://a.com/d/next"),
        ("", "../up?x=1", "http://a.com/up?x=1"),
        ("", "/root", "http://a.com/root"),
        ("", "https://b.com/", "https://b.com/"),
        ("<base href='/other/'>", "next", "http://a.com/other/next"),
        ("", "http://[broken", "http://[broken"),
    ],
)
async def test_links_of_a_page_are_whole_addresses(base: str, link: str, expected: str) -> None:
    """A link that is read can be fetched."""
    page = STORY.replace("<head>", f"<head>{base}").replace(
        "<article>", f"<article><p>See <a href='{link}'>more</a>. "
    )
    found = await reading.readable(page, url="http://a.com/d/page.html")
    assert f"[more]({expected})" in found.text


async def test_a_reader_that_cannot_be_started_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine at its limits."""

    async def full(*_command: Any, **_options: Any) -> asyncio.subprocess.Process:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    found = await reading.readable("<p>one</p>", url="http://a.com/")
    assert (found.text, found.is_crude) == ("one", True)


async def test_a_page_without_an_article_is_read_whole(nowhere: ToolContext) -> None:
    """Lists of links, forms, pages of a few words."""
    page = reply(
        "<html><body><ul><li><a href=/a>First</a><li>Second</ul></body></html>", content_type="text/html"
    )
    async with serving(**{"/": page}) as server:
        found = await text(server.url("/"), nowhere)
    assert "First" in found
    assert "Second" in found


async def test_a_page_without_text_says_so(nowhere: ToolContext) -> None:
    """Applications that only run in a browser."""
    page = reply(
        "<html><body><div id=root></div><script>run()</script></body></html>", content_type="text/html"
    )
    async with serving(**{"/": page}) as server:
        assert "no readable text; it may need JavaScript" in await text(server.url("/"), nowhere)


async def test_a_page_made_to_keep_the_parser_busy_is_read_crudely() -> None:
    """T5: the parser's process is ended, and the page loses its markup only."""
    busy = "<html><body><p>first words</p><div " + " ".join(f"a{n}=1" for n in range(60_000)) + "><p>last"
    found = await reading.readable(busy, url="http://a.com/", time_limit=1.0)
    assert found.is_crude
    assert found.text.split() == ["first", "words", "last"]


async def test_a_reader_that_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """I6."""
    started: asyncio.Future[asyncio.subprocess.Process] = asyncio.get_running_loop().create_future()
    start = asyncio.create_subprocess_exec

    async def watched(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        started.set_result(await start(*command, **options))
        return started.result()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    busy = "<html><body><div " + " ".join(f"a{n}=1" for n in range(60_000)) + ">"
    task = asyncio.create_task(reading.readable(busy, url="http://a.com/"))
    process = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process.returncode == -9


async def test_the_reader_sees_nothing_of_the_workers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser of strangers' bytes has no keys to lose."""
    given: dict[str, Any] = {}
    start = asyncio.create_subprocess_exec

    async def watched(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        given.update(options)
        return await start(*command, **options)

    monkeypatch.setenv("TENURE_SECRET_KEYS", "the ring")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    await reading.readable(STORY, url="http://a.com/")
    assert not {name for name in given["env"] if "TENURE" in name or "DATABASE" in name or "KEY" in name}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one</p>\n<p>two &amp; three</p>", "one\ntwo & three"),
        ("a<script>if (a < b) { x() }</script>b<STYLE>p {}</STYLE >c", "a b c"),
        ("before<script>never ends", "before"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("cut <a href='x", "cut"),
        ("<!-- note -->text", "text"),
        ("", ""),
    ],
)
def test_markup_can_be_left_out_crudely(page: str, text: str) -> None:
    """The fallback."""
    assert reading.without_markup(page) == text


@pytest.mark.parametrize(
    "unit", ["<", "<script>", "<a ", "</", "&", "\u00a0", " \n", "<!--", "<style></style"]
)
def test_the_fallback_takes_time_that_grows_with_the_page_only(unit: str) -> None:
    """T5: half a million characters of anything."""
    page = unit * (500_000 // len(unit))
    start = asyncio.run(_clock())
    reading.without_markup(page)
    assert asyncio.run(_clock()) - start < 2


async def _clock() -> float:
    return asyncio.get_running_loop().time()
