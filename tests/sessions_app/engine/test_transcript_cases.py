"""Transcripts that broke systems of this kind, each with what has to happen here."""

import copy
import json
import re
from typing import Any

import pytest

from sessions_app.engine.request_view import ARGUMENTS_LIMIT
from sessions_app.engine.resume import Continue, plan_resume, repair_orphaned_tool_calls, to_request

Message = dict[str, Any]

PROVIDERS = ["openai", "openai-chat", "anthropic", "google", "mistral"]


def user(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def call(call_id: str, name: str, **args: Any) -> Message:
    return {"type": "tool_call", "id": call_id, "name": name, "args": args}


def assistant(*blocks: Any, provider: str | None = None) -> Message:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    made_by = {} if provider is None else {"provider": provider}
    return {"role": "assistant", "content": content, "stop": None, "error": None, **made_by}


def result(call_id: str, name: str, content: Any) -> Message:
    return {
        "role": "tool_result",
        "id": call_id,
        "name": name,
        "error": False,
        "answered": False,
        "content": content,
    }


def sent(messages: list[Message], provider: str) -> list[Message]:
    """What is sent for a transcript, which itself stays as it was."""
    before = copy.deepcopy(messages)
    view, _ = repair_orphaned_tool_calls(messages)
    request = to_request(view, provider)
    assert messages == before
    return list(request)


def order(request: list[Message]) -> list[str]:
    said = []
    for message in request:
        if message["role"] == "tool_result":
            said.append(f"tool_result({message['id']}{',error' if message['error'] else ''})")
        else:
            calls = [block["id"] for block in message["content"] if block["type"] == "tool_call"]
            said.append(f"{message['role']}({','.join(calls)})" if calls else message["role"])
    return said


def blocks_of(request: list[Message], kind: str) -> list[Message]:
    return [
        block
        for message in request
        if message["role"] == "assistant"
        for block in message["content"]
        if block["type"] == kind
    ]


def test_three_parallel_calls_one_answered_before_the_stop() -> None:
    """C02: the real result stays, errors for the others, all in call order before the user message."""
    probes = [call(f"p{n}", "probe", host=f"h{n}") for n in (1, 2, 3)]
    messages = [
        user("check three hosts"),
        assistant(*probes),
        result("p2", "probe", "up"),
        user("continue"),
    ]
    view, repaired = repair_orphaned_tool_calls(messages)
    assert repaired == [(1, 0), (1, 2)]
    assert plan_resume(messages) == Continue(4, [(1, 0), (1, 2)])
    assert order(view) == [
        "user",
        "assistant(p1,p2,p3)",
        "tool_result(p1,error)",
        "tool_result(p2)",
        "tool_result(p3,error)",
        "user",
    ]
    assert view[3] is messages[2]


@pytest.mark.parametrize("first_kept", range(9))
def test_a_history_cut_anywhere_sends_no_result_without_its_call(first_kept: int) -> None:
    """C03: where a cut splits a call from its result, also a made-up one, neither is orphaned."""
    messages = [user("start")]
    for number, name in enumerate("ABC", start=1):
        messages += [assistant(call(f"k{number}", "read", f=name)), result(f"k{number}", "read", name)]
    messages.append(assistant("done"))
    kept = messages[first_kept:]
    calls = [block["id"] for block in blocks_of(kept, "tool_call")]
    request = sent(kept, "anthropic")
    assert [message["id"] for message in request if message["role"] == "tool_result"] == calls
    synthetic, _ = repair_orphaned_tool_calls(
        [message for message in messages if message["role"] != "tool_result"]
    )
    cut = sent(synthetic[first_kept:], "anthropic")
    calls = [block["id"] for block in blocks_of(synthetic[first_kept:], "tool_call")]
    assert [message["id"] for message in cut if message["role"] == "tool_result"] == calls


@pytest.mark.parametrize("provider", PROVIDERS)
def test_user_text_typed_while_a_tool_runs_is_sent_behind_the_result(provider: str) -> None:
    """C04: the result goes directly behind its call, the text after it, once."""
    messages = [
        user("build it"),
        assistant(call("b1", "shell", command="make")),
        user("also run the tests"),
        result("b1", "shell", "ok"),
    ]
    request = sent(messages, provider)
    assert order(request) == ["user", "assistant(b1)", "tool_result(b1)", "user"]
    assert request[-1] is messages[2]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_exact_duplicate_of_a_stored_call_is_sent_once(provider: str) -> None:
    """C05: a stored session with the duplicate can still be sent."""
    messages = [
        user("look up both"),
        assistant(call("d1", "find", q="x"), call("d2", "find", q="y"), call("d2", "find", q="y")),
        result("d1", "find", "1"),
        result("d2", "find", "2"),
    ]
    request = sent(messages, provider)
    assert order(request) == ["user", "assistant(d1,d2)", "tool_result(d1)", "tool_result(d2)"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_one_id_for_two_calls_is_sent_as_two_ids(provider: str) -> None:
    """C06: no call is dropped, ids are unique, and each result goes with its own call."""
    messages = [
        user("both please"),
        assistant(call("s1", "find", q="x"), call("s1", "find", q="y")),
        result("s1", "find", "for x"),
        result("s1", "find", "for y"),
    ]
    request = sent(messages, provider)
    ids = [block["id"] for block in blocks_of(request, "tool_call")]
    assert ids[0] == "s1"
    assert len(set(ids)) == 2
    assert [(m["id"], m["content"]) for m in request[2:]] == [(ids[0], "for x"), (ids[1], "for y")]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_parallel_results_are_sent_in_call_order(provider: str) -> None:
    """C10: whatever order they came back in."""
    messages = [
        user("go"),
        assistant(*(call(f"o{n}", "f", i=n) for n in (1, 2, 3))),
        result("o3", "f", "c"),
        result("o1", "f", "a"),
        result("o2", "f", "b"),
    ]
    assert [message["content"] for message in sent(messages, provider)[2:]] == ["a", "b", "c"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_call_ids_with_other_characters_are_mapped_without_collisions(provider: str) -> None:
    """C12: legal at request time, the first two do not collide, pairs are kept, the map is stable."""
    stored = ["functions.save:0", "functions_save_0", "call_9|fc_77"]
    messages = [
        user("save"),
        assistant(*(call(each, "save", n=n) for n, each in enumerate(stored, start=1))),
        *(result(each, "save", f"ok{n}") for n, each in enumerate(stored, start=1)),
        user("thanks"),
    ]
    request = sent(messages, provider)
    ids = [block["id"] for block in blocks_of(request, "tool_call")]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each) for each in ids)
    assert len(set(ids)) == 3
    assert ids[1] == "functions_save_0"
    assert [(m["id"], m["content"]) for m in request[2:5]] == [
        (each, f"ok{n}") for n, each in enumerate(ids, start=1)
    ]
    assert sent([*messages, assistant("you are welcome"), user("more")], provider)[:6] == request


@pytest.mark.parametrize(("provider", "limit"), [("openai", 64), ("openai-chat", 40), ("anthropic", 64)])
def test_call_ids_that_are_too_long_are_hashed_and_not_cut(provider: str, limit: int) -> None:
    """C13: two ids that differ behind the limit stay different; call and result agree."""
    stored = ["x" * 80 + "a" * 10, "x" * 80 + "b" * 10]
    messages = [
        user("go"),
        assistant(*(call(each, "f", i=i) for i, each in enumerate(stored))),
        *(result(each, "f", str(i)) for i, each in enumerate(stored)),
    ]
    request = sent(messages, provider)
    ids = [block["id"] for block in blocks_of(request, "tool_call")]
    assert len(set(ids)) == 2
    assert all(len(each) <= limit for each in ids)
    assert [m["id"] for m in request[2:]] == ids


def test_a_legal_id_is_not_given_away_to_a_mapped_one() -> None:
    """C12: an id that is legal as it is, and equal to what another was mapped to, gets one of its own."""
    first = [user("go"), assistant(call("a.b", "f")), result("a.b", "f", "1")]
    mapped = sent(first, "anthropic")[2]["id"]
    again = [*first, user("more"), assistant(call(mapped, "f")), result(mapped, "f", "2")]
    request = sent(again, "anthropic")
    assert request[2]["id"] == mapped
    assert request[5]["id"] != mapped
    assert blocks_of(request, "tool_call")[1]["id"] == request[5]["id"]


def signed(text: str, provider: str | None, **more: Any) -> Message:
    made_by = {} if provider is None else {"provider": provider}
    return {"type": "thinking", "thinking": text, "signature": "c2lnLTE=", **made_by, **more}


def test_a_signed_thinking_block_with_empty_text_is_sent_back() -> None:
    """C15: only a block with neither text nor signature says nothing."""
    messages = [
        user("act"),
        assistant(signed("", "anthropic"), call("se1", "f")),
        result("se1", "f", "ok"),
    ]
    thinking = blocks_of(sent(messages, "anthropic"), "thinking")
    assert [block["signature"] for block in thinking] == ["c2lnLTE="]
    assert sent(messages, "anthropic")[1] is messages[1]


@pytest.mark.parametrize(
    "block",
    [
        signed("hm", "openai", details={"id": "rs_1"}),
        signed("hm", None),
        {"type": "thinking", "thinking": "hm", "provider": "anthropic"},
        signed("hm", "anthropic") | {"signature": " "},
        signed("hm \ud83d", "anthropic"),
    ],
    ids=["of another provider", "of nobody", "unsigned", "blank signature", "text that can't be sent"],
)
def test_reasoning_that_is_foreign_or_unsigned_is_left_out(block: Message) -> None:
    """C15: and its call stays."""
    messages = [user("act"), assistant(block, call("se1", "f")), result("se1", "f", "ok")]
    request = sent(messages, "anthropic")
    assert blocks_of(request, "thinking") == []
    assert order(request) == ["user", "assistant(se1)", "tool_result(se1)"]


def test_a_reply_may_name_its_provider_once_for_all_its_blocks() -> None:
    messages = [user("act"), assistant(signed("hm", None), "done", provider="anthropic"), user("more")]
    assert len(blocks_of(sent(messages, "anthropic"), "thinking")) == 1
    assert blocks_of(sent(messages, "google"), "thinking") == []


def openai_call(item: str, call_id: str) -> Message:
    return call(call_id, "f") | {"provider": "openai", "details": {"id": item}}


def test_a_stale_call_is_answered_so_that_its_reasoning_item_is_no_orphan() -> None:
    """C18: repair answers the call instead of removing it; reasoning and call keep their item ids."""
    messages = [
        user("do"),
        assistant(signed("", "openai", details={"id": "rs_2"}), openai_call("fc_2", "call_rs2")),
        user("next"),
    ]
    request = sent(messages, "openai")
    assert order(request) == ["user", "assistant(call_rs2)", "tool_result(call_rs2,error)", "user"]
    assert [block["details"]["id"] for block in request[1]["content"]] == ["rs_2", "fc_2"]


def test_a_call_whose_reasoning_is_left_out_is_sent_without_its_item_id() -> None:
    """C18: an item sent by id asks for its reasoning; what follows kept reasoning keeps its id."""
    unsigned = signed("hm", "openai", details={"id": "rs_1"}) | {"signature": None}
    messages = [
        user("do"),
        assistant(
            unsigned,
            openai_call("fc_1", "c1"),
            signed("", "openai", details={"id": "rs_2"}),
            openai_call("fc_2", "c2"),
        ),
    ]
    calls = blocks_of(sent(messages, "openai"), "tool_call")
    assert [block.get("details") for block in calls] == [None, {"id": "fc_2"}]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    """C18: also where an exact duplicate of a call behind it was collapsed, or only unknown blocks follow."""
    reasoning = signed("hm", "openai", details={"id": "rs_1"})
    later = signed("hm", "openai", details={"id": "rs_2"})
    messages = [
        user("do"),
        assistant(reasoning, openai_call("fc_1", "c1"), later, openai_call("fc_1", "c1")),
        user("next"),
        assistant(signed("alone", "openai", details={"id": "rs_3"}), {"type": "from_the_future"}),
        user("and"),
    ]
    request = sent(messages, "openai")
    assert [block["details"]["id"] for block in blocks_of(request, "thinking")] == ["rs_1"]
    assert order(request) == ["user", "assistant(c1)", "tool_result(c1,error)", "user", "user"]


def test_all_parts_of_one_reasoning_item_go_together() -> None:
    """C18: one item may have several summaries, of which the first carries the signature."""
    first = signed("one", "openai", details={"id": "rs_1"})
    second = first | {"thinking": "two", "signature": None}
    other = second | {"details": {"id": "rs_9"}}
    request = sent([user("do"), assistant(first, second, other, "done"), user("more")], "openai")
    assert [block["thinking"] for block in blocks_of(request, "thinking")] == ["one", "two"]


def test_no_item_id_is_sent_twice() -> None:
    """C20: a second item under a used id is sent without one, items of others and id-less ones have none."""

    def said(text: str, provider: str | None, item: str | None) -> Message:
        block = {"type": "text", "text": text} | ({} if provider is None else {"provider": provider})
        return block | ({} if item is None else {"details": {"id": item}})

    messages = [
        user("1"),
        assistant(said("one", "openai", "msg_4")),
        user("2"),
        assistant(said("two", "anthropic", "msg_4")),
        user("3"),
        assistant(said("three", "openai", "msg_4")),
        user("4"),
        assistant(said("four", None, None), openai_call("msg_4", "c1")),
        user("5"),
    ]
    items = [
        block.get("details")
        for message in sent(messages, "openai")
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    assert items == [{"id": "msg_4"}, None, None, None, None]


def test_parts_of_one_item_share_its_id_only_where_they_stand_together() -> None:
    """C20, C18: else the later part would be sent in the first one's place, away from its reasoning."""

    def said(text: str) -> Message:
        return {"type": "text", "text": text, "provider": "openai", "details": {"id": "msg_4"}}

    thought = signed("hm", "openai", details={"id": "rs_1"})
    request = sent([user("1"), assistant(said("a"), said("b"), thought, said("c")), user("2")], "openai")
    found = [(block["type"], (block.get("details") or {}).get("id")) for block in request[1]["content"]]
    assert found == [("text", "msg_4"), ("text", "msg_4"), ("thinking", "rs_1"), ("text", None)]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": ""}], None, [{"type": "?"}]])
def test_a_silent_result_is_sent_with_a_placeholder(content: Any, provider: str) -> None:
    """C23: the stored one stays empty."""
    messages = [
        user("make a folder"),
        assistant(call("em1", "shell", command="mkdir -p x")),
        result("em1", "shell", content),
    ]
    assert sent(messages, provider)[-1]["content"] == "(no output)"


def test_half_an_emoji_in_an_old_session_can_be_sent() -> None:
    """C31: in results, arguments, their keys and text."""
    messages = [
        user("log \ud83d"),
        assistant("see \ud83d", call("sur1", "read", **{"\ud83d": ["\ud83d"]})),
        result("sur1", "read", "ok \ud83d"),
    ]
    request = sent(messages, "anthropic")
    assert "\\ud" not in json.dumps(request)
    assert request[-1]["content"] == "ok \ufffd"
    assert blocks_of(request, "tool_call")[0]["args"] == {"\ufffd": ["\ufffd"]}


@pytest.mark.parametrize("as_text", [True, False])
def test_arguments_larger_than_the_limit_become_a_short_object(as_text: bool) -> None:
    """C35: still valid JSON, and the call keeps its id."""
    arguments: Any = {"input": " " * 1_700_000}
    block = call("lng1", "edit") | {"args": json.dumps(arguments) if as_text else arguments}
    messages = [user("edit"), assistant(block), result("lng1", "edit", "done"), user("next")]
    called = blocks_of(sent(messages, "openai"), "tool_call")[0]
    assert isinstance(called["args"], dict)
    assert len(json.dumps(called["args"])) < 200 < ARGUMENTS_LIMIT
    assert called["id"] == "lng1"


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        ({"q": 1}, {"q": 1}),
        ('{"q": 1}', '{"q": 1}'),
        ("", {}),
        (None, {}),
        ('{"q":', {"invalid_arguments": '{"q":'}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ([1], {"invalid_arguments": "[1]"}),
        ('{"n": NaN}', {"invalid_arguments": '{"n": NaN}'}),
        ({"n": float("nan")}, {"n": None}),
        ('{"s": "\\ud83d"}', {"s": "\ufffd"}),
    ],
)
def test_arguments_are_always_a_json_object(stored: Any, given: Any) -> None:
    """T3: what a model wrote stays readable, and the request stays valid."""
    block = call("c1", "f") | {"args": stored}
    called = blocks_of(sent([user("go"), assistant(block)], "openai"), "tool_call")[0]
    assert called["args"] == given


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_open_call_deep_inside_an_old_history_is_answered_in_place(provider: str) -> None:
    """C40: repair looks at the whole history; later entries keep their place and nothing is rewritten."""
    messages = [
        user("one"),
        assistant("checking", call("old1", "f")),
        user("never mind"),
        assistant("fine"),
        user("two"),
        assistant(call("new1", "f")),
        result("new1", "f", "ok"),
        user("three"),
    ]
    request = sent(messages, provider)
    assert order(request) == [
        "user",
        "assistant(old1)",
        "tool_result(old1,error)",
        "user",
        "assistant",
        "user",
        "assistant(new1)",
        "tool_result(new1)",
        "user",
    ]
    assert [message for message in request if not message.get("synthetic")] == messages


def test_a_healthy_view_is_the_request() -> None:
    """C41: nothing is copied, for any provider, where nothing has to change."""
    messages = [user("go"), assistant("on it", call("c1", "f", q=1)), result("c1", "f", "ok"), user("more")]
    for provider in PROVIDERS:
        assert to_request(messages, provider) is messages


def test_a_request_starts_and_ends_with_somebody_else_than_the_model() -> None:
    """C39: a reply that paused is sent back as it is, and the model is asked to go on."""
    paused = assistant("half of it") | {"stop": "pause"}
    request = to_request([paused], "anthropic")
    assert [message["role"] for message in request] == ["user", "assistant", "user"]
    assert request[1] is paused


def test_notes_are_not_sent_and_checkpoints_speak_as_the_user() -> None:
    messages = [
        {"role": "checkpoint", "content": "So far: a, b."},
        {"role": "summary", "content": ""},
        assistant("on"),
        {"role": "note", "content": "ours"},
        user("go"),
    ]
    request = to_request(messages, "openai")
    assert request == [{"role": "user", "content": "So far: a, b."}, messages[2], messages[4]]


def test_made_up_tool_names_become_legal_in_call_and_result() -> None:
    """T3: a call of an unknown tool was answered, so it has to be sent."""
    long = "n" * 90
    messages = [
        user("go"),
        assistant(call("c1", "no such tool"), call("c2", ""), call("c3", long)),
        *(result(f"c{n}", name, "unknown tool") for n, name in enumerate(["no such tool", "", long], 1)),
    ]
    request = sent(messages, "anthropic")
    names = [block["name"] for block in blocks_of(request, "tool_call")]
    assert names[:2] == ["no_such_tool", "unnamed"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert [message["name"] for message in request[2:]] == names


def test_content_that_a_model_cannot_have_said_is_shown_as_text_or_left_out() -> None:
    picture = {"type": "media", "media_type": "image/png", "data": "AAAA"}
    messages = [
        user("go"),
        assistant("here", {"type": "data", "value": {"a": 1}}, picture),
        {
            "role": "user",
            "content": [picture, {"type": "data", "value": [1]}, {"type": "?"}, picture | {"data": ""}],
        },
    ]
    request = sent(messages, "anthropic")
    assert [block.get("text") for block in request[1]["content"]] == ["here", '{"a": 1}']
    assert request[2]["content"] == [picture, {"type": "data", "value": [1]}]
    assert sent(messages, "google")[1]["content"][-1] is picture
