"""A page in, its readable text out: the program that `readable` starts for each page.

A process of its own, because the parser is C code fed by strangers: a page of some hundred kilobytes can keep it
busy for half a minute, in a call that no thread can be taken out of. Here the system sets the bounds, nothing of the
worker's memory or environment is in reach, and dying harms nobody. Reads HTML in UTF-8 from stdin, writes
`{"title", "text"}` as JSON to stdout.
"""

import json
import resource
import sys
from typing import Any
from urllib.parse import urljoin

CPU_SECONDS = 10
MEMORY = 2 << 30
MAX_TEXT = 2_000_000
_SHORT = 500  # characters that are hardly an article


def _limit() -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))


def _read(html: str, url: str) -> dict[str, str | None]:
    import trafilatura

    tree = trafilatura.load_html(html)
    if tree is None:
        return {"title": None, "text": ""}
    title = tree.findtext(".//title")
    _complete_links(tree, url)
    text = trafilatura.extract(
        tree,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_comments=True,
        with_metadata=False,
        favor_recall=True,
    )
    # A page that is no article: everything that can be read on it.
    everything = trafilatura.html2txt(html) if not text or len(text) < _SHORT else ""
    if len(everything) > 2 * len(text or ""):
        text = everything
    return {"title": " ".join(title.split()) if title else None, "text": (text or "")[:MAX_TEXT]}


def _complete_links(tree: Any, url: str) -> None:
    """Links as addresses that can be fetched. The extractor's own way loses the folder of the page."""
    base = tree.find(".//base[@href]")
    if base is not None:
        url = _joined(url, base.get("href"))
    for link in tree.iter("a"):
        target = (link.get("href") or "").strip()
        if target:
            link.set("href", _joined(url, target))


def _joined(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return target


def main() -> None:
    _limit()
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    answer = _read(html, sys.argv[1])
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
