"""What models call the tools of servers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools_app.mcp import names

_FITS = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.parametrize("tool", ["get_issue", "get-issue", "a__b", "x" * 52])
def test_a_name_that_fits_is_used_as_it_is(tool: str) -> None:
    assert names.exposed("peer", tool) == f"mcp__peer__{tool}"


@pytest.mark.parametrize("tool", ["issues.list", "a b", "größe", "", "x" * 60, "💥"])
def test_every_other_name_is_marked_with_a_hash(tool: str) -> None:
    name = names.exposed("peer", tool)
    assert _FITS.fullmatch(name)
    assert re.search(r"_[0-9a-f]{8}$", name)
    assert name == names.exposed("peer", tool)


@given(st.text(max_size=200), st.text(max_size=200))
def test_names_always_fit_and_tell_tools_apart(first: str, second: str) -> None:
    one, other = names.exposed("p" * 32, first), names.exposed("p" * 32, second)
    assert _FITS.fullmatch(one)
    assert names.server_of(one) == "p" * 32
    assert (one == other) == (first == second)


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("mcp__linear__get_issue", "linear"),
        ("mcp__a-b__c__d", "a-b"),
        ("mcp__linear", None),
        ("web_fetch", None),
    ],
)
def test_the_server_is_read_in_a_name(name: str, server: str | None) -> None:
    assert names.server_of(name) == server


def test_of_two_tools_with_one_name_that_whose_own_it_is_comes_first() -> None:
    renamed = "a.b"
    same = names.exposed("peer", renamed).removeprefix("mcp__peer__")
    named, left_out = names.by_exposed_name("peer", [renamed, same, "c", "c"])
    assert named == {f"mcp__peer__{same}": same, "mcp__peer__c": "c"}
    assert left_out == [renamed]
