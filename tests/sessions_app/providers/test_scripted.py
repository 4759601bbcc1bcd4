"""The scripted provider: what a script says is what happens, every time."""

import asyncio
import time
from typing import Any

import pytest

from sessions_app.engine.retry import EndTurn, RetryAfter, classify
from sessions_app.providers.port import Category, Delta, ModelCallFailed, ModelRequest, Provider, Stop
from sessions_app.providers.scripted import ScriptedProvider, pick, seconds, text_of


def request(
    *replies: dict[str, Any], position: int = 0, last: str = "hi", loop: bool = False
) -> ModelRequest:
    return ModelRequest(
        provider="scripted",
        model="demo",
        base_url=None,
        api_key=None,
        settings={},
        instructions="",
        messages=[{"role": "user", "content": [{"type": "text", "text": last}]}],
        tools=[],
        output_schema=None,
        call_id="mcl_01",
        script={"replies": list(replies), "loop": loop},
        script_position=position,
    )


async def play(*replies: dict[str, Any], **options: Any):
    return await ScriptedProvider().reply(request(*replies, **options))


async def fail(*replies: dict[str, Any], **options: Any) -> ModelCallFailed:
    with pytest.raises(ModelCallFailed) as caught:
        await play(*replies, **options)
    return caught.value


def test_it_is_a_provider():
    assert isinstance(ScriptedProvider(), Provider)


async def test_a_reply_says_what_the_script_says():
    reply = await play(
        {
            "reasoning": "Hm.",
            "text": "Working.",
            "tool_calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b"}, {"name": "c", "id": "mine"}],
        }
    )
    assert reply.content == [
        {"type": "reasoning", "text": "Hm.", "provider": "scripted"},
        {"type": "text", "text": "Working."},
        {"type": "tool_call", "id": "call_0_0", "name": "a", "arguments": {"x": 1}},
        {"type": "tool_call", "id": "call_0_1", "name": "b", "arguments": {}},
        {"type": "tool_call", "id": "mine", "name": "c", "arguments": {}},
    ]
    assert reply.stop is Stop.TOOL_CALLS
    assert reply.usage.output_tokens > 0
    assert (await play({"text": "Done."})).stop is Stop.DONE


async def test_the_position_picks_the_reply_and_repeats_it_exactly():
    """An attempt that a crash interrupted plays the same reply again, ids included."""
    script = ({"text": "one"}, {"tool_calls": [{"name": "t"}]})
    first = await play(*script, position=1)
    again = await play(*script, position=1)
    assert first == again
    assert first.content[0]["id"] == "call_1_0"
    assert first.provider_details["script_next"] == 2


async def test_call_ids_differ_from_position_to_position():
    script = {"tool_calls": [{"name": "t"}]}
    ids = [(await play(script, position=position, loop=True)).content[0]["id"] for position in range(4)]
    assert len(set(ids)) == 4


async def test_past_the_end_the_script_is_exhausted():
    """The turn ends at once, as an invalid request."""
    failure = await fail({"text": "one"}, position=1)
    assert (failure.category, failure.code) == (Category.SCRIPT_EXHAUSTED, "script_exhausted")
    decided = classify(failure, failures_so_far=0, call_id="mcl_01")
    assert isinstance(decided, EndTurn)
    assert (decided.reason, decided.error["code"]) == ("invalid_request", "script_exhausted")
    assert (await fail()).category is Category.SCRIPT_EXHAUSTED


async def test_a_loop_starts_again():
    script = ({"text": "one"}, {"text": "two"})
    said = [(await play(*script, position=position, loop=True)).content[0]["text"] for position in range(5)]
    assert said == ["one", "two", "one", "two", "one"]


SCRIPT = {
    "replies": [
        {"text": "yes", "when": {"contains": "allowed"}},
        {"text": "no", "when": {"contains": "denied"}},
        {"text": "either"},
    ]
}


@pytest.mark.parametrize(
    ("position", "last", "said", "after"),
    [
        (0, "it was allowed", "yes", 1),
        (0, "it was denied", "no", 2),
        (0, "who knows", "either", 3),
        (1, "it was allowed", "either", 3),
        (3, "anything", None, None),
    ],
)
def test_replies_that_do_not_match_are_passed_over(position, last, said, after):
    step = pick(SCRIPT, position, last)
    assert (step and step.reply["text"], step and step.next_position) == (said, after)


def test_a_loop_in_which_nothing_matches_ends():
    assert pick({"replies": [{"when": {"contains": "x"}}], "loop": True}, 5, "y") is None


def test_a_match_looks_at_all_the_text_of_the_last_message():
    message = {
        "content": [{"type": "text", "text": "a"}, {"type": "data", "value": {"k": "ä"}}, {"type": "media"}]
    }
    assert text_of(message) == 'a\n{"k": "ä"}'
    assert text_of({"content": "bare"}) == "bare"


@pytest.mark.parametrize(
    ("status", "category", "retried"),
    [
        (429, Category.RATE, True),
        (503, Category.OVERLOADED, True),
        (529, Category.OVERLOADED, True),
        (500, Category.SERVER, True),
        (401, Category.AUTH, False),
        (402, Category.QUOTA, False),
        (404, Category.MODEL_NOT_FOUND, False),
        (400, Category.INVALID_REQUEST, False),
    ],
)
async def test_an_error_fails_as_a_provider_would(status, category, retried):
    failure = await fail({"error": {"status": status}})
    assert (failure.status, failure.category) == (status, category)
    assert failure.provider_details == {"script_next": 1}
    assert isinstance(classify(failure, failures_so_far=0, call_id="mcl_01"), RetryAfter) is retried


@pytest.mark.parametrize(
    ("given", "waits"), [(3, 3.0), ("30s", 30.0), ("1500ms", 1.5), ("7", 7.0), ("soon", None)]
)
async def test_an_error_can_ask_to_wait(given, waits):
    assert (await fail({"error": {"status": 429, "retry_after": given}})).retry_after == waits


async def test_an_error_can_carry_a_code():
    """C48."""
    failure = await fail({"error": {"status": 429, "code": "insufficient_quota", "message": "pay"}})
    assert (failure.category, failure.detail) == (Category.QUOTA, "pay")


async def test_a_cut_fails_after_half_of_its_deltas():
    """R4, R7: and says what it may have cost."""
    deltas: list[Delta] = []
    with pytest.raises(ModelCallFailed) as caught:
        await ScriptedProvider().reply(request({"text": "x" * 40, "cut": True}), deltas.append)
    assert caught.value.category is Category.CUT
    assert caught.value.may_be_billed
    assert caught.value.usage.output_tokens == 5
    assert sum(len(delta.text) for delta in deltas) == 20


async def test_an_empty_reply_is_a_failure():
    """R4."""
    assert (await fail({})).category is Category.EMPTY


async def test_deltas_of_an_instant_reply_come_block_by_block():
    deltas: list[Delta] = []
    await ScriptedProvider().reply(
        request({"text": "Hello", "tool_calls": [{"name": "t", "arguments": {"a": 1}}]}), deltas.append
    )
    assert deltas == [Delta(0, "text", "Hello"), Delta(1, "arguments", '{"a": 1}')]


async def test_a_slow_reply_takes_its_time_and_streams_meanwhile():
    """40 characters are 10 tokens: at 100 a second a tenth of one."""
    deltas: list[Delta] = []
    started = asyncio.get_running_loop().time()
    reply = await ScriptedProvider().reply(
        request({"text": "y" * 40, "tokens_per_second": 100}), deltas.append
    )
    took = asyncio.get_running_loop().time() - started
    assert took >= 0.099
    assert len(deltas) > 3
    assert "".join(delta.text for delta in deltas) == "y" * 40
    assert reply.time_to_first_token == pytest.approx(0.02)


async def test_a_delay_comes_before_everything():
    started = asyncio.get_running_loop().time()
    await fail({"delay": "50ms", "error": {"status": 500}})
    assert asyncio.get_running_loop().time() - started >= 0.049


@pytest.mark.parametrize(
    ("given", "result"), [(2, 2.0), (0.5, 0.5), ("1.5s", 1.5), ("200ms", 0.2), ("2m", 120.0)]
)
def test_durations(given, result):
    assert seconds(given) == result


async def test_an_instant_reply_is_cheap():
    """Benchmarks stand on it: the fastest of many must stay far below a database round trip."""
    provider, asked = ScriptedProvider(), request({"text": "ok", "tool_calls": [{"name": "t"}]})
    fastest = float("inf")
    for _ in range(300):
        started = time.perf_counter()
        await provider.reply(asked)
        fastest = min(fastest, time.perf_counter() - started)
    assert fastest < 50e-6
