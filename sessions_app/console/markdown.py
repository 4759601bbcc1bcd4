"""Markdown of models and people as HTML that can do nothing.

What a model says is hostile: it may repeat what a web page or a tool told it to. markdown-it renders without raw
HTML, and nh3 (ammonia) then lets only a short list of elements through, whatever the renderer did. Images are
never loaded, because a request for one can carry away what the model knows; they become links. Links leave
without a referrer, and look like the address that they go to.
"""

import string
from collections.abc import MutableMapping, Sequence
from typing import Any

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

MAX_CHARACTERS = 200_000
"""Longer text is shown as it is: rendering it would hold up the page."""

MAX_MARKS = 60_000
"""What one answer spends on rendering; each mark may cost twenty microseconds. What is left over is shown as it is."""

_MARKS = string.punctuation + "\n"

_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "code": {"class"}}
_SCHEMES = {"http", "https", "mailto"}
# A page has its own headings above those of a text.
_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6"}


class _Renderer(RendererHTML):
    def image(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        """A link to the picture, named by its text."""
        token = tokens[idx]
        address = nh3.clean_text(str(token.attrs.get("src", "")))
        words = nh3.clean_text(self.renderInlineAsText(token.children or [], options, env)) or "image"
        return f'<a href="{address}">[{words}]</a>'


_reader = (
    MarkdownIt("commonmark", {"html": False, "linkify": False}, renderer_cls=_Renderer)
    .enable("table")
    .enable("strikethrough")
)


class Allowance:
    """What the texts of one answer may cost together: hostile ones must not hold up the process for everybody."""

    def __init__(self, marks: int = MAX_MARKS) -> None:
        self._left = marks

    def to_html(self, text: str) -> SafeString:
        """Markdown as safe HTML, or as it is where that is too much."""
        cost = sum(map(text.count, _MARKS))
        if cost > self._left:
            return _as_it_is(text)
        self._left -= cost
        return to_html(text)


def _as_it_is(text: str) -> SafeString:
    return format_html("<pre>{}</pre>", text)


def to_html(text: str) -> SafeString:
    """Markdown as safe HTML; very long text as it is."""
    if len(text) > MAX_CHARACTERS:
        return _as_it_is(text)
    tokens = _reader.parse(text)
    for token in tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)
    found = _reader.renderer.render(tokens, _reader.options, {})
    clean = nh3.clean(
        found,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
    return mark_safe(clean)  # noqa: S308 - cleaned by nh3
