"""How a measuring command speaks: rows as they come, the same as JSON, and one closing line."""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

RESULTS = Path(__file__).resolve().parent / "results"


class FellShort(Exception):
    """What was to be measured cannot be; the message says why."""


class Report:
    """`row` prints and keeps a row; `close` writes `bench/results/<name>.json` and says how it went.

    `folder` is another place for the JSON.
    """

    def __init__(self, name: str, out: TextIO, folder: Path | None = None) -> None:
        self.name = name
        self.out = out
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        self.short: list[str] = []

    def say(self, text: str) -> None:
        self.out.write(text + "\n")
        self.out.flush()

    def row(self, what: str, **values: Any) -> None:
        self.rows.append({"what": what, **values})
        shown = "  ".join(f"{name}={_shown(value)}" for name, value in values.items())
        self.say(f"  {what:<34} {shown}")

    def expect(self, met: bool, why: str) -> None:
        """Note a target that was missed."""
        if not met:
            self.short.append(why)

    def close(self) -> int:
        """The closing line; returns the exit status."""
        folder = self.folder or RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "name": self.name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "rows": self.rows,
            "fell_short": self.short,
        }
        (folder / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n")
        if self.short:
            self.say(f"{self.name}: fell short: {'; '.join(self.short)}")
            return 1
        self.say(f"{self.name}: ok")
        return 0


def _shown(value: Any) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 1000
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )


def percentile(values: list[float], share: float) -> float:
    """The nearest-rank percentile of a non-empty list."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]
