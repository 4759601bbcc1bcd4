"""The search services that `web_search` can ask, each as its own documentation describes it. Pure.

A service is a value with two functions: one writes the request, one reads the answer. Where from:
- Brave Search API, https://api-dashboard.search.brave.com/api-reference/web/search/get
- Tavily, https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

_MAX_SNIPPET = 2000
_MAX_DETAIL = 300
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


class UnexpectedAnswer(ValueError):
    """The service answered in another form than it documents."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to send."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One found page."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProvider:
    """`secret` is the usual name of the secret with the key; the key-refused and out-of-quota statuses differ."""

    title: str
    secret: str
    base_url: str
    request: Callable[[str, str, str, int], SearchRequest]
    """(base url, key, query, count) -> request"""
    results: Callable[[Any], list[SearchResult]]
    """The decoded answer -> results; raises `UnexpectedAnswer`."""
    detail: Callable[[Any], str]
    """The decoded answer of a refusal -> what it says."""
    key_refused: Callable[[int, str], bool]
    """(status, detail)"""
    quota_used_up: frozenset[int]


def _brave_request(base_url: str, key: str, query: str, count: int) -> SearchRequest:
    # text_decorations would put tags around the words that were searched for.
    parameters = {"q": query, "count": count, "text_decorations": "false", "result_filter": "web"}
    headers = {"x-subscription-token": key, "accept": "application/json"}
    return SearchRequest("GET", f"{base_url.rstrip('/')}/res/v1/web/search?{urlencode(parameters)}", headers)


def _brave_results(answer: Any) -> list[SearchResult]:
    if not isinstance(answer, dict) or answer.get("type") not in {None, "search"}:
        raise UnexpectedAnswer
    web = answer.get("web")
    # A search that finds nothing has no "web" at all.
    return (
        []
        if web is None
        else _each(web.get("results") if isinstance(web, dict) else None, snippet="description")
    )


def _brave_detail(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return ""
    return " ".join(str(error[name]) for name in ("code", "detail") if isinstance(error.get(name), str))


def _tavily_request(base_url: str, key: str, query: str, count: int) -> SearchRequest:
    body = {"query": query, "max_results": count, "search_depth": "basic"}
    headers = {
        "authorization": f"Bearer {key}",
        "accept": "application/json",
        "content-type": "application/json",
    }
    return SearchRequest("POST", f"{base_url.rstrip('/')}/search", headers, json.dumps(body).encode())


def _tavily_results(answer: Any) -> list[SearchResult]:
    return _each(answer.get("results") if isinstance(answer, dict) else None, snippet="content")


def _tavily_detail(answer: Any) -> str:
    detail = answer.get("detail") if isinstance(answer, dict) else None
    if isinstance(detail, dict):
        detail = detail.get("error")
    return detail if isinstance(detail, str) else ""


def _each(found: Any, *, snippet: str) -> list[SearchResult]:
    if not isinstance(found, list):
        raise UnexpectedAnswer
    return [
        SearchResult(_plain(item.get("title")), item["url"], _plain(item.get(snippet))[:_MAX_SNIPPET])
        for item in found
        if isinstance(item, dict) and isinstance(item.get("url"), str)
    ]


def _plain(text: Any) -> str:
    return " ".join(html.unescape(_TAG.sub("", text)).split()) if isinstance(text, str) else ""


def short_detail(provider: SearchProvider, answer: Any) -> str:
    """What the service says about its refusal, on one line."""
    return " ".join(provider.detail(answer).split())[:_MAX_DETAIL]


PROVIDERS: Mapping[str, SearchProvider] = {
    "brave": SearchProvider(
        title="Brave Search",
        secret="brave-search",  # noqa: S106 - a name
        base_url="https://api.search.brave.com",
        request=_brave_request,
        results=_brave_results,
        detail=_brave_detail,
        # Brave says 422 for a token that it does not know, and tells by the code.
        key_refused=lambda status, detail: status in {401, 403} or (status == 422 and "TOKEN" in detail),
        quota_used_up=frozenset({402}),
    ),
    "tavily": SearchProvider(
        title="Tavily",
        secret="tavily",  # noqa: S106 - a name
        base_url="https://api.tavily.com",
        request=_tavily_request,
        results=_tavily_results,
        detail=_tavily_detail,
        key_refused=lambda status, _detail: status in {401, 403},
        quota_used_up=frozenset({432, 433}),
    ),
}
