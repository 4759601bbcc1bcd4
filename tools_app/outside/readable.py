"""The readable text of a web page, made by a process of its own (see `extractor`).

Only a few of them run at once. Where one dies or takes too long, the page is read without its markup, crudely and
in bounded time, and the caller is told.
"""

import asyncio
import html
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import structlog

logger = structlog.get_logger(__name__)

AT_ONCE = 4
TIME_LIMIT = 20.0
CRUDE_CHARACTERS = 2_000_000

_PROGRAM = str(Path(__file__).with_name("extractor.py"))
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")
_SILENT = re.compile(r"<(script|style|template)\b", re.IGNORECASE)
_ENDS = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in ("script", "style", "template")}
_TAG = re.compile(r"</?[a-zA-Z!?][^<>]*(?:>|$)")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Readable:
    """`is_crude`: only the markup was left out, because the page could not be read properly."""

    title: str | None
    text: str
    is_crude: bool = False


async def readable(page: str, *, url: str, time_limit: float = TIME_LIMIT) -> Readable:
    """The title and the text of a page, as Markdown."""
    async with _place():
        found = await _extracted(page, url, time_limit)
    if found is not None and found.text.strip():
        return found
    rest = await asyncio.to_thread(without_markup, page[:CRUDE_CHARACTERS])
    return Readable(found.title if found else None, rest, is_crude=bool(rest))


async def _extracted(page: str, url: str, time_limit: float) -> Readable | None:
    try:
        process = await _started(url)
    except OSError:  # no more processes or files for now
        logger.warning("web_fetch.reader_not_started", exc_info=True)
        return None
    try:
        async with asyncio.timeout(time_limit):
            answer, _ = await process.communicate(page.encode("utf-8", "replace"))
    except TimeoutError:
        answer = b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        found = json.loads(answer)
    except ValueError:
        logger.warning("web_fetch.page_not_read", exit_code=process.returncode, characters=len(page))
        return None
    return Readable(found["title"], found["text"])


async def _started(url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        _PROGRAM,
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )


_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _place() -> asyncio.Semaphore:
    return _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


def without_markup(page: str) -> str:
    """The text between the tags. In time that grows with the length and no faster, whatever the text."""
    lines = (
        _BLANKS.sub(" ", line).strip() for line in html.unescape(_TAG.sub(" ", _spoken(page))).splitlines()
    )
    return "\n".join(line for line in lines if line)


def _spoken(page: str) -> str:
    """Without scripts and styles; one that never ends silences the rest."""
    parts = []
    at = 0
    while (opening := _SILENT.search(page, at)) is not None:
        parts.append(page[at : opening.start()])
        closing = _ENDS[opening[1].lower()].search(page, opening.end())
        if closing is None:
            return " ".join(parts)
        at = closing.start()
    return " ".join([*parts, page[at:]])
