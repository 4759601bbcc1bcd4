"""What is left out of a request for its size: pure, stable, said in the request."""

import base64
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.engine import reductions
from sessions_app.engine.reductions import MIB, can_shrink
from sessions_app.engine.resume import to_request
from tests.sessions_app.engine.test_images import gif, jpeg, png

PROVIDERS = ("anthropic", "openai", "openai-chat", "google", "mistral")


def image(characters: int = 100, *, width: int = 640, height: int = 480) -> dict:
    """An image of so many characters in base64."""
    head = base64.b64encode(png(width, height) + b"\0" * 2).decode().rstrip("=")
    return {"type": "media", "media_type": "image/png", "data": head + "A" * (characters - len(head))}


def user(*blocks) -> dict:
    return {"role": "user", "content": list(blocks) or [{"type": "text", "text": "watch"}]}


def shots(count: int, *, characters: int = 1_600_000, name: str = "img") -> list[dict]:
    """A conversation in which a tool took `count` pictures."""
    messages = [user()]
    for number in range(count):
        call = {"type": "tool_call", "id": f"{name}{number}", "name": "shot", "args": {}}
        messages += [
            {"role": "assistant", "content": [call], "stop": "tool_use", "error": None},
            {
                "role": "tool_result",
                "id": f"{name}{number}",
                "name": "shot",
                "error": False,
                "answered": False,
                "content": [image(characters)],
            },
        ]
    return messages


def files(request) -> list[int]:
    """The messages that still hold a file."""
    return [
        at
        for at, message in enumerate(request)
        if isinstance(message["content"], list)
        and any(block["type"] == "media" for block in message["content"])
    ]


def texts(request) -> str:
    return json.dumps(
        [block for message in request for block in message["content"] if not isinstance(block, str)]
    )


def test_many_images_that_add_up_to_a_refused_body_are_replaced_oldest_first():
    """C36: 64 of 1.6 MB are 102 MB, and the provider takes 32 MiB."""
    messages = shots(64)
    before = copy.copy(messages)
    request = to_request(messages, "anthropic")
    body = len(json.dumps(request).encode())
    assert body <= 33_554_432
    assert messages == before
    left = files(request)
    everything = files(messages)
    assert left == everything[-len(left) :]
    assert 10 < len(left) < 21
    assert "An older file is left out" in texts(request[: left[0]])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_request_keeps_its_beginning_while_a_conversation_grows(provider):
    """C36: prompt caches would be lost with every new image if the oldest one left each time."""
    changes = 0
    last: list = []
    for count in range(1, 48):
        request = to_request(shots(count), provider)
        changes += request[: len(last)] != last
        last = request
    assert changes <= 8


@given(
    sizes=st.lists(st.integers(100, 3000), max_size=12),
    budget=st.integers(500, 20_000),
    provider=st.sampled_from(PROVIDERS),
)
def test_reducing_twice_changes_nothing_and_the_budget_holds(sizes, budget, provider):
    """C36: pure, idempotent."""
    messages = [user(image(size), {"type": "text", "text": "look"}) for size in sizes] or [user()]
    before = copy.deepcopy(messages)
    once = to_request(messages, provider, budget=budget)
    assert messages == before
    assert to_request(once, provider, budget=budget) == once
    if len(json.dumps(once)) > budget:
        assert not files(once)


@pytest.mark.parametrize(
    ("block", "provider", "why"),
    [
        pytest.param(image(width=9000, height=100), "anthropic", "8000 pixels a side", id="too many pixels"),
        pytest.param(image(5 * MIB + 4), "anthropic", "5.0 MiB for one file", id="too many bytes"),
        pytest.param(
            {"type": "media", "media_type": "audio/wav", "data": "UklGRg=="},
            "anthropic",
            "audio/wav",
            id="a type that is not read",
        ),
        pytest.param(
            {"type": "media", "media_type": "image/png", "data": "bm90IGFuIGltYWdl"},
            "openai",
            "not an image that can be read",
            id="no image",
        ),
    ],
)
def test_one_file_that_would_poison_the_session_becomes_a_note(block, provider, why):
    """C37: with what was wrong and the limit; what stands beside it stays."""
    beside = {"type": "text", "text": "what is this?"}
    (message,) = to_request([user(block, beside)], provider)
    note, kept = message["content"]
    assert note["type"] == "text"
    assert why in note["text"]
    assert "The original is kept" in note["text"]
    assert kept is beside


def test_the_same_image_goes_to_a_provider_that_takes_it():
    """C37."""
    messages = [user(image(width=9000, height=100))]
    assert to_request(messages, "openai") is messages


def test_many_images_may_each_be_smaller_only():
    """C37: from the 21st image on, 2000 pixels a side."""
    wide = image(width=2500)
    few = [user(wide) for _ in range(20)]
    assert to_request(few, "anthropic") is few
    many = to_request([*few, user(image())], "anthropic")
    assert files(many) == [20]
    assert "where there are many images" in texts(many)


def test_no_more_images_than_the_provider_takes():
    """C36."""
    request = to_request([user(image()) for _ in range(101)], "anthropic")
    assert 75 <= len(files(request)) <= 100
    assert files(request)[-1] == 100


@pytest.mark.parametrize("make", [jpeg, gif])
def test_a_media_type_that_the_bytes_contradict_is_corrected(make):
    """C37: it would be refused as it is declared."""
    data = base64.b64encode(make(10, 10)).decode()
    (message,) = to_request([user({"type": "media", "media_type": "image/png", "data": data})], "anthropic")
    assert message["content"][0]["media_type"] == f"image/{make.__name__}"


def test_long_results_are_cut_where_there_are_no_files_left():
    """C36: a refused body may have been text."""
    messages = [user()]
    for number in range(10):
        call = {"type": "tool_call", "id": f"c{number}", "name": "read", "args": {}}
        result = {
            "role": "tool_result",
            "id": f"c{number}",
            "name": "read",
            "error": False,
            "answered": False,
        }
        text = [{"type": "text", "text": f"{number} " + "word " * 4000}]
        messages += [
            {"role": "assistant", "content": [call], "stop": "tool_use", "error": None},
            {**result, "content": text},
        ]
    assert can_shrink(messages)
    assert to_request(messages, "anthropic") is messages
    request = to_request(messages, "anthropic", budget=120_000)
    assert len(json.dumps(request)) <= 120_000
    assert request[-1] is messages[-1]
    assert len(request[2]["content"][0]["text"]) <= 4000
    assert to_request(request, "anthropic", budget=120_000) == request


def test_what_stands_beside_the_messages_counts_too():
    messages = [user(image(5000))]
    assert to_request(messages, "openai", budget=8000) is messages
    assert files(to_request(messages, "openai", budget=8000, beside=4000)) == []


def test_short_conversations_are_not_worth_shrinking():
    """A 413 that nothing can help ends the turn at once."""
    assert not can_shrink([user(), {"role": "tool_result", "content": [{"type": "text", "text": "ok"}]}])
    assert not can_shrink([user({"type": "text", "text": "x" * 100_000})])
    assert can_shrink([user({"type": "media", "artifact": "art_1"})])


def test_limits_are_known_for_names_that_nobody_knows():
    assert reductions.limits_of(None) is reductions.limits_of("my-server")
