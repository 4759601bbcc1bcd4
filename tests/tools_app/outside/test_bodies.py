"""Bodies of answers: bounded while they are unpacked, and read as what they are (S8)."""

import gzip
import tracemalloc
import zlib

import pytest

from tools_app.outside import bodies
from tools_app.outside.bodies import Unpacked, Unreadable

LIMIT = 100_000


def unpacked(encoding: str, packed: bytes, *, limit: int = LIMIT, piece: int = 7) -> Unpacked:
    collected = Unpacked(encoding, limit)
    for at in range(0, len(packed), piece):
        collected.add(packed[at : at + piece])
        if collected.is_cut:
            break
    return collected


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


TEXT = b"a text that is packed " * 100


@pytest.mark.parametrize("piece", [1, 7, 65536])
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("", TEXT),
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT)),
        ("X-GZIP", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
    ],
)
def test_a_packed_body_is_unpacked(encoding: str, packed: bytes, piece: int) -> None:
    """S8."""
    whole = unpacked(encoding, packed, piece=piece)
    assert (whole.body(), whole.is_cut) == (TEXT, False)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_takes_no_more_memory_than_the_limit(encoding: str) -> None:
    """S8: some hundred kilobytes would unpack to 200 MB."""
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = pack(b"\0" * 200_000_000)
    tracemalloc.start()
    try:
        collected = unpacked(encoding, bomb, piece=65536)
        body = collected.body()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert collected.is_cut
    assert len(body) == LIMIT
    assert peak < 10 * LIMIT


def test_bytes_that_unpack_to_nothing_come_to_an_end() -> None:
    """S8: an endless row of empty gzip files."""
    collected = Unpacked("gzip", 1000)
    nothing = gzip.compress(b"") * 1000
    pieces = 0
    while not collected.is_cut:
        collected.add(nothing)
        pieces += 1
        assert pieces < 20
    assert collected.body() == b""


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_body_is_cut_only_where_there_is_more(size: int) -> None:
    """S8."""
    collected = unpacked("gzip", gzip.compress(b"x" * size), piece=65536)
    assert len(collected.body()) == min(size, LIMIT)
    assert collected.is_cut == (size > LIMIT)


def test_a_packed_body_that_breaks_off_is_not_taken_for_whole() -> None:
    """S8."""
    collected = unpacked("gzip", gzip.compress(TEXT)[:-12])
    assert TEXT.startswith(collected.body())
    assert collected.is_cut


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("br", b"anything"), ("zstd", b"anything"), ("gzip, gzip", b"anything"), ("gzip", b"not packed at all")],
)
def test_what_was_not_asked_for_is_not_unpacked(encoding: str, packed: bytes) -> None:
    """S8: other packings have no bound on what comes out."""
    with pytest.raises(Unreadable):
        unpacked(encoding, packed)


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/html; charset=utf-8", "grüße".encode(), "grüße"),
        ("text/html; charset=ISO-8859-1", "grüße – €".encode("cp1252"), "grüße – €"),
        (
            "text/html",
            b'<meta charset="windows-1251">' + "привет".encode("cp1251"),
            '<meta charset="windows-1251">привет',
        ),
        (
            "text/html",
            b"<meta http-equiv=x content='text/html; charset=shift_jis'>" + "日本".encode("cp932"),
            None,
        ),
        ("text/xml", '<?xml version="1.0" encoding="ISO-8859-15"?>€'.encode("iso8859-15"), None),
        ("text/plain", "grüße".encode(), "grüße"),
        ("text/plain", "grüße".encode("latin-1"), "grüße"),
        ("text/plain; charset=utf-8", "grüße".encode("latin-1"), "grüße"),
        ("text/plain; charset=ascii", "grüße".encode(), "grÃ¼ÃŸe"),
        ("text/plain; charset=iso-2022-jp", "grüße".encode(), "grüße"),
        ("text/plain; charset=utf-16le", b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe", "grüße"),
        ("text/plain", "grüße".encode("utf-16"), "grüße"),
        ("text/html", b"<meta charset=utf-16>hello", "<meta charset=utf-16>hello"),
        ("text/plain; charset=no-such-thing", "grüße".encode(), "grüße"),
        ("text/plain; charset=punycode", b"hello-", "hello-"),
        ("text/plain; charset=hex", b"616", "616"),
        ("text/plain; charset=unicode_escape", b"\\u0041", "\\u0041"),
        ("text/plain", "grüße".encode()[:3], "gr"),
    ],
)
def test_text_is_read_by_what_is_declared_where_that_fits(
    content_type: str, body: bytes, text: str | None
) -> None:
    """S8: header, byte order mark, the page's own word; and wrong declarations."""
    found = bodies.text_of(body, content_type)
    if text is None:
        assert found.endswith(("日本", "€"))
    else:
        assert found == text


@pytest.mark.parametrize(
    ("content_type", "body", "media_type"),
    [
        ("Text/HTML; charset=x", b"", "text/html"),
        ("", b"<!DOCTYPE html><p>", "text/html"),
        ("", b" \n<!-- hi --> <html>", "text/html"),
        ("", b"plain words", "text/plain"),
        ("", "grüße".encode(), "text/plain"),
        ("", b"\x89PNG\r\n\x1a\n123", "image/png"),
        ("application/octet-stream", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("", b"%PDF-1.7", "application/pdf"),
        ("", b"\0\1\2", "application/octet-stream"),
        ("application/octet-stream", b"\xfe\xfa", "application/octet-stream"),
        ("application/zip", b"words", "application/zip"),
    ],
)
def test_what_a_body_is_follows_from_its_type_or_its_first_bytes(
    content_type: str, body: bytes, media_type: str
) -> None:
    """S8."""
    assert bodies.media_type_of(content_type, body) == media_type


@pytest.mark.parametrize(
    ("media_type", "is_text"),
    [
        ("text/markdown", True),
        ("application/json", True),
        ("application/ld+json", True),
        ("application/rss+xml", True),
        ("image/svg+xml", False),
        ("application/zip", False),
        ("image/png", False),
        ("jsonish", False),
    ],
)
def test_text_is_told_from_files(media_type: str, is_text: bool) -> None:
    """S8."""
    assert bodies.is_text(media_type) is is_text
