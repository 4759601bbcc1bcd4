"""Content blocks for templates: text, files, values. What is in them is escaped there, or goes through `markdown`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.urls import reverse

from sessions_app import ids
from sessions_app.models import Artifact

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Types that a page may show; an SVG is a document and is offered for download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An artifact as a page links to it."""

    name: str
    media_type: str
    size: int
    address: str

    @property
    def is_image(self) -> bool:
        return self.media_type.partition(";")[0].strip().lower() in IMAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One block. `kind` is text, reasoning, file, missing, value or call; the other fields go with it."""

    kind: str
    text: str = ""
    file: File | None = None
    value: Any = None
    card: Any = None  # cards.Card of a call, None where nobody has its row


def files_in(contents: Iterable[Iterable[Mapping[str, Any]]], *, project: UUID) -> dict[str, File]:
    """The artifacts that these contents name, by TypeID, in one query (none where there is no file)."""
    wanted = {
        block["artifact"]
        for content in contents
        for block in content
        if block.get("type") == "media" and isinstance(block.get("artifact"), str)
    }
    if not wanted:
        return {}
    rows = Artifact.objects.filter(project_id=project, pk__in=[key for key in map(_decoded, wanted) if key])
    return {ids.encode("art", row.pk): _file(row) for row in rows}


def _file(row: Artifact) -> File:
    key = ids.encode("art", row.pk)
    return File(
        name=row.name,
        media_type=row.media_type,
        size=row.size,
        address=reverse("console:file", args=[key]),
    )


def shown(content: Iterable[Mapping[str, Any]], files: Mapping[str, File]) -> list[Shown]:
    """Every block but calls, which have their cards."""
    found = []
    for block in content:
        match block.get("type"):
            case "text":
                if str(block.get("text", "")).strip():
                    found.append(Shown(kind="text", text=str(block["text"])))
            case "reasoning":
                if str(block.get("text", "")).strip():
                    found.append(Shown(kind="reasoning", text=str(block["text"])))
            case "media":
                file = files.get(str(block.get("artifact")))
                kind = "missing" if file is None else "file"
                found.append(Shown(kind=kind, file=file, text=str(block.get("artifact", ""))))
            case "data":
                found.append(Shown(kind="value", value=block.get("value")))
            case "tool_call":
                continue
            case _:
                found.append(Shown(kind="value", value=dict(block)))
    return found


def _decoded(text: str) -> UUID | None:
    try:
        return ids.decode("art", text)
    except ids.InvalidId:
        return None
