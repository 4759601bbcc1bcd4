"""Transcripts of three formats as one, and mistakes that name their place."""

import base64
from typing import Any

import pytest

from sessions_app.errors import Invalid
from sessions_app.history import reading
from sessions_app.history.shape import MAX_MESSAGES

PIXEL = base64.b64encode(b"not really a picture").decode()
URL = f"data:image/png;base64,{PIXEL}"


def read(kind: str, messages: Any) -> list[dict[str, Any]]:
    return [found.message for found in reading.parse(kind, messages).found]


def mistakes(kind: str, messages: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        reading.parse(kind, messages)
    return [(error["path"], error["code"]) for error in caught.value.errors]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_chat_completions_messages_are_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
    messages = read(
        "openai",
        [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"format": "wav", "data": PIXEL}},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "assistant", "content": "Here."},
        ],
    )
    assert [message["role"] for message in messages] == [
        "note",
        "user",
        "assistant",
        "tool_result",
        "assistant",
    ]
    assert messages[1]["content"] == [
        text("look"),
        {"type": "media", "data": PIXEL, "media_type": "image/png"},
        {"type": "media", "data": PIXEL, "media_type": "audio/wav"},
    ]
    assert messages[2]["content"] == [{"type": "tool_call", "id": "c1", "name": "find", "args": {"q": 1}}]
    assert (messages[2]["provider"], messages[3]["id"]) == ("openai-chat", "c1")


def test_items_of_responses_become_one_reply_up_to_their_results() -> None:
    messages = read(
        "openai",
        [
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "on it"}]},
            {"type": "function_call", "call_id": "a", "name": "find", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "find", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
        ],
    )
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool_result",
        "tool_result",
        "assistant",
    ]
    assert [block["type"] for block in messages[1]["content"]] == [
        "thinking",
        "text",
        "tool_call",
        "tool_call",
    ]


def test_messages_of_anthropic_are_read_and_their_results_stand_alone() -> None:
    messages = read(
        "anthropic",
        [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "secret"},
                    {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                    {"type": "text", "text": "and this?"},
                ],
            },
        ],
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool_result", "user"]
    assert messages[1]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "provider": "anthropic",
        "signature": "sig",
    }
    assert (messages[2]["id"], messages[2]["error"]) == ("t1", True)
    assert [block["type"] for block in messages[3]["content"]] == ["media", "text"]


@pytest.mark.parametrize(
    ("kind", "messages", "expected"),
    [
        ("other", [], [("/history/format", "not_allowed")]),
        ("tenure", {}, [("/history/messages", "wrong_type")]),
        ("tenure", [], [("/history/messages", "out_of_range")]),
        ("tenure", [{}] * (MAX_MESSAGES + 1), [("/history/messages", "out_of_range")]),
        ("tenure", [1], [("/history/messages/0", "wrong_type")]),
        ("tenure", [{"role": "robot"}], [("/history/messages/0/role", "not_allowed")]),
        (
            "tenure",
            [{"role": "user", "content": "x", "extra": 1}],
            [("/history/messages/0/extra", "unknown_field")],
        ),
        (
            "tenure",
            [{"role": "user", "content": "x"}] * 3 + [{"role": "user", "content": [5]}],
            [("/history/messages/3/content/0", "wrong_type")],
        ),
        (
            "tenure",
            [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "odd"}]}],
            [("/history/messages/0/content/1/type", "not_allowed")],
        ),
        (
            "tenure",
            [{"role": "assistant", "content": [{"type": "tool_call", "id": "", "name": "f", "args": {}}]}],
            [("/history/messages/0/content/0/id", "out_of_range")],
        ),
        (
            "tenure",
            [{"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "f", "args": 3}]}],
            [("/history/messages/0/content/0/args", "wrong_type")],
        ),
        (
            "tenure",
            [
                {"role": "tool_result", "id": "c", "error": "yes", "content": "x"},
                {"role": "assistant", "stop": 5},
            ],
            [("/history/messages/0/error", "wrong_type"), ("/history/messages/1/stop", "wrong_type")],
        ),
        (
            "openai",
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a"}}]}],
            [("/history/messages/0/content/0/image_url/url", "not_allowed")],
        ),
        (
            "openai",
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,?"}]}],
            [("/history/messages/0/content/0/image_url", "malformed")],
        ),
        ("openai", [{"role": "function"}], [("/history/messages/0/role", "not_allowed")]),
        ("openai", [{"type": "web_search_call"}], [("/history/messages/0/type", "not_allowed")]),
        (
            "openai",
            [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}],
            [("/history/messages/0/tool_calls/0/function/arguments", "wrong_type")],
        ),
        ("openai", [{"role": "tool", "content": "x"}], [("/history/messages/0/tool_call_id", "required")]),
        ("anthropic", [{"role": "system", "content": "x"}], [("/history/messages/0/role", "not_allowed")]),
        (
            "anthropic",
            [{"role": "assistant", "content": [{"type": "server_tool_use"}]}],
            [("/history/messages/0/content/0/type", "not_allowed")],
        ),
        (
            "anthropic",
            [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}],
            [("/history/messages/0/content/0/source/type", "not_allowed")],
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(kind: str, messages: Any, expected: list[tuple[str, str]]) -> None:
    assert mistakes(kind, messages) == expected


def test_of_very_many_mistakes_the_first_ones_are_told() -> None:
    assert len(mistakes("tenure", [{"role": "robot"}] * 500)) == 100
