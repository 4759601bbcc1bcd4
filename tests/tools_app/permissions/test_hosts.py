"""Hosts of URLs under rules: what all programs read alike, and what one of them might."""

from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools_app.permissions.calls import then
from tools_app.permissions.hosts import certain_host


def of_url(url: object, hosts: list[str], decision: str, *, default: str) -> str:
    rules = [{"tool": "web_fetch", "arguments": {"url": {"host": hosts}}, "then": decision}]
    return then(rules, "web_fetch", {"url": url}, default=default)


HOSTS = ["docs.example.com", "*.example.org", "192.0.2.7", "2001:db8::1"]


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.example.com",
        "https://docs.example.com/",
        "http://docs.example.com/a?b=c#d",
        "https://docs.example.com?x",
        "HTTPS://Docs.Example.COM/",
        "https://docs.example.com:8443/",
        "https://docs.example.com./",
        "https://docs.example.com/@evil.com",
        "https://docs.example.com/?u=https://evil.com",
        "https://docs.example.com/ü",
        "https://a.example.org/",
        "https://a.b.example.org/",
        "http://192.0.2.7/",
        "http://[2001:db8::1]:80/",
        "http://[2001:DB8:0::1]/",
    ],
)
def test_a_clear_url_is_allowed_by_its_host(url):
    """T7: any port, any letter case."""
    assert of_url(url, HOSTS, "allow", default="ask") == "allow"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/",
        "https://docs.example.com.evil.com/",
        "https://evildocs.example.com/",
        "https://example.org/",
        "https://evilexample.org/",
        "https://.example.org/",
        "https://docs.example.com@evil.com/",
        "https://user:secret@docs.example.com/",
        "https://evil.com#@docs.example.com/",
        "https://evil.com/docs.example.com",
        "https://evil.com\\@docs.example.com/",
        "https://docs.example.com\\.evil.com/",
        "https://docs.example.com\\@evil.com/",
        "https:\\\\docs.example.com/",
        "https:/docs.example.com/",
        "https:///docs.example.com/",
        "https:docs.example.com/",
        "//docs.example.com/",
        "docs.example.com",
        "docs.example.com/a",
        "ftp://docs.example.com/",
        "file://docs.example.com/etc/passwd",
        "javascript://docs.example.com/%0aalert(1)",
        " https://docs.example.com/",
        "https://docs.example.com /",
        "https://docs.example.com/\n",
        "https://docs.exam\tple.com/",
        "https://docs.example.com/a b",
        "https://docs%2eexample.com/",
        "https://docs。example.com/",
        "https://ｄocs.example.com/",
        "https://docs.example.com..",
        "https://docs.example.com:port/",
        "https://docs.example.com:80:90/",
        "https://docs.example.com:/",
        "https://3221225991/",
        "https://0xc0.0.2.7/",
        "https://192.0.519/",
        "https://0300.0.2.7/",
        "https://[::ffff:192.0.2.7]/",
        "https://[2001:db8::1%25eth0]/",
        "https://2001:db8::1/",
        "",
        None,
        1,
        ["https://docs.example.com/"],
    ],
)
def test_a_url_that_could_be_read_otherwise_is_not_allowed(url):
    """T7"""
    assert of_url(url, HOSTS, "allow", default="ask") == "ask"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/",
        "evil.com",
        "evil.com/a",
        "evil.com:443/a",
        "//evil.com/",
        "\\\\evil.com/",
        "https:evil.com",
        "https:///evil.com/",
        "https:\\\\evil.com/",
        "HTTP://EVIL.COM.:80/",
        "ftp://evil.com/",
        "https://docs.example.com@evil.com/",
        "view-source:https://evil.com/",
        "jar:https://evil.com!/a",
        "https://docs.example.com%40evil.com/",
        "https://evil.com@docs.example.com/",
        "https://docs.example.com\\@evil.com/",
        "https://evil.com\\@docs.example.com/",
        "https://evil.com\\.docs.example.com/",
        "  https://evil.com/",
        "https://ev\til.com/",
        "https://ev\nil.com/",
        "\x01https://evil.com/",
        "https://evil%2ecom/",
        "https://%65vil.com/",
        "https://evil。com/",
        "https://ｅvil.com/",
        "https://ev\u00adil.com/",
        "https://192.0.2.9/",
        "https://3221225993/",
        "https://0xc0.0.2.9/",
        "https://192.0.521/",
        "https://[::ffff:192.0.2.9]/",
        "https://[2001:db8:0:0::9]/",
        "https://a.evil.org/",
        "https://xn--bcher-kva.example/",
        "https://bücher.example/",
        "https://BÜCHER.example/",
        "https://fass.example/",
        "https://faß.example/",
        ["https://docs.example.com/", "https://evil.com/"],
    ],
)
@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_a_deny_and_an_ask_take_every_reading(url, decision):
    """T7"""
    hosts = [
        "evil.com",
        "*.evil.org",
        "192.0.2.9",
        "2001:db8::9",
        "xn--bcher-kva.example",
        "fass.example",
    ]
    assert of_url(url, hosts, decision, default="allow") == decision


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.example.com/",
        "https://docs.example.com/evil.com",
        "https://docs.example.com/?u=evil.com",
        "https://docs.example.com/a@evil.com",
        "https://docs.example.com/?u=https://evil.com",
        "https://docs.example.com/%40evil.com",
        "https://notevil.com/",
        "https://evil.com.example.com/",
        7,
    ],
)
def test_a_deny_leaves_other_hosts_alone(url):
    """T7"""
    assert of_url(url, ["evil.com"], "deny", default="allow") == "allow"


_NAMES = ["a.com", "b.com", "A.COM", "127.0.0.1", "::1", "0x7f", "1", "ö", "https", "http"]
_MARKS = [*r":/\@.?#[]-_;&", "//", " ", "\t", "%2e", "。", ":80"]
PIECES = st.sampled_from(_NAMES + _MARKS)


@given(
    st.lists(PIECES, max_size=10).map("".join)
    | st.lists(PIECES, max_size=6).map(lambda p: "https://" + "".join(p))
)
def test_a_certain_host_is_what_our_client_and_the_standard_library_see(url):
    """T7"""
    host = certain_host(url)
    if host is None:
        return
    assert (urlsplit(url).hostname or "").rstrip(".") == host
    assert httpx2.URL(url).host.rstrip(".") == host


@given(st.lists(PIECES, max_size=8).map("".join))
def test_whatever_our_client_would_connect_to_is_seen_by_a_deny(text):
    """T7"""
    try:
        host = httpx2.URL(text).host
    except (httpx2.InvalidURL, ValueError):
        return
    if host in {"a.com", "b.com"}:
        assert of_url(text, [host], "deny", default="allow") == "deny"
