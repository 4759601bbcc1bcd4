"""The soak's seeded parts: the same seed asks and breaks the same, and every fault is what it says."""

import itertools
import json
from collections import Counter

import pytest

from bench.soak.faults import INSTEAD, KINDS, Fault, damage, fault_of, refusal
from bench.soak.mock import ANSWERS, is_an_answer
from bench.soak.plans import PROTOCOLS, TOPICS, plans
from tests.sessions_app.providers import streams

WHOLE = {
    "openai": streams.responses(*streams.responses_text("msg_1", "Hello")).encode(),
    "openai-chat": streams.chat({"role": "assistant", "content": "Hel"}, {"content": "lo"}).encode(),
    "anthropic": streams.anthropic(*streams.anthropic_text(0, "Hello")).encode(),
}
PLACES = [at / 20 for at in range(20)]
HEADERS = {"content-type": "text/event-stream"}


def test_the_seed_decides_which_fault_a_request_meets():
    def met(seed: int) -> list[Fault | None]:
        return [fault_of(seed=seed, session="soak0001", number=number, share=0.5) for number in range(100)]

    assert met(1) == met(1)
    assert met(1) != met(2)


def test_half_of_the_requests_meet_a_fault_and_every_kind_comes():
    faults = [fault_of(seed=1, session="soak0001", number=number, share=0.5) for number in range(2000)]
    kinds = Counter(fault.kind for fault in faults if fault is not None)
    assert 900 < kinds.total() < 1100
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 100


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_request_or_every_one_is_possible(share):
    faults = [fault_of(seed=1, session="soak0001", number=number, share=share) for number in range(200)]
    assert all((fault is None) == (share == 0) for fault in faults)


@pytest.mark.parametrize(
    ("protocol", "kind", "variant"), list(itertools.product(PROTOCOLS, INSTEAD, range(3))), ids=str
)
def test_a_refusal_is_one_of_its_protocol(protocol, kind, variant):
    answer = refusal(protocol, Fault(kind, 0, variant))
    assert answer.status == int(kind)
    assert answer.fails
    body = json.loads(answer.body)
    assert body["error"]["message"]
    assert body.get("type") == ("error" if protocol == "anthropic" else None)
    asks = {name for name in answer.headers if name.startswith("retry-after")}
    assert len(asks) == (1 if kind == "429" else 0)


@pytest.mark.parametrize(("protocol", "place"), list(itertools.product(PROTOCOLS, PLACES)))
def test_a_cut_takes_the_end_and_says_whether_the_reply_is_lost(protocol, place):
    whole = WHOLE[protocol]
    answer = damage(protocol, Fault("cut", place, 0), HEADERS, whole)
    assert whole.startswith(answer.body)
    assert 0 < len(answer.body) < len(whole)
    ends = {"openai": b"response.completed", "openai-chat": b'"finish_reason"', "anthropic": b"message_delta"}
    if ends[protocol] in answer.body:
        assert answer.fails is None
    elif answer.fails is None:
        assert len(answer.body) > whole.index(ends[protocol]) - 100  # inside the last event


@pytest.mark.parametrize(("protocol", "place"), list(itertools.product(PROTOCOLS, PLACES)))
def test_an_error_event_comes_before_the_reply_is_whole(protocol, place):
    answer = damage(protocol, Fault("error event", place, 0), HEADERS, WHOLE[protocol])
    assert answer.status == 200
    assert answer.fails
    *before, error = answer.body.removesuffix(b"\n\n").split(b"\n\n")
    assert all(event in WHOLE[protocol] for event in before)
    assert "error" in json.loads(error.partition(b"data: ")[2]).values() or protocol == "openai-chat"
    ends = {"openai": b"response.completed", "openai-chat": b'"stop"', "anthropic": b"message_delta"}
    assert ends[protocol] not in answer.body


@pytest.mark.parametrize(
    ("protocol", "place", "variant"), list(itertools.product(PROTOCOLS, PLACES[::4], range(3))), ids=str
)
def test_a_malformed_event_stands_among_whole_ones(protocol, place, variant):
    answer = damage(protocol, Fault("malformed event", place, variant), HEADERS, WHOLE[protocol])
    assert answer.fails
    events = answer.body.split(b"\n\n")
    odd = [event for event in events if event not in WHOLE[protocol]]
    assert len(odd) == 1
    assert b"\n\n".join(event for event in events if event not in odd) == WHOLE[protocol]
    with pytest.raises(ValueError, match=r"."):
        json.loads(odd[0].partition(b"data: ")[2])


def test_the_seed_decides_what_is_said():
    first, again = plans(seed=3, sessions=40, turns=5), plans(seed=3, sessions=40, turns=5)
    assert first == again
    assert first != plans(seed=4, sessions=40, turns=5)
    turns = [turn for plan in first for turn in plan.turns]
    assert {turn.protocol for turn in turns} == set(PROTOCOLS)
    assert {turn.text.rpartition(" ")[2] for turn in turns} == set(TOPICS)
    assert {turn.steer_after is None for turn in turns} == {True, False}
    assert {plan.at_once for plan in first} == {True, False}
    assert any(plan.switches for plan in first)
    assert len({plan.name for plan in first}) == 40


def test_half_a_reply_is_none_of_the_answers():
    for _, answer in ANSWERS:
        blocks = [{"type": "text", "text": answer["content"]}] if "content" in answer else []
        calls = [
            {"type": "tool_call", "name": call["name"], "arguments": call["arguments"]}
            for call in answer.get("toolCalls", ())
        ]
        assert is_an_answer([{"type": "reasoning", "text": "Hm."}, *blocks, *calls])
        assert not is_an_answer([*blocks, *calls[:-1]] if calls else [])
        if blocks:
            assert not is_an_answer([{"type": "text", "text": blocks[0]["text"][:-1]}, *calls])
