"""Server-sent events, sliced in every way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.providers.library.sse import Decoder, Event

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1)


def decode(raw: bytes, cuts: list[int]) -> list[Event]:
    decoder, events, start = Decoder(), [], 0
    for cut in [*sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]:
        events += decoder.feed(raw[start:cut])
        start = max(start, cut)
    return events + decoder.finish()


@given(
    texts=st.lists(TEXTS, max_size=5),
    cuts=st.lists(st.integers(0, 10_000)),
    ending=st.sampled_from(["\r", "\n", "\r\n"]),
)
def test_slices_and_line_endings_do_not_matter(texts, cuts, ending):
    """C59."""
    raw = "".join(f"event: e\ndata: {text}\n\n" for text in texts).replace("\n", ending).encode()
    assert decode(raw, cuts) == [Event("e", text) for text in texts]


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_again_holds_no_line_end_but_its_own(value):
    """C59: SDKs that split at Unicode's separators find none."""
    written = Event(None, json.dumps(value, ensure_ascii=False)).encode().decode()
    assert len(written.removesuffix("\n\n").splitlines()) == 1
    (event,) = decode(written.encode(), [])
    assert json.loads(event.data) == value


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\ndata: b\n\n", [Event(None, "a\nb")]),
        (b"data:a\n\n", [Event(None, "a")]),
        (b": comment\n\n", []),
        (b"event: ping\n\n", []),
        (b"id: 7\nretry: 10\ndata: a\n\n", [Event(None, "a")]),
        (b"data: no blank line at the end", [Event(None, "no blank line at the end")]),
        (b"data\n\n", [Event(None, "")]),
        (b"", []),
        ("data: \N{BALLOON}\n\n".encode(), [Event(None, "\N{BALLOON}")]),
    ],
)
def test_fields(raw, events):
    assert decode(raw, []) == events


def test_a_line_end_of_two_bytes_may_be_cut_in_the_middle():
    decoder = Decoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\n\r") == [Event(None, "a")]
    assert decoder.feed(b"\n") == []
    assert decoder.finish() == []
