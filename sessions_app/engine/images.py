"""What the first bytes of an image say: its format and its size in pixels. Pure.

Providers refuse images whose bytes are of another format than was declared, and images with too many pixels.
All they and we need for that stands in the header, so the pixels are never decoded: that is slow, and decoders
are what malicious images are made for. PNG, JPEG, GIF and WebP are what every provider takes.
"""

import base64
import binascii
from typing import NamedTuple

HEAD = 262_144  # base64 characters read first; only JPEGs with long metadata have their size further back

_NO_SIZE = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG markers that stand alone
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # JPEG markers that hold the size


class Header(NamedTuple):
    """`width` and `height` are None where the header is cut off."""

    media_type: str
    width: int | None = None
    height: int | None = None


def read_base64(data: str) -> Header | None:
    """The header of an image in base64; None for what is no image, or no base64."""
    try:
        found = read(base64.b64decode(data[:HEAD]))
        if found is not None and found.width is None and len(data) > HEAD:
            found = read(base64.b64decode(data))
    except (binascii.Error, ValueError):
        return None
    return found


def is_text(data: str) -> bool:
    """Whether base64 holds text (a page with an error, an SVG), or is no base64 at all."""
    try:
        head = base64.b64decode(data[:64], validate=True)
    except (binascii.Error, ValueError):
        return True
    return bool(head) and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head)


def read(head: bytes) -> Header | None:
    """The header that these bytes begin with."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return Header("image/png", *_numbers(head, (16, 4), (20, 4), "big"))
    if head.startswith((b"GIF87a", b"GIF89a")):
        return Header("image/gif", *_numbers(head, (6, 2), (8, 2), "little"))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Header("image/webp", *_webp(head))
    if head.startswith(b"\xff\xd8\xff"):
        return Header("image/jpeg", *_jpeg(head))
    return None


def _numbers(
    head: bytes, width: tuple[int, int], height: tuple[int, int], order: str
) -> tuple[int, int] | tuple[None, None]:
    """Two numbers, each at (offset, bytes)."""
    found = []
    for offset, length in (width, height):
        part = head[offset : offset + length]
        if len(part) < length:
            return None, None
        found.append(int.from_bytes(part, "big" if order == "big" else "little"))
    return found[0], found[1]


def _webp(head: bytes) -> tuple[int, int] | tuple[None, None]:
    match head[12:16]:
        case b"VP8X" if len(head) >= 30:
            width, height = _numbers(head, (24, 3), (27, 3), "little")
            return (width + 1, height + 1) if width is not None and height is not None else (None, None)
        case b"VP8L" if len(head) >= 25:
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if len(head) >= 30:
            bits = int.from_bytes(head[26:30], "little")
            return bits & 0x3FFF, bits >> 16 & 0x3FFF
    return None, None


def _jpeg(head: bytes) -> tuple[int, int] | tuple[None, None]:
    """Segment by segment to the one that begins the frame."""
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None, None
        marker = head[at + 1]
        if marker == 0xFF:  # fill
            at += 1
        elif marker in _NO_SIZE:
            at += 2
        elif marker in _FRAMES:
            height, width = _numbers(head, (at + 5, 2), (at + 7, 2), "big")
            return (width, height) if width is not None and height is not None else (None, None)
        else:
            at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None, None
