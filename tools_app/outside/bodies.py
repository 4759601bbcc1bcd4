"""The body of an answer from somewhere else: never more of it than was asked for, and read as what it is. Pure.

A few bytes can unpack to gigabytes, so packed bodies are unpacked here, piece by piece, with a bound on what comes
out as well as on what comes in. Only gzip and deflate are asked for; what nobody asked for is refused.
"""

import codecs
import json
import re
import zlib
from typing import Any, Protocol

_GZIP = 16 + zlib.MAX_WBITS

# What browsers read; Python's other encodings are slow, or no encodings of text.
_CHARSETS = frozenset(
    [
        *("ascii", "utf-8", "utf-16", "utf-16-le", "utf-16-be"),
        *(f"iso8859-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)),
        *(
            f"cp{number}"
            for number in (866, 874, 932, 949, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)
        ),
        *("koi8-r", "koi8-u", "mac-roman", "gbk", "gb2312", "gb18030", "big5", "big5hkscs"),
        *("euc_jp", "shift_jis", "iso2022_jp", "euc_kr"),
    ]
)
# By the web's own rule these names mean the larger encodings.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(
    rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([a-zA-Z0-9_.:-]{1,40})", re.IGNORECASE
)
_XML = re.compile(rb"\s{0,100}<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([a-zA-Z0-9_.:-]{1,40})")
_HTML = re.compile(
    rb"\s{0,1000}(<!--.{0,500}?-->\s{0,100})?<(!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_SNIFFED = 1024


class Unreadable(ValueError):
    """The body is packed in a way that can't be undone."""


class Unpacked:
    """Collects a body of at most `limit` bytes from its packed pieces; `is_cut` once there is more than that."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._unpack = _unpacker(encoding)
        self._limit = limit
        self._received = 0
        self._parts: list[bytes] = []
        self._size = 0
        self.is_cut = False

    def add(self, piece: bytes) -> None:
        """Take the next piece, until the body is cut; raises `Unreadable`."""
        self._received += len(piece)
        # One byte more than the limit tells whether there is more.
        part = self._unpack(piece, self._limit - self._size + 1)
        self._parts.append(part)
        self._size += len(part)
        # Bytes that unpack to nothing come to an end as well.
        self.is_cut = self._size > self._limit or self._received > self._limit + (1 << 16)

    def body(self) -> bytes:
        """What came, when nothing more comes; a packed body that ends in its middle is cut as well."""
        if self._received and not self._unpack.is_whole():
            self.is_cut = True
        return b"".join(self._parts)[: self._limit]


class _Unpack(Protocol):
    def __call__(self, piece: bytes, most: int) -> bytes: ...

    def is_whole(self) -> bool: ...


def _unpacker(encoding: str) -> _Unpack:
    match encoding.strip().lower():
        case "" | "identity":
            return _AsItIs()
        case "gzip" | "x-gzip":
            return _Inflate(_GZIP)
        case "deflate":
            return _Inflate(None)
        case other:
            raise Unreadable(f"the answer is packed as {other[:40]!r}, which was not asked for")


class _AsItIs:
    def __call__(self, piece: bytes, most: int) -> bytes:
        return piece[:most]

    def is_whole(self) -> bool:
        return True


class _Inflate:
    def __init__(self, bits: int | None) -> None:
        self._bits = bits
        self._inner = None if bits is None else zlib.decompressobj(bits)

    def __call__(self, piece: bytes, most: int) -> bytes:
        try:
            return self._inflated(piece, most)
        except zlib.error:
            raise Unreadable("the answer is not packed as it says") from None

    def is_whole(self) -> bool:
        return self._inner is not None and self._inner.eof

    def _inflated(self, piece: bytes, most: int) -> bytes:
        if self._inner is None:
            # "deflate" comes with and without the zlib header; the first byte tells.
            raw = bool(piece) and piece[0] & 0x0F != zlib.DEFLATED
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS)
        out = self._inner.decompress(piece, most)
        while self._inner.eof and self._inner.unused_data and self._bits == _GZIP and len(out) < most:
            rest = self._inner.unused_data  # gzip files may follow each other
            self._inner = zlib.decompressobj(_GZIP)
            out += self._inner.decompress(rest, most - len(out))
        return out


def media_type_of(content_type: str, body: bytes) -> str:
    """The media type in lower case, without parameters; guessed from the body where nothing is said."""
    declared = content_type.partition(";")[0].strip().lower()
    if declared and declared != "application/octet-stream":
        return declared
    image = image_type(body)
    if image is not None:
        return image
    if _HTML.match(body):
        return "text/html"
    if body.startswith(b"%PDF-"):
        return "application/pdf"
    if b"\0" in body[:_SNIFFED]:
        return declared or "application/octet-stream"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body[:_SNIFFED])
    except UnicodeDecodeError:
        return declared or "application/octet-stream"
    return "text/plain"


def is_html(media_type: str) -> bool:
    return media_type in {"text/html", "application/xhtml+xml"}


def is_text(media_type: str) -> bool:
    kind, _, rest = media_type.partition("/")
    return (
        kind == "text"
        or rest in {"json", "xml", "yaml", "x-yaml", "toml", "javascript", "x-javascript", "x-ndjson", "sql"}
        or rest.endswith(("+json", "+xml", "+yaml"))
    ) and rest != "svg+xml"


def is_json(media_type: str) -> bool:
    return media_type in {"application/json", "text/json"} or media_type.endswith("+json")


def image_type(body: bytes) -> str | None:
    """The image type that the first bytes show, of those that models read."""
    for mark, media_type in _IMAGES:
        if body.startswith(mark):
            return media_type
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return None


def text_of(body: bytes, content_type: str) -> str:
    """The body as text: by its byte order mark, by what the header or the page says, else as UTF-8.

    What is declared is believed where it fits the bytes; nothing is too wrong to be read somehow.
    """
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    declared = _charset(_parameter(content_type)) or _charset(_declared_inside(body)) or "utf-8"
    for charset in (declared, "utf-8"):
        try:
            return _strictly(body, charset)
        except UnicodeDecodeError:
            continue
    return body.decode("cp1252" if declared == "utf-8" else declared, "replace")


def _strictly(body: bytes, charset: str) -> str:
    """Decoded, but for a last character that a cut went through."""
    text: str = codecs.getincrementaldecoder(charset)().decode(body)
    return text


def _parameter(content_type: str) -> str:
    match = re.search(r"charset\s*=\s*[\"']?\s*([a-zA-Z0-9_.:-]{1,40})", content_type[:500], re.IGNORECASE)
    return match[1] if match else ""


def _declared_inside(body: bytes) -> str:
    match = _XML.match(body[:_SNIFFED]) or _META.search(body[:_SNIFFED])
    name = match[1].decode() if match else ""
    # A page whose declaration could be read as ASCII is not in UTF-16.
    return "utf-8" if name.lower().startswith("utf-16") else name


def _charset(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name if label else ""
    except LookupError:
        return None
    return _MEANT.get(name, name) if name in _CHARSETS else None


def json_of(text: str) -> Any:
    """The value, or `ValueError` where it is none that can be used."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
