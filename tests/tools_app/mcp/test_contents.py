"""Results as MCP writes them, and what the log holds of them."""

from typing import Any

import pytest

from tools_app.mcp.contents import MAX_BLOCKS, content_of

TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("item", "block"),
    [
        (TEXT, TEXT),
        (
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "media", "data": "aGk=", "media_type": "image/png"},
        ),
        (
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "media", "data": "aGk=", "media_type": "audio/wav"},
        ),
        (
            {"type": "image", "data": "no base64!", "mimeType": "image/png"},
            {"type": "text", "text": "(image: its bytes are not base64)"},
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "text", "text": "file:///a.txt:\ninside"},
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///d/a.pdf", "blob": "aGk="}},
            {"type": "media", "data": "aGk=", "media_type": "application/octet-stream", "name": "a.pdf"},
        ),
        (
            {"type": "resource_link", "uri": "file:///a", "name": "a", "title": "The A"},
            {"type": "text", "text": "The A - file:///a"},
        ),
        ({"type": "hologram", "x": 1}, {"type": "data", "value": {"type": "hologram", "x": 1}}),
    ],
)
def test_each_kind_of_content_has_its_block(item: dict[str, Any], block: dict[str, Any]) -> None:
    assert content_of({"content": [item]}).blocks == [block]


@pytest.mark.parametrize(
    ("texts", "structured", "blocks"),
    [
        (['{"a": 1}'], {"a": 1}, [{"type": "data", "value": {"a": 1}}]),
        (['{"a": true}'], {"a": 1}, [{"type": "data", "value": {"a": 1}}, "{same}"]),
        (["all is well"], {"a": 1}, [{"type": "data", "value": {"a": 1}}, "{same}"]),
        (["5"], {"result": 5}, ["{same}"]),
        (["hi"], {"result": "hi"}, ["{same}"]),
        (["[1]"], {"result": 5}, [{"type": "data", "value": {"result": 5}}, "{same}"]),
        ([], {"a": 1}, [{"type": "data", "value": {"a": 1}}]),
        ([], [], [{"type": "data", "value": []}]),
    ],
)
def test_a_model_reads_structured_content_once(texts: list[str], structured: Any, blocks: list[Any]) -> None:
    items = [{"type": "text", "text": text} for text in texts]
    expected = [items[0] if block == "{same}" else block for block in blocks]
    assert content_of({"content": items, "structuredContent": structured}).blocks == expected


def test_a_list_of_values_is_not_told_twice() -> None:
    items = [{"type": "text", "text": "1"}, {"type": "text", "text": "two"}]
    result = {"content": items, "structuredContent": {"result": [1, "two"]}}
    assert content_of(result).blocks == items


def test_the_number_of_parts_is_bounded() -> None:
    blocks = content_of({"content": [TEXT] * (MAX_BLOCKS + 7)}).blocks
    assert len(blocks) == MAX_BLOCKS + 1
    assert blocks[-1] == {"type": "text", "text": "(7 more parts were left out)"}
