"""Entries as they stand in a log, written without the services."""

from typing import Any

from django.db import transaction

from sessions_app.log import NewEntry, append
from sessions_app.models import Session
from tests import factories

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def write(session: Session, *entries: tuple[str, dict[str, Any]]) -> list[int]:
    """Their seqs."""
    with transaction.atomic():
        placed = append(
            session, *(NewEntry(kind=kind, data=data, actor=factories.ACTOR) for kind, data in entries)
        )
        session.save()
    return [row.seq for row in placed]


def said(text: str) -> tuple[str, dict[str, Any]]:
    return "user_message", {"input": None, "delivery": "queued", "content": [{"type": "text", "text": text}]}


def reply(*blocks: dict[str, Any], **data: Any) -> tuple[str, dict[str, Any]]:
    whole = {
        "model_call": None,
        "provider": "scripted",
        "model": "echo",
        "content": list(blocks),
        "stop": "done",
        "raw_stop": None,
        "usage": {"input_tokens": 10, "output_tokens": 20},
    }
    return "assistant_message", whole | data


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}
