"""Code blocks of the guides, for tests that run them."""

import re
from pathlib import Path

from django.conf import settings

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: str, language: str) -> list[str]:
    """The blocks of `docs/guides/<guide>.md` in this language, in order."""
    text = (Path(settings.BASE_DIR) / "docs" / "guides" / f"{guide}.md").read_text()
    return [body for name, body in _BLOCK.findall(text) if name == language]


def file_of(block: str) -> str:
    """The name of the file that a block of Python says it is, in its first line."""
    first, _, _ = block.partition("\n")
    return first.removeprefix("# ").strip()
