"""The tags and filters of the console's templates, loaded by `{% load console %}`."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app import ids
from sessions_app.console import markdown as rendering
from sessions_app.console.standing import Standing, Tone

register = template.Library()

ICONS: Mapping[Tone, str] = {
    "quiet": "circle",
    "ok": "check",
    "live": "spark",
    "queued": "clock",
    "wait": "pause",
    "ask": "hand",
    "warn": "retry",
    "bad": "cross",
}
"""The icon of each tone; the words beside it say the same."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@register.simple_tag
def icon(name: str) -> SafeString:
    """A picture from static/console/icons.svg; never the only thing that says something."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>',
        static("console/icons.svg"),
        name,
    )


@register.simple_tag
def badge(standing: Standing) -> SafeString:
    """A status: icon, word and colour."""
    return format_html(
        '<span class="badge" data-tone="{}">{}<span>{}</span></span>',
        standing.tone,
        icon(ICONS[standing.tone]),
        standing.word,
    )


@register.simple_tag
def moment(value: datetime | None) -> SafeString | str:
    """A time as its distance from now; time.js keeps it true, and the exact time is its title."""
    if value is None:
        return ""
    exact = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}" data-relative>{}</time>',
        exact.isoformat(),
        exact.strftime("%Y-%m-%d %H:%M:%S UTC"),
        distance(exact, datetime.now(UTC)),
    )


def distance(then: datetime, now: datetime) -> str:
    """As time.js says it: `now`, `12 s ago`, `in 3 min`, `5 h ago`, `4 d ago`, else the day."""
    seconds = (now - then).total_seconds()
    size = abs(seconds)
    if size < 3:
        return "now"
    if size >= 30 * _DAY:
        return then.strftime("%Y-%m-%d")
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if size >= unit:
            words = f"{int(size // unit)} {name}"
            break
    else:
        words = f"{int(size)} s"
    return f"{words} ago" if seconds > 0 else f"in {words}"


@register.filter
def duration(seconds: float | timedelta | None) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds is None:
        return "–"
    size = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if size < 10:
        return f"{size:.1f} s"
    if size < _MINUTE:
        return f"{size:.0f} s"
    if size < _HOUR:
        return f"{size // _MINUTE:.0f} min {size % _MINUTE:.0f} s"
    return f"{size // _HOUR:.0f} h {size % _HOUR // _MINUTE:.0f} min"


@register.filter
def typeid(value: UUID | None, prefix: str) -> str:
    """The id as the API writes it."""
    return "" if value is None else ids.encode(prefix, value)


@register.simple_tag(takes_context=True)
def markdown(context: template.RequestContext, text: str) -> SafeString:
    """Markdown of whoever, safe to show; all texts of one answer share what may be spent on them."""
    # The request is what all templates of an answer have in common.
    request: Any = context.request
    if not hasattr(request, "markdown_allowance"):
        request.markdown_allowance = rendering.Allowance()
    return cast("rendering.Allowance", request.markdown_allowance).to_html(text)


@register.filter
def money(value: Decimal | None) -> str:
    """USD with as many digits as the amount needs; an unknown price is a dash, not a zero."""
    if value is None:
        return "–"
    if value == 0:
        return "$0"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}" if value >= Decimal("0.0001") else "<$0.0001"


@register.filter
def compact(value: int | None) -> str:
    """`950`, `12.3k`, `4.5M`: for numbers that are compared at a glance."""
    size = int(value or 0)
    if size < 1000:
        return str(size)
    for unit, name in ((10**9, "B"), (10**6, "M")):
        if size >= unit:
            return f"{size / unit:.1f}{name}"
    return f"{size / 1000:.1f}k" if size < 100_000 else f"{size // 1000}k"


@register.filter
def pretty(value: Any) -> str:
    """JSON for people; a template escapes it."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)
