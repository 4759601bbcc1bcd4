"""Image headers."""

import base64
import struct
import zlib

import pytest

from sessions_app.engine.images import HEAD, Header, is_text, read, read_base64


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", len(head))
        + b"IHDR"
        + head
        + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    )


def jpeg(width: int, height: int, *, metadata: int = 0, frame: int = 0xC0) -> bytes:
    """As cameras write it: metadata in segments of at most 64 KiB, then the frame."""
    segments = b""
    while metadata > 0:
        part = min(metadata, 65_533)
        segments += b"\xff\xe1" + struct.pack(">H", part + 2) + b"x" * part
        metadata -= part
    tables = b"\xff\xdb" + struct.pack(">H", 67) + b"\0" * 65 + b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    head = b"\xff" + bytes([frame]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return b"\xff\xd8" + segments + tables + head


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 4)


def extended(width: int, height: int) -> bytes:
    sizes = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    return webp(b"VP8X", b"\0\0\0\0" + sizes)


@pytest.mark.parametrize(
    ("make", "media_type"),
    [
        (png, "image/png"),
        (jpeg, "image/jpeg"),
        (gif, "image/gif"),
        (lossy, "image/webp"),
        (lossless, "image/webp"),
        (extended, "image/webp"),
    ],
)
@pytest.mark.parametrize(("width", "height"), [(1, 1), (9000, 100), (300, 16_000)])
def test_the_size_stands_in_the_header(make, media_type, width, height):
    """C37."""
    assert read(make(width, height)) == Header(media_type, width, height)
    assert read(make(width, height) + b"pixels" * 100) == Header(media_type, width, height)


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC2, 0xCF])
def test_a_jpegs_size_stands_behind_its_metadata(frame):
    assert read(jpeg(640, 480, metadata=200_000, frame=frame)) == Header("image/jpeg", 640, 480)


def test_long_metadata_is_read_through_though_the_head_is_read_first():
    image = jpeg(9000, 100, metadata=HEAD)
    assert read(image[:HEAD]) == Header("image/jpeg")
    assert read_base64(base64.b64encode(image).decode()) == Header("image/jpeg", 9000, 100)


@pytest.mark.parametrize("make", [png, jpeg, gif, lossy, lossless, extended])
def test_a_header_that_is_cut_anywhere_is_no_fault(make):
    whole = make(640, 480)
    for end in range(len(whole)):
        found = read(whole[:end])
        assert found is None or found.width in {None, 640}


@pytest.mark.parametrize("data", [b"", b"BM\0\0", b"%PDF-1.7", b"<svg/>", b"RIFF\0\0\0\0WAVE"])
def test_what_is_no_such_image_has_no_header(data):
    assert read(data) is None


@pytest.mark.parametrize("data", ["not base64!", "a", "äöü", "%%%%"])
def test_what_is_no_base64_has_no_header(data):
    assert read_base64(data) is None
    assert is_text(data)


def test_text_in_the_place_of_an_image_is_seen():
    """A page with an error, saved as a picture."""
    assert is_text(base64.b64encode(b"<html>\n<body>502 Bad Gateway").decode())
    assert not is_text(base64.b64encode(png(1, 1)).decode())
    assert not is_text("AAAA")
