"""Paths under rules, by their text."""

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools_app.permissions.calls import then


def of_path(path: object, base: str, decision: str, *, default: str) -> str:
    rules = [{"tool": "read_file", "arguments": {"path": {"under": base}}, "then": decision}]
    return then(rules, "read_file", {"path": path}, default=default)


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/srv/repo", "/srv/repo"),
        ("/srv/repo/", "/srv/repo"),
        ("/srv/repo/a", "/srv/repo"),
        ("/srv/repo/a/b.txt", "/srv/repo/"),
        ("//srv//repo///a", "/srv/repo"),
        ("/srv/./repo/./a", "/srv/repo"),
        ("/srv/repo/a/../b", "/srv/repo"),
        ("/srv/x/../repo/a", "/srv/repo"),
        ("/srv/repo/..a/...", "/srv/repo"),
        ("/srv/repo/.github/[id].tsx", "/srv/repo"),
        ("/srv/repo/*.py", "/srv/repo"),
        ("/../srv/repo/a", "/srv/repo"),
        ("/srv/repo/100%", "/srv/repo"),
        ("/srv/repo/a b", "/srv/repo"),
        ("/anything", "/"),
        ("src/a", "src"),
        ("./src/a", "src"),
        ("src/a", "."),
        ("~/src/a", "~/src"),
    ],
)
def test_a_path_below_is_allowed(path, base):
    """T7"""
    assert of_path(path, base, "allow", default="ask") == "allow"


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/srv/repo2", "/srv/repo"),
        ("/srv/repository/a", "/srv/repo"),
        ("/srv", "/srv/repo"),
        ("/srv/repo/..", "/srv/repo"),
        ("/srv/repo/../repo2", "/srv/repo"),
        ("/srv/repo/../../etc/passwd", "/srv/repo"),
        ("/srv/repo/%2e%2e/%2e%2e/etc", "/srv/repo"),
        ("/srv/repo/..%2fx", "/srv/repo"),
        ("/srv/repo/.?/etc", "/srv/repo"),
        ("/srv/repo/.*/etc", "/srv/repo"),
        ("/srv/repo/{..,a}/etc", "/srv/repo"),
        ("/srv/repo/{.,a}{.,a}/etc", "/srv/repo"),
        ("/srv/repo/..\\..\\etc", "/srv/repo"),
        ("/srv/repo\0/../etc", "/srv/repo"),
        ("/srv/repo/$X", "/srv/repo"),
        ("/srv/repo/`x`", "/srv/repo"),
        ("/srv/repo/a\n", "/srv/repo"),
        (" /srv/repo/a", "/srv/repo"),
        ("/SRV/repo/a", "/srv/repo"),
        ("srv/repo/a", "/srv/repo"),
        ("repo/a", "/srv/repo"),
        ("a", "/srv/repo"),
        ("", "/srv/repo"),
        ("~/a", "/srv/repo"),
        ("~/a", "/"),
        ("file:///srv/repo/a", "/srv/repo"),
        ("/src/a", "src"),
        ("../src/a", "src"),
        ("src/../../src/a", "src"),
        ("src2/a", "src"),
        ("..", "."),
        ("~root/work", "~/work"),
        ("~/../work", "~/work"),
        ("/home/me/work", "~/work"),
        (7, "/srv/repo"),
        (None, "/srv/repo"),
        (["/srv/repo/a"], "/srv/repo"),
    ],
)
def test_a_path_that_is_not_surely_below_is_not_allowed(path, base):
    """T7"""
    assert of_path(path, base, "allow", default="ask") == "ask"


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/etc/passwd", "/etc"),
        ("/etc", "/etc"),
        ("//etc//passwd", "/etc"),
        ("/e*/passwd", "/etc"),
        ("/[e]t?/passwd", "/etc"),
        ("/{etc,srv}/passwd", "/etc"),
        ("/**/passwd", "/etc"),
        ("/srv/../etc/passwd", "/etc"),
        ("/ETC/passwd", "/etc"),
        (" /etc/passwd", "/etc"),
        ("/etc/passwd\0.txt", "/etc"),
        ("file:///etc/passwd", "/etc"),
        ("FILE://localhost/etc/passwd", "/etc"),
        ("/srv/%2e%2e/etc/passwd", "/etc"),
        ("%2fetc%2fpasswd", "/etc"),
        ("\\etc\\passwd", "/etc"),
        ("/srv\\..\\etc", "/etc"),
        ("../../etc/passwd", "/etc"),
        ("etc/passwd", "/etc"),
        ("secrets/key", "/srv/repo/secrets"),
        ("repo/secrets/key", "/srv/repo/secrets"),
        ("~/.ssh/id", "/home/ann"),
        ("/home/ann/.ssh/id", "~/.ssh"),
        ("~root/.ssh/id", "~/.ssh"),
        ("~/../me/.ssh", "~/.ssh"),
        ("/srv/repo/secrets/key", "secrets"),
        (["/srv/a", "/etc/passwd"], "/etc"),
        ([["/etc/passwd"]], "/etc"),
    ],
)
@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_a_deny_and_an_ask_take_a_path_that_may_be_below(path, base, decision):
    """T7"""
    assert of_path(path, base, decision, default="allow") == decision


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/etcetera", "/etc"),
        ("/srv/etc", "/etc"),
        ("/etc/../srv", "/etc"),
        ("/srv/*", "/etc"),
        ("/e*d/passwd", "/etc"),
        ("src/a", "/etc"),
        ("src/secrets", "/etc"),
        ("src", "secrets"),
        (["/srv/a"], "/etc"),
        ({"path": "/etc"}, "/etc"),
        (7, "/etc"),
    ],
)
def test_a_deny_leaves_other_paths_alone(path, base):
    """T7"""
    assert of_path(path, base, "deny", default="allow") == "allow"


PIECES = st.sampled_from(
    ["srv", "repo", "repo2", "..", ".", "", "~", "%2e%2e", "%2f", "a\\..", "etc", "$X", " "]
)


@given(st.lists(PIECES, max_size=8).map("/".join))
def test_what_is_allowed_lies_below_and_what_lies_below_is_denied(path):
    """T7: against the standard library's reading, plain and decoded."""
    readings = [posixpath.normpath(text).replace("//", "/") for text in (path, unquote(path)) if text]
    below = [(reading + "/").startswith("/srv/repo/") for reading in readings]
    if of_path(path, "/srv/repo", "allow", default="ask") == "allow":
        assert below
        assert all(below)
    if any(below):
        assert of_path(path, "/srv/repo", "deny", default="allow") == "deny"
