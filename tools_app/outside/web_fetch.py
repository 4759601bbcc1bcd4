"""`web_fetch`: a public web page as text that a model can read.

Redirects are gone along by hand, and only where no permission rule could tell the difference (see `addresses`);
every hop passes the network rule. What is no text and no image is refused before it is read.
"""

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

import httpx2
from django.conf import settings

from sessions_app.tool_port import ToolContext
from tools_app.outside import addresses, bodies
from tools_app.outside.exchange import Answer, Redirected, RequestFailed, exchange
from tools_app.outside.readable import readable
from tools_app.results import Content, ToolFailed

MAX_REDIRECTS = 5
MAX_REFUSAL_EXCERPT = 300

_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class _Page:
    url: str
    answer: Answer


async def web_fetch(arguments: dict[str, Any], context: ToolContext) -> Content:
    try:
        url = addresses.parse(arguments["url"])
    except addresses.BadAddress as error:
        raise ToolFailed(f"{error}.") from None
    limit = _time_limit(context)
    try:
        async with asyncio.timeout(limit):
            page = await _page(url)
    except TimeoutError:
        raise ToolFailed(f"The page did not arrive within {limit:g} s.") from None
    return await _content(page)


def _time_limit(context: ToolContext) -> float | None:
    """None where the config sets a limit of its own, which the engine keeps."""
    own = (context.config.get("tools") or {}).get("web_fetch") or {}
    limit: float = settings.TENURE.web_fetch_timeout
    return None if own.get("time_limit") else limit


async def _page(url: str) -> _Page:
    for _ in range(MAX_REDIRECTS + 1):
        try:
            answer = await exchange("GET", url, headers={"accept": _ACCEPT}, body_limit=_body_limit)
        except RequestFailed as error:
            raise ToolFailed(f"{_short(url)} could not be fetched: {error.message}.") from None
        except Redirected as error:
            url = _target(url, error)
        else:
            return _Page(url, answer)
    raise ToolFailed(
        f"The server redirects again and again; after {MAX_REDIRECTS} redirects it led to {_short(url)}."
    )


def _target(url: str, redirected: Redirected) -> str:
    try:
        redirect = addresses.redirect(url, redirected.location)
    except addresses.BadAddress as error:
        raise ToolFailed(f"The server redirects to something that can't be fetched: {error}.") from None
    if not redirect.may_follow:
        raise ToolFailed(
            f"Nothing was fetched: the server redirects (status {redirected.status}) to another place. "
            "To go there, call web_fetch with that address.",
            more=redirect.target,
        )
    return redirect.target


def _body_limit(status: int, headers: httpx2.Headers) -> int:
    limit: int = settings.TENURE.web_fetch_max_bytes
    if not 200 <= status < 300:
        return min(limit, 16_384)
    # Without a type, or with the one that says nothing, the first bytes tell; the rest of the body is dropped then.
    media_type = bodies.media_type_of(headers.get("content-type", ""), b"")
    return limit if _is_readable(media_type) or _says_nothing(headers) else 0


def _says_nothing(headers: httpx2.Headers) -> bool:
    declared = headers.get("content-type", "").partition(";")[0].strip().lower()
    return declared in {"", "application/octet-stream"}


def _is_readable(media_type: str) -> bool:
    return bodies.is_html(media_type) or bodies.is_text(media_type) or media_type in _IMAGES


async def _content(page: _Page) -> Content:
    answer = page.answer
    media_type = bodies.media_type_of(answer.content_type, answer.body)
    if not 200 <= answer.status < 300:
        raise ToolFailed(_refusal(page, media_type))
    if media_type in _IMAGES:
        return _image(page)
    if bodies.is_html(media_type):
        return await _html(page)
    if bodies.is_text(media_type):
        text = await asyncio.to_thread(bodies.text_of, answer.body, answer.content_type)
        return _text(page, None, text, notes=[])
    size = answer.headers.get("content-length", "")
    told = f" of {int(size):,} bytes" if size.isdecimal() and len(size) < 20 else ""
    raise ToolFailed(
        f"{_short(page.url)} is a file{told} of type {media_type[:100]}; web_fetch reads web pages, text and images."
    )


async def _html(page: _Page) -> Content:
    answer = page.answer
    source = await asyncio.to_thread(bodies.text_of, answer.body, answer.content_type)
    found = await readable(source, url=page.url)
    if not found.text:
        return _text(page, found.title, "", notes=["The page has no readable text; it may need JavaScript."])
    notes = (
        ["The page could not be read properly; this is its text without markup."] if found.is_crude else []
    )
    return _text(page, found.title, found.text, notes=notes)


def _text(page: _Page, title: str | None, text: str, *, notes: list[str]) -> Content:
    head = [f"URL: {page.url}", *([f"Title: {title[:500]}"] if title else []), *notes]
    if page.answer.is_cut:
        head.append(f"This is the beginning only: the page has more than {len(page.answer.body):,} bytes.")
    return Content([{"type": "text", "text": "\n".join(head) + "\n\n" + text}])


def _image(page: _Page) -> Content:
    answer = page.answer
    # A provider refuses an image of another type than it is called, and with it the whole request.
    media_type = bodies.image_type(answer.body)
    if media_type is None:
        raise ToolFailed(f"{_short(page.url)} is called an image and is none.")
    if answer.is_cut:
        raise ToolFailed(
            f"{_short(page.url)} is an image of more than {len(answer.body):,} bytes, which is too large."
        )
    media = {"type": "media", "media_type": media_type, "data": base64.b64encode(answer.body).decode()}
    return Content([{"type": "text", "text": f"URL: {page.url}"}, media])


def _refusal(page: _Page, media_type: str) -> str:
    answer = page.answer
    text = ""
    if bodies.is_text(media_type) and not bodies.is_html(media_type):
        text = " ".join(bodies.text_of(answer.body, answer.content_type).split())[:MAX_REFUSAL_EXCERPT]
    said = f": {text}" if text else "."
    return f"{_short(page.url)} was refused with status {answer.status} {answer.reason[:60]}{said}"


def _short(url: str) -> str:
    return url if len(url) <= 200 else url[:200] + "…"
