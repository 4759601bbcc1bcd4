"""The settings reference, written from the table in `tenure_settings.py`, so that the two can't differ.

    python -m config.settings_reference     writes docs/reference/settings.md

A test compares the file with what this writes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from config import tenure_settings

FILE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
COMMAND = "python -m config.settings_reference"

_HEAD = f"""\
# Settings

Read from the environment at start. A wrong value, an unknown `TENURE_…` name or a contradiction stops the start
with a message that names every one of them. Durations are numbers of seconds, or written `500ms`, `30s`, `10m`,
`24h`, `2d`; lists are separated by commas. This page is written by `{COMMAND}`.

| setting | type | default | range | meaning |
|---|---|---|---|---|
"""

_TAIL = """
## Read as well

| variable | meaning |
|---|---|
| `DATABASE_URL` | the PostgreSQL database, 15 or newer, as a libpq URL; without it the embedded one in `.tenure/` |
| `OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GOOGLE_API_KEY`, … | a provider's key; never sent to a `base_url` |
| `HTTPS_PROXY` | a proxy towards the providers' own servers |

## What has to fit together

- `TENURE_SECRET_KEY` is required unless `TENURE_DEBUG` is on.
- `TENURE_HEARTBEAT_INTERVAL` is at most a third of `TENURE_WORKER_TTL`.
- `TENURE_WORKER_DRAIN_MARGIN` is shorter than `TENURE_WORKER_DRAIN_TIMEOUT`.
- `TENURE_RETRY_BASE` is not longer than `TENURE_RETRY_MAX`.
"""

_TYPES: dict[Callable[[str], Any], str] = {
    tenure_settings._duration: "duration",  # noqa: SLF001 - the table's own words
    tenure_settings._integer: "whole number",  # noqa: SLF001
    tenure_settings._boolean: "true or false",  # noqa: SLF001
    tenure_settings._words: "list",  # noqa: SLF001
    tenure_settings._networks: "list of CIDRs",  # noqa: SLF001
    tenure_settings._key_ring: "list",  # noqa: SLF001
    tenure_settings._search_provider: "brave or tavily",  # noqa: SLF001
    tenure_settings._address: "address",  # noqa: SLF001
    tenure_settings._level: "DEBUG, INFO, WARNING, ERROR or CRITICAL",  # noqa: SLF001
    str: "text",
}
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def render() -> str:
    """The whole page."""
    rows = [
        f"| `{tenure_settings.PREFIX}{name.upper()}` | {_TYPES[field.metadata['parse']]} "
        f"| {_value(field.default, field.metadata['parse'])} | {_range(field.metadata)} | {field.metadata['doc']} |"
        for name, field in tenure_settings.FIELDS.items()
    ]
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


def _range(metadata: Any) -> str:
    low, high, parse = metadata["low"], metadata["high"], metadata["parse"]
    if low is None and high is None:
        return ""
    return f"{_bare(low, parse)} to {_bare(high, parse)}"


def _value(default: Any, parse: Callable[[str], Any]) -> str:
    if default in {"", ()}:
        return ""
    return f"`{_bare(default, parse)}`"


def _bare(value: Any, parse: Callable[[str], Any]) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(value)
    if parse is tenure_settings._duration:  # noqa: SLF001
        return _duration(float(value))
    return str(value)


def _duration(seconds: float) -> str:
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    # The largest unit that says it in a whole number above one: 2d, 24h, 90s.
    for unit, length in _UNITS:
        count = seconds / length
        if count.is_integer() and (unit == "s" or count > 1):
            return f"{count:g}{unit}"
    return f"{seconds:g}s"


def main() -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(render())


if __name__ == "__main__":
    main()
