"""Estimates of tokens: by kind of block, and corrected by what providers count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.engine import tokens
from sessions_app.engine.context import Context, EntryRow
from tests.sessions_app.engine.generated import transcripts

IMAGE = {"type": "media", "media_type": "image/png", "data": "A" * 100_000}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", 0),
        ("abcde", 2),
        ([{"type": "text", "text": "a" * 400}], 100),
        ([{"type": "text", "text": "日本語" * 40}], 90),  # 120 characters of three bytes
        ([{"type": "text", "text": "\ud800"}], 1),
        ([{"type": "reasoning", "text": "a" * 40}], 10),
        ([{"type": "thinking", "thinking": "a" * 40}], 10),
        ([{"type": "tool_call", "name": "read", "arguments": {"f": "a"}}], 1 + 4 + 4),
        ([{"type": "tool_call", "name": "read", "args": {"f": "a"}}], 1 + 4 + 4),
        ([{"type": "tool_call", "name": "read", "arguments": {}, "arguments_raw": "{" * 30}], 1 + 10 + 4),
        ([IMAGE], tokens.IMAGE_TOKENS),
        ([{"type": "media", "artifact": "art_1"}], tokens.IMAGE_TOKENS),
        ([{"type": "media", "media_type": "application/pdf", "data": "A"}], tokens.FILE_TOKENS),
        ([{"type": "data", "value": [1, 2, 3]}], 3),
        ([{"type": "from_the_future", "x": 1}], 12),
        (None, 0),
        ([7, None], 0),
    ],
)
def test_what_content_costs(content, expected):
    """R5"""
    assert tokens.of_content(content) == expected


def test_notes_are_not_sent():
    assert tokens.of_message({"role": "note", "content": "a" * 400}) == 0
    assert tokens.of_message({"role": "user", "content": "a" * 400}) == 100 + tokens.MESSAGE_TOKENS


def test_the_frame_is_what_goes_out_with_every_request():
    plain = tokens.of_frame("a" * 40, [], None)
    assert plain == 10
    assert tokens.of_frame("a" * 40, [{"name": "read"}], {"type": "object"}) > plain


@pytest.mark.parametrize(
    ("counted", "estimated", "ratio"),
    [(100, 100, 1.0), (150, 100, 1.5), (1000, 100, 3.0), (1, 100, 0.5), (0, 100, 1.0), (100, 0, 1.0)],
)
def test_counts_of_the_provider_correct_the_estimate(counted, estimated, ratio):
    """R5"""
    assert tokens.calibrated(counted=counted, estimated=estimated) == ratio


@given(messages=transcripts(st.just("openai")))
def test_any_message_can_be_measured(messages):
    assert all(tokens.of_message(message) >= 0 for message in messages if isinstance(message, dict))


@given(data=st.data())
def test_the_sum_of_a_context_is_kept_right(data):
    """R5: whatever is appended, covered or left out."""
    context = Context()
    for seq in range(1, data.draw(st.integers(1, 12)) + 1):
        kind = data.draw(st.sampled_from(["user_message", "note", "checkpoint"]))
        covers = data.draw(st.integers(0, seq - 1))
        entry = {"content": "x" * seq, "text": "y", "summary": "z" * seq, "covers_seq": covers}
        context.append(EntryRow(seq, None, kind, entry))
        if data.draw(st.booleans()):
            context.truncate(data.draw(st.integers(0, seq)))
        assert context.sizes == [tokens.of_message(message) for message in context.messages]
        assert context.tokens == sum(context.sizes)
