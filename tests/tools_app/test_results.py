"""What the log keeps of a tool's result (S8)."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from tools_app.results import Content, UnusableResult, content_of

PIXEL = base64.b64encode(b"\x89PNG").decode()


class Kept:
    """Stands for the artifacts: remembers what it was given."""

    def __init__(self, *, fails: bool = False) -> None:
        self.files: list[tuple[str, str, bytes]] = []
        self.fails = fails

    def __call__(self, *, name: str, media_type: str, data: bytes) -> str | None:
        if self.fails:
            return None
        self.files.append((name, media_type, data))
        return f"art_{len(self.files)}"


def content(result: Any, *, limit: int = 1000, keep: Kept | None = None) -> list[dict[str, Any]]:
    return content_of(result, name="tool", limit=limit, keep=keep)


@pytest.mark.parametrize(
    ("result", "blocks"),
    [
        (None, []),
        ("hello", [{"type": "text", "text": "hello"}]),
        ("", [{"type": "text", "text": ""}]),
        ({"a": 1}, [{"type": "data", "value": {"a": 1}}]),
        ([1, "b"], [{"type": "data", "value": [1, "b"]}]),
        (False, [{"type": "data", "value": False}]),
        (Content([{"type": "text", "text": "x"}]), [{"type": "text", "text": "x"}]),
        (Content([{"type": "media", "artifact": "art_x"}]), [{"type": "media", "artifact": "art_x"}]),
    ],
)
def test_text_and_json_become_blocks(result: Any, blocks: list[dict[str, Any]]) -> None:
    """S8."""
    assert content(result) == blocks


class Colour(Enum):
    RED = "red"


@dataclass
class Ticket:
    opened: datetime
    colours: set[Colour]


class Answer(BaseModel):
    ticket: Ticket
    price: Decimal


def test_models_and_dataclasses_become_json() -> None:
    """S8: what a typed function gives back needs no hand to be stored."""
    ticket = Ticket(datetime(2030, 1, 31, 12, tzinfo=UTC), {Colour.RED})
    stored = {"opened": "2030-01-31T12:00:00Z", "colours": ["red"]}
    assert content([ticket]) == [{"type": "data", "value": [stored]}]
    answer = Answer(ticket=ticket, price=Decimal("1.50"))
    assert content(answer) == [{"type": "data", "value": {"ticket": stored, "price": "1.50"}}]


def test_what_can_not_be_stored_is_replaced_keys_included() -> None:
    """S8: U+FFFD for U+0000 and lone surrogates, null for what is no number."""
    dirty = {"a\x00": "b\ud800", "n": [float("nan"), float("inf"), 1.5]}
    assert content(dirty) == [{"type": "data", "value": {"a\ufffd": "b\ufffd", "n": [None, None, 1.5]}}]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"a": object()}, "can't be stored as JSON"),
        ({1: "a"}, "can't be stored as JSON"),
        (b"\xff", "can't be stored as JSON"),
        pytest.param(10**5000, "can't be stored as JSON", id="a number of 5000 digits"),
        (Content([{"type": "video"}]), "no whole text, data or media"),
        (Content([{"type": "text"}]), "no whole text, data or media"),
        (Content([{"type": "text", "text": 5}]), "no whole text, data or media"),
        (Content(["text"]), "no whole text, data or media"),  # type: ignore[list-item]
    ],
)
def test_what_is_no_result_is_said_to_be_none(result: Any, words: str) -> None:
    """S8: the tool's mistake, in words."""
    with pytest.raises(UnusableResult, match=words):
        content(result)


def test_oversized_text_is_cut_to_its_ends_and_kept_whole_elsewhere() -> None:
    """S8: head and tail with the cut marked, the full bytes as an artifact."""
    text = "H" * 600 + "é" * 600 + "T" * 600
    keep = Kept()
    (block,) = content(text, limit=1000, keep=keep)
    assert len(block["text"]) <= 1000
    assert block["text"].startswith("HHH")
    assert "characters left out" in block["text"]
    assert "TTT\n(the whole output of 1800 characters is artifact art_1)" in block["text"]
    assert keep.files == [("tool.txt", "text/plain; charset=utf-8", text.encode())]


def test_text_of_exactly_the_limit_is_left_alone() -> None:
    """S8."""
    keep = Kept()
    assert content("x" * 1000, keep=keep) == [{"type": "text", "text": "x" * 1000}]
    assert keep.files == []


def test_oversized_json_is_kept_as_json() -> None:
    """S8."""
    keep = Kept()
    value = {"rows": list(range(1000))}
    (block,) = content(value, limit=1000, keep=keep)
    assert block["type"] == "text"
    assert len(block["text"]) <= 1000
    ((name, media_type, data),) = keep.files
    assert (name, media_type, json.loads(data)) == ("tool.json", "application/json", value)


def test_the_limit_holds_for_all_blocks_together_and_media_stay() -> None:
    """S8."""
    parts = [
        {"type": "text", "text": "x" * 700},
        {"type": "media", "artifact": "art_x"},
        {"type": "data", "value": "y" * 700},
    ]
    text, media = content(Content(parts), limit=1000, keep=Kept())
    assert len(text["text"]) <= 1000
    assert media == {"type": "media", "artifact": "art_x"}


@pytest.mark.parametrize("keep", [None, Kept(fails=True)])
def test_a_cut_result_that_is_not_kept_names_no_artifact(keep: Kept | None) -> None:
    """S8: internal tools may touch nothing but the database, and storages fail."""
    (block,) = content("x" * 5000, limit=1000, keep=keep)
    assert "artifact" not in block["text"]
    assert len(block["text"]) <= 1000


def test_media_by_value_becomes_an_artifact() -> None:
    """S8: the log holds references, not files."""
    keep = Kept()
    (block,) = content(Content([{"type": "media", "data": PIXEL, "media_type": "image/png"}]), keep=keep)
    assert block == {"type": "media", "artifact": "art_1"}
    assert keep.files == [("tool", "image/png", b"\x89PNG")]


@pytest.mark.parametrize(
    ("block", "keep", "words"),
    [
        ({"data": PIXEL, "media_type": "image/png"}, None, "by value"),
        ({"data": "not base64!", "media_type": "image/png"}, Kept(), "not base64"),
        ({"data": PIXEL}, Kept(), "no whole text, data or media"),
        ({"media_type": "image/png"}, Kept(), "no whole text, data or media"),
    ],
)
def test_media_that_can_not_be_kept_is_refused(block: dict[str, Any], keep: Kept | None, words: str) -> None:
    """S8."""
    with pytest.raises(UnusableResult, match=words):
        content(Content([{"type": "media"} | block]), keep=keep)


def test_media_that_the_storage_does_not_take_leaves_a_line() -> None:
    """S8: the rest of the result is still worth having."""
    blocks = content(
        Content([{"type": "media", "data": PIXEL, "media_type": "image/png"}, {"type": "text", "text": "x"}]),
        keep=Kept(fails=True),
    )
    assert blocks == [
        {"type": "text", "text": "(a file of type image/png could not be kept)"},
        {"type": "text", "text": "x"},
    ]
