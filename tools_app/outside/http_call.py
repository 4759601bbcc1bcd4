"""A call of an HTTP tool.

Arguments that the URL names stand there, the others in the query or the JSON body. The id of the call goes along as
`Idempotency-Key`, the same in every run, so that a server can tell a second run from a second wish. An answer other
than 2xx, a redirect included, is a failed result with what the server said. Secrets go into headers and nowhere
else: what a server says back is searched for them.
"""

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import httpx2
from django.conf import settings

from sessions_app.agent_config.tools import placeholders
from sessions_app.text import UnstorableJson, clean_json
from sessions_app.tool_port import Blocks, ToolContext
from tools_app.http_tools import schema_of
from tools_app.outside import bodies
from tools_app.outside.exchange import MAY_HAVE_ARRIVED, Answer, Redirected, RequestFailed, exchange
from tools_app.outside.secret_values import Hidden, header_secret
from tools_app.outside.url_templates import BadArgument, fill, with_query
from tools_app.results import Content, ToolFailed

_IN_QUERY = frozenset({"GET", "HEAD", "DELETE"})
_HARMLESS = frozenset({"GET", "HEAD"})
_TOLD_OF_HEAD = ("content-type", "content-length", "last-modified", "etag", "location")
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}", re.ASCII)
_MAX_REFUSAL = 4000


async def run(own: Mapping[str, Any], arguments: dict[str, Any], context: ToolContext) -> Content:
    """See `http_tools.run`."""
    method: str = own["method"]
    try:
        url, content = _url_and_body(own, arguments)
    except BadArgument as error:
        raise ToolFailed(f"Nothing was sent: {error}.") from None
    headers, hidden = await _headers(own, context)
    if content is not None:
        headers = {"content-type": "application/json", **headers}
    headers["idempotency-key"] = context.token
    try:
        answer = await exchange(method, url, headers=headers, content=content, body_limit=_body_limit)
    except RequestFailed as error:
        raise ToolFailed(hidden.text(_no_answer(method, error))) from None
    except Redirected as error:
        raise ToolFailed(hidden.text(_redirected(method, error))) from None
    return await asyncio.to_thread(_told, method, answer, hidden)


def _url_and_body(own: Mapping[str, Any], arguments: dict[str, Any]) -> tuple[str, bytes | None]:
    url, rest = fill(own["url"], arguments)
    if own["method"] in _IN_QUERY:
        return with_query(url, rest), None
    # A body even where every optional argument is left out: a server that expects JSON gets JSON.
    has_body = bool(rest) or bool(set(schema_of(own).get("properties", {})) - set(placeholders(own["url"])))
    return url, json.dumps(rest, ensure_ascii=False).encode() if has_body else None


async def _headers(own: Mapping[str, Any], context: ToolContext) -> tuple[dict[str, str], Hidden]:
    headers: dict[str, str] = {}
    revealed: dict[str, str] = {}

    async def secret(name: str) -> str:
        if name not in revealed:
            revealed[name] = await header_secret(context.project, name)
        return revealed[name]

    for name, value in (own.get("headers") or {}).items():
        headers[name.lower()] = value if isinstance(value, str) else await secret(value["secret"])
    if own.get("auth"):
        headers["authorization"] = f"Bearer {await secret(own['auth']['bearer'])}"
    return headers, Hidden(revealed.values())


def _body_limit(_status: int, _headers: httpx2.Headers) -> int:
    limit: int = settings.TENURE.http_tool_max_bytes
    return limit


def _no_answer(method: str, error: RequestFailed) -> str:
    if not error.sent:
        return f"Nothing was sent: {error.message}."
    after = "" if method in _HARMLESS else f" {MAY_HAVE_ARRIVED}"
    return f"There is no answer: {error.message}.{after}"


def _redirected(method: str, error: Redirected) -> str:
    after = "" if method in _HARMLESS else " The request itself reached the server."
    return f"The server answered {error.status}, a redirect to {error.location[:300]}, which is not followed.{after}"


def _told(method: str, answer: Answer, hidden: Hidden) -> Content:
    if not 200 <= answer.status < 300:
        said = f"The server answered {answer.status} {answer.reason[:60]}".rstrip()
        raise ToolFailed(hidden.text(f"{said}."), more=_refusal(answer, hidden))
    if method == "HEAD":
        headers = {name: answer.headers[name] for name in _TOLD_OF_HEAD if name in answer.headers}
        return Content(
            [{"type": "data", "value": hidden.value({"status": answer.status, "headers": headers})}]
        )
    if not answer.body:
        return Content(
            [{"type": "text", "text": f"Done: the server answered {answer.status} without a body."}]
        )
    blocks = _blocks(answer, hidden)
    if answer.is_cut:
        note = f"This is the beginning only: the answer has more than {len(answer.body):,} bytes."
        blocks = [{"type": "text", "text": note}, *blocks]
    return Content(blocks)


def _refusal(answer: Answer, hidden: Hidden) -> str | None:
    if not bodies.is_text(bodies.media_type_of(answer.content_type, answer.body)):
        return None
    return hidden.text(bodies.text_of(answer.body, answer.content_type))[:_MAX_REFUSAL].strip() or None


def _blocks(answer: Answer, hidden: Hidden) -> Blocks:
    media_type = bodies.media_type_of(answer.content_type, answer.body)
    if bodies.is_text(media_type):
        text = bodies.text_of(answer.body, answer.content_type)
        if bodies.is_json(media_type) and not answer.is_cut:
            value = _json(text)
            if value is not _NO_JSON:
                return [{"type": "data", "value": hidden.value(value)}]
        return [{"type": "text", "text": hidden.text(text)}]
    if answer.is_cut:
        raise ToolFailed(
            f"The server answered {answer.status} with a file of type {media_type[:100]} that is larger than "
            f"{len(answer.body):,} bytes, too large to be kept. The request itself took effect."
        )
    kept_as = bodies.image_type(answer.body) or media_type
    if not _MEDIA_TYPE.fullmatch(kept_as):
        kept_as = "application/octet-stream"
    return [{"type": "media", "media_type": kept_as, "data": base64.b64encode(answer.body).decode()}]


_NO_JSON = object()


def _json(text: str) -> Any:
    """The value, or `_NO_JSON` for what is none or can't be stored as one."""
    try:
        return clean_json(bodies.json_of(text), on_nan="null")
    except (ValueError, UnstorableJson):
        return _NO_JSON
