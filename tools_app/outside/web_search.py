"""`web_search`: ask the search service of this deployment, with the key that the project has stored as a secret."""

import asyncio
from typing import Any

import httpx2
from django.conf import settings

from sessions_app.tool_port import ToolContext
from tools_app.outside import bodies
from tools_app.outside.exchange import Answer, Redirected, RequestFailed, exchange
from tools_app.outside.limits import DEFAULT_RESULTS
from tools_app.outside.search_providers import (
    PROVIDERS,
    SearchProvider,
    UnexpectedAnswer,
    short_detail,
)
from tools_app.outside.secret_values import Hidden, header_secret
from tools_app.results import ToolFailed

_MAX_BYTES = 2 << 20


async def web_search(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    chosen: str = settings.TENURE.web_search_provider
    provider = PROVIDERS[chosen]
    query = " ".join(arguments["query"].split())
    if not query:
        raise ToolFailed("The query is blank.")
    key = await header_secret(context.project, settings.TENURE.web_search_secret or provider.secret)
    base_url = settings.TENURE.web_search_url or provider.base_url
    request = provider.request(base_url, key, query, arguments.get("count") or DEFAULT_RESULTS)
    try:
        async with asyncio.timeout(settings.TENURE.web_search_timeout):
            answer = await exchange(
                request.method,
                request.url,
                headers=request.headers,
                content=request.content,
                body_limit=_body_limit,
            )
    except TimeoutError:
        raise ToolFailed(
            f"{provider.title} did not answer within {settings.TENURE.web_search_timeout:g} s. Try again later."
        ) from None
    except RequestFailed as error:
        raise ToolFailed(f"{provider.title} could not be asked: {error.message}. Try again later.") from None
    except Redirected:
        raise ToolFailed(
            f"{provider.title} answered with a redirect; an operator has to look at its address."
        ) from None
    return await asyncio.to_thread(_results, provider, query, answer, Hidden([key]))


def _body_limit(_status: int, _headers: httpx2.Headers) -> int:
    return _MAX_BYTES


def _results(provider: SearchProvider, query: str, answer: Answer, hidden: Hidden) -> dict[str, Any]:
    try:
        value = bodies.json_of(bodies.text_of(answer.body, answer.content_type))
    except ValueError:
        value = None
    if answer.status != 200:
        raise ToolFailed(hidden.text(_refusal(provider, answer, short_detail(provider, value))))
    try:
        found = provider.results(value)
    except UnexpectedAnswer:
        raise ToolFailed(f"{provider.title} answered in a form that is not understood.") from None
    results = [{"title": page.title, "url": page.url, "snippet": page.snippet} for page in found]
    told: dict[str, Any] = hidden.value({"query": query, "results": results})
    return told


def _refusal(provider: SearchProvider, answer: Answer, detail: str) -> str:
    said = f" ({detail})" if detail else ""
    status = answer.status
    if provider.key_refused(status, detail):
        return f"{provider.title} refused the project's key with status {status}; an operator has to replace it{said}."
    if status in provider.quota_used_up:
        return (
            f"The plan of {provider.title} is used up (status {status}); an operator has to see to it{said}."
        )
    if status == 429:
        return f"{provider.title} takes no more requests right now{_when(answer)}. Wait before you search again{said}."
    if status >= 500:
        return f"{provider.title} has a fault (status {status}). Try again later, or go on without{said}."
    return f"{provider.title} refused the search with status {status}{said}. Write it differently."


def _when(answer: Answer) -> str:
    # Brave names a number of seconds for each of its windows, the shortest first.
    told = answer.headers.get("retry-after") or answer.headers.get("x-ratelimit-reset") or ""
    first = told.partition(",")[0].strip()
    return f" (again in {int(first)} s)" if first.isdecimal() and len(first) < 8 else ""
