"""Web addresses and redirects (the network rule and T7's rules on hosts)."""

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tools_app.outside.addresses import BadAddress, Redirect, parse, redirect
from tools_app.permissions.hosts import certain_host


@pytest.mark.parametrize(
    ("text", "asked_for"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTPS://EXAMPLE.com/A?b=c#part", "https://example.com/A?b=c"),
        ("http://example.com:80/", "http://example.com/"),
        ("http://example.com:8080/x%2Fy", "http://example.com:8080/x%2Fy"),
        ("https://example.com/grüße", "https://example.com/gr%C3%BC%C3%9Fe"),
        ("https://xn--mnchen-3ya.de/", "https://xn--mnchen-3ya.de/"),
        ("http://93.184.216.34/", "http://93.184.216.34/"),
        ("http://[2606:2800::1]/", "http://[2606:2800::1]/"),
        ("https://under_score.example.com/..a/.b", "https://under_score.example.com/..a/.b"),
    ],
)
def test_an_address_is_asked_for_as_it_is_written(text: str, asked_for: str) -> None:
    """W5: short of the fragment and of case."""
    assert parse(text) == asked_for


@pytest.mark.parametrize(
    "text",
    [
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://docs.example.com@evil.example/",
        "http://evil.example\\@docs.example.com/",
        "http://docs.example.com\\.evil.example/",
        "http://exa mple.com/",
        "http://example.com/a\nHost: evil.example",
        "http://example.com/\tx",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://ex%61mple.com/",
        "http://ｅxample.com/",
        "https://münchen.de/",
        "http://example。com/",
        "http://example.com./",
        "http://example..com/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://127.000.000.001/",
        "http://[::1%25eth0]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:7f00:1",
        "http://example.com/public/../private",
        "http://example.com/public/%2e%2E/private",
        "http://example.com/./x",
        "http://" + "a" * 64 + ".com/",
        "http://example.com/" + "a" * 2000,
    ],
)
def test_an_address_that_can_be_read_in_two_ways_is_refused(text: str) -> None:
    """T7: what a rule sees in an address is what would be asked for, or nothing is."""
    with pytest.raises(BadAddress):
        parse(text)


@pytest.mark.parametrize(
    ("base", "location", "target", "may_follow"),
    [
        ("http://a.com/x", "/y", "http://a.com/y", True),
        ("http://a.com/x/z", "y", "http://a.com/x/y", True),
        ("http://a.com/x", "https://a.com/x", "https://a.com/x", True),
        ("http://a.com:80/x", "https://A.com:443/x", "https://a.com/x", True),
        ("https://a.com/x", "//a.com/y#z", "https://a.com/y", True),
        ("http://a.com:8080/x", "http://a.com:8080/y", "http://a.com:8080/y", True),
        ("https://a.com/x", "http://a.com/x", "http://a.com/x", False),
        ("http://a.com/x", "http://www.a.com/x", "http://www.a.com/x", False),
        ("http://a.com/x", "//b.com/x", "http://b.com/x", False),
        ("http://a.com/x", "http://a.com:8080/x", "http://a.com:8080/x", False),
        ("http://a.com:8080/x", "https://a.com:8443/x", "https://a.com:8443/x", False),
        ("http://a.com/x", "http://169.254.169.254/latest", "http://169.254.169.254/latest", False),
    ],
)
def test_a_redirect_is_followed_only_on_the_same_host(
    base: str, location: str, target: str, may_follow: bool
) -> None:
    """T7, W5: a redirect can't lead around a rule on hosts."""
    assert redirect(base, location) == Redirect(target, may_follow)


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "http://a.com\\@b.com/", "gopher://a.com/", "http://[", "//u@a.com/", "/%2e%2e/x"],
)
def test_a_redirect_to_no_address_is_refused(location: str) -> None:
    """W5."""
    with pytest.raises(BadAddress):
        redirect("http://a.com/", location)


_PIECES = st.sampled_from(
    [
        *(
            "http://",
            "https://",
            "HTTP:",
            "//",
            "/",
            "\\",
            "@",
            ":",
            "?",
            "#",
            ".",
            "..",
            "%2e",
            "%2F",
            "%00",
            "%40",
        ),
        *(
            "docs.example.com",
            "evil.example",
            "EVIL.example",
            "127.0.0.1",
            "[::1]",
            "0x7f",
            "1",
            "80",
            "443",
            "a",
            "ö",
        ),
        *("。", "ｅ", "xn--a", " ", "\t", "\n", "user", "-", "_", "\u200b", "\u00ad", ";", "&", "="),
    ]
)


@settings(max_examples=1000)
@given(st.lists(_PIECES, max_size=8), st.sampled_from(["", "http://", "https://", "http://docs.example.com"]))
@example(["docs.example.com", "\\", "@", "evil.example"], "http://")
@example([":", "80", "@", "evil.example"], "http://docs.example.com")
def test_what_is_asked_is_what_a_rule_on_hosts_saw(pieces: list[str], start: str) -> None:
    """T7: every address that is taken has one host, the same for the rule and for the request."""
    text = start + "".join(pieces)
    try:
        url = parse(text)
    except BadAddress:
        return
    host = httpx2.URL(url).raw_host.decode()
    assert certain_host(text) == certain_host(url) == host
    assert parse(url) == url
