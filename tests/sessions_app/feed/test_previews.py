"""Previews of replies: counted without gaps for each follower, whatever is lost or comes late on the way."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from sessions_app import wakeups
from sessions_app.engine import previews as sending
from sessions_app.feed.previews import WAITING_LIMIT, Preview, Previews
from sessions_app.feed.reading import Batch, Frame
from sessions_app.providers.port import Delta, ModelRequest

SESSION = uuid4()


class Viewer:
    """Stands for a follower: what it was sent, and its text as a client puts it together."""

    def __init__(self) -> None:
        self.preview = Preview()
        self.frames: list[dict[str, Any]] = []

    def wake(self) -> None:
        self.frames += [json.loads(frame) for frame in self.preview.take()]

    def text(self) -> str:
        assert [frame["n"] for frame in self.frames] == list(range(len(self.frames)))
        return "".join(frame["text"] for frame in self.frames)


class Wire:
    """The way between a worker and web processes, which loses what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.payloads: list[str] = []
        self.words: list[str] = []
        monkeypatch.setattr(wakeups, "post_deltas", self.payloads.extend)
        monkeypatch.setattr(wakeups, "ring_watch", self.words.extend)
        monkeypatch.setattr(wakeups, "subscribe", lambda *_: lambda: None)

    def carry(self, worker: sending.Previews, *webs: Previews, lose: int = 0) -> None:
        for word in self.words:
            worker._watched(word)
        self.words.clear()
        worker._send()
        for payload in self.payloads[lose:]:
            assert len(payload.encode()) < 8000
            for web in webs:
                web._take(json.loads(payload))
        self.payloads.clear()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def request(call: str = "mcl_1") -> ModelRequest:
    return ModelRequest(
        provider="scripted",
        model="m",
        base_url=None,
        api_key=None,
        settings={},
        instructions="",
        messages=(),
        tools=(),
        output_schema=None,
        call_id=call,
        watched_as=str(SESSION),
    )


async def test_nobody_watches_and_nothing_is_sent(wire: Wire) -> None:
    """S6"""
    worker = sending.Previews()
    with worker.of(request()) as put:
        put(Delta(0, "text", "hello"))
        assert worker._timer is None
        wire.carry(worker)
    assert wire.payloads == []


async def test_whoever_watches_gets_the_reply_from_its_beginning(wire: Wire) -> None:
    """S6: also one who comes in the middle, in the same web process or in another; nobody gets anything twice."""
    loop = asyncio.get_running_loop()
    worker, web, other_web = sending.Previews(), Previews(loop), Previews(loop)
    first, second, third = Viewer(), Viewer(), Viewer()
    with worker.of(request()) as put:
        put(Delta(0, "reasoning", "Hm. "))
        web.add(SESSION, first)
        wire.carry(worker, web)
        put(Delta(1, "text", "One, "))
        wire.carry(worker, web)
        assert first.text() == "Hm. One, "
        web.add(SESSION, second)
        assert second.text() == "Hm. One, "
        put(Delta(1, "text", "two, "))
        other_web.add(SESSION, third)
        wire.carry(worker, web, other_web)
        put(Delta(1, "text", "three"))
        wire.carry(worker, web, other_web)
    for viewer in (first, second, third):
        assert viewer.text() == "Hm. One, two, three"
    assert [(frame["block"], frame["kind"]) for frame in third.frames] == [
        (0, "reasoning"),
        (1, "text"),
        (1, "text"),
    ]
    assert {frame["model_call"] for frame in first.frames} == {"mcl_1"}


async def test_what_is_lost_on_the_way_is_asked_for_again(wire: Wire) -> None:
    """S6: the follower's own count has no gap, and nothing of the text is missing or doubled."""
    worker, web, viewer = sending.Previews(), Previews(asyncio.get_running_loop()), Viewer()
    with worker.of(request()) as put:
        web.add(SESSION, viewer)
        wire.carry(worker, web)
        for part, lose in [("a" * 3000, 0), ("b" * 3000, 1), ("c", 0), ("d", 0), ("e", 0)]:
            put(Delta(0, "text", part))
            wire.carry(worker, web, lose=lose)
    assert viewer.text() == "a" * 3000 + "b" * 3000 + "cde"


async def test_a_follower_that_takes_nothing_sees_a_gap_and_costs_no_memory(wire: Wire) -> None:
    """S6, F4"""
    preview = Preview()
    for number in range(WAITING_LIMIT + 5):
        preview.put("mcl_1", 0, "text", str(number))
    frames = [json.loads(frame) for frame in preview.take()]
    assert len(frames) <= WAITING_LIMIT
    assert frames[0]["n"] > 0


async def test_a_new_call_begins_anew_and_a_saved_reply_is_forgotten(wire: Wire) -> None:
    worker, web, viewer = sending.Previews(), Previews(asyncio.get_running_loop()), Viewer()
    web.add(SESSION, viewer)
    with worker.of(request("mcl_1")) as put:
        put(Delta(0, "text", "lost in a crash"))
        wire.carry(worker, web)
    viewer.frames.clear()
    with worker.of(request("mcl_2")) as put:
        put(Delta(0, "text", "again"))
        wire.carry(worker, web)
        assert viewer.text() == "again"
        assert viewer.frames[0]["model_call"] == "mcl_2"
        entry = Frame(SESSION, "assistant_message", {}, "{}", "5")
        web.entries_came(Batch(4, 5, [entry]))
        late = Viewer()
        web.add(SESSION, late)
        assert late.frames == []


async def test_nobody_is_watched_for_longer_than_somebody_says_so(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, web, viewer = sending.Previews(), Previews(asyncio.get_running_loop()), Viewer()
    web.add(SESSION, viewer)
    now = 0.0
    monkeypatch.setattr(sending.time, "monotonic", lambda: now)
    with worker.of(request()) as put:
        wire.carry(worker, web)
        now = sending.WATCH_TTL + 1
        put(Delta(0, "text", "unseen"))
        wire.carry(worker, web)
    assert viewer.frames == []
    assert worker._watchers == {}


def test_payloads_stay_below_the_limit_and_in_order() -> None:
    items = [json.dumps([number, "€" * 1000], ensure_ascii=False) for number in range(20)]
    made = sending.payloads(items)
    assert all(len(payload.encode()) < 8000 for payload in made)
    assert [item[0] for payload in made for item in json.loads(payload)] == list(range(20))
    assert sending.payloads([]) == []
