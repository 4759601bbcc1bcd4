"""The URLs of HTTP tools: what a model writes stays in its place (T3, the network rule)."""

from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tools_app.outside.url_templates import BadArgument, fill, with_query

BASE = "https://api.example.com"


@pytest.mark.parametrize(
    ("template", "arguments", "url", "rest"),
    [
        ("/items/{sku}", {"sku": "a1"}, "/items/a1", {}),
        ("/items/{sku}", {"sku": "a/b c?d#e%f"}, "/items/a%2Fb%20c%3Fd%23e%25f", {}),
        ("/items/{sku}", {"sku": "grüße"}, "/items/gr%C3%BC%C3%9Fe", {}),
        ("/items/{sku}", {"sku": "..a"}, "/items/..a", {}),
        ("/items/{sku}.json", {"sku": "a"}, "/items/a.json", {}),
        ("/{a}/{b}?x={c}", {"a": 1, "b": True, "c": "&y=2", "d": 4}, "/1/true?x=%26y%3D2", {"d": 4}),
        ("/q?x={x}", {"x": ""}, "/q?x=", {}),
        ("?x={x}", {"x": "../.."}, "?x=..%2F..", {}),
        ("/plain", {"a": [1]}, "/plain", {"a": [1]}),
        ("/{n}", {"n": 1.5}, "/1.5", {}),
    ],
)
def test_arguments_stand_where_the_url_names_them(
    template: str, arguments: dict[str, Any], url: str, rest: dict[str, Any]
) -> None:
    """T3: encoded, and the others are left over."""
    assert fill(BASE + template, arguments) == (BASE + url, rest)


@pytest.mark.parametrize(
    ("template", "arguments", "words"),
    [
        ("/items/{sku}", {}, "sku is missing"),
        ("/items/{sku}", {"sku": None}, "sku is missing"),
        ("/items/{sku}", {"sku": ""}, "must not be empty"),
        ("/items/{sku}", {"sku": ["a"]}, "a single value"),
        ("/items/{sku}", {"sku": {"a": 1}}, "a single value"),
        ("/items/{sku}", {"sku": ".."}, "another place"),
        ("/items/{sku}", {"sku": "."}, "another place"),
        ("/items/{sku}", {"sku": "../admin"}, "another place"),
        ("/items/{sku}", {"sku": "..;/admin"}, "another place"),
        ("/items/{sku}", {"sku": "a/../../admin"}, "another place"),
        ("/items/{sku}", {"sku": "..\\admin"}, "another place"),
        ("/items/.{sku}", {"sku": "."}, "another place"),
        ("/items/{a}{b}", {"a": ".", "b": "."}, "another place"),
        ("/items/{sku}", {"sku": "a\r\nHost: evil"}, "control characters"),
        ("/items/{sku}", {"sku": "a\0"}, "control characters"),
        ("/items/{sku}", {"sku": "a" * 9000}, "too long"),
    ],
)
def test_an_argument_that_leads_elsewhere_is_refused(
    template: str, arguments: dict[str, Any], words: str
) -> None:
    """T3, W5: also for servers that decode a path before they split it."""
    with pytest.raises(BadArgument, match=words):
        fill(BASE + template, arguments)


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.text(st.characters(codec="utf-8"), max_size=40),
)
def test_no_argument_changes_host_or_path(inside: str, asked: str) -> None:
    """W5: for any text, the request goes to the template's host and to one place below its folder."""
    try:
        url, _ = fill(BASE + "/items/{inside}/price?q={asked}", {"inside": inside, "asked": asked})
    except BadArgument:
        assume(False)
    sent = httpx2.URL(url)
    assert (sent.scheme, sent.host, sent.port) == ("https", "api.example.com", None)
    first, items, place, last = sent.raw_path.partition(b"?")[0].decode().split("/")
    assert (first, items, last) == ("", "items", "price")
    assert unquote(place) == inside
    assert dict(sent.params) == {"q": asked}
    assert urlsplit(url).fragment == ""


@pytest.mark.parametrize(
    ("url", "arguments", "expected"),
    [
        ("/a", {}, "/a"),
        ("/a", {"x": None}, "/a"),
        ("/a", {"x": "1 2", "y": True}, "/a?x=1+2&y=true"),
        ("/a?z=1", {"x": [1, None, "b"]}, "/a?z=1&x=1&x=b"),
        ("/a", {"x": {"k": [1]}}, "/a?x=%7B%22k%22%3A+%5B1%5D%7D"),
        ("/a", {"x": "a&b=c#d"}, "/a?x=a%26b%3Dc%23d"),
    ],
)
def test_other_arguments_go_into_the_query(url: str, arguments: dict[str, Any], expected: str) -> None:
    """T3."""
    assert with_query(BASE + url, arguments) == BASE + expected
