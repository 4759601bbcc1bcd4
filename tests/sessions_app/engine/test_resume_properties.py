"""What holds for every transcript, however it came to be."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.engine.request_view import GO_ON
from sessions_app.engine.resume import (
    AlreadyComplete,
    Continue,
    Start,
    plan_resume,
    repair_orphaned_tool_calls,
    to_request,
)
from sessions_app.engine.transcript import SYNTHETIC, is_blank, read_frame, role_of
from tests.sessions_app.engine.generated import IDS, JUNK, TRANSCRIPTS, transcripts_with_open_calls

TARGETS = st.sampled_from(["openai", "openai-chat", "anthropic", "google", "mistral"])
WITH_OPEN_CALLS = transcripts_with_open_calls()
quick = settings(max_examples=200, deadline=None)


def calls_of(message: Any) -> tuple[Any, ...]:
    return read_frame(message).calls if role_of(message) == "assistant" else ()


def assert_every_call_is_answered_behind_its_frame(view: list[Any], open_calls: int = 0) -> None:
    """Each frame is followed by one result per call, in call order; other results there are none."""
    missing = 0
    index = 0
    while index < len(view):
        assert role_of(view[index]) != "tool_result"
        calls = calls_of(view[index])
        index += 1
        for call in calls:
            message = view[index] if index < len(view) else None
            if role_of(message) == "tool_result" and message["id"] == call.id:
                index += 1
            else:
                missing += 1
    assert missing <= open_calls


@quick
@given(JUNK, JUNK)
def test_nothing_makes_the_three_functions_raise(messages: Any, open_calls: Any) -> None:
    plan_resume(messages, open_calls)
    repair_orphaned_tool_calls(messages, open_calls)
    to_request(messages, "anthropic")


@quick
@given(st.lists(JUNK, max_size=4), TARGETS)
def test_no_list_of_messages_makes_them_raise(messages: list[Any], provider: str) -> None:
    plan_resume(messages)
    view, _ = repair_orphaned_tool_calls(messages)
    to_request(view, provider)


@quick
@given(WITH_OPEN_CALLS, TARGETS)
def test_input_is_never_changed_and_answers_are_always_the_same(
    given_: tuple[list[Any], list[Any]], provider: str
) -> None:
    messages, open_calls = given_
    before = repr(messages)  # nan is not equal to itself
    results = [
        (
            plan_resume(messages, open_calls),
            repr(repair_orphaned_tool_calls(messages, open_calls)),
            repr(to_request(messages, provider)),
        )
        for _ in range(2)
    ]
    assert repr(messages) == before
    assert results[0] == results[1]
    assert repr(to_request(copy.deepcopy(messages), provider)) == results[0][2]


@quick
@given(WITH_OPEN_CALLS)
def test_what_is_kept_is_a_prefix_and_planning_it_again_gives_the_same(
    given_: tuple[list[Any], list[Any]],
) -> None:
    messages, open_calls = given_
    plan = plan_resume(messages, open_calls)
    if isinstance(plan, Start):
        return
    assert 0 < plan.keep <= len(messages)
    assert plan_resume(messages[: plan.keep], open_calls) == plan


@quick
@given(WITH_OPEN_CALLS)
def test_what_is_left_out_is_unfinished_or_carries_nothing(given_: tuple[list[Any], list[Any]]) -> None:
    messages, open_calls = given_
    plan = plan_resume(messages, open_calls)
    dropped = messages[plan.keep :] if not isinstance(plan, Start) else messages
    for message in dropped:
        assert role_of(message) != "user"
        if role_of(message) == "assistant":
            assert read_frame(message).incomplete
    if not isinstance(plan, Start) and dropped:
        assert role_of(dropped[0]) == "assistant"


@quick
@given(TRANSCRIPTS)
def test_start_only_if_nothing_that_was_said_is_left(messages: list[Any]) -> None:
    if isinstance(plan_resume(messages), Start):
        assert not any(role_of(message) == "user" for message in messages)
        assert all(read_frame(m).incomplete for m in messages if role_of(m) == "assistant")


@quick
@given(WITH_OPEN_CALLS)
def test_plan_and_view_agree_on_what_is_missing(given_: tuple[list[Any], list[Any]]) -> None:
    """`repaired` names exactly the calls that the view of what is kept has to make a result for."""
    messages, open_calls = given_
    plan = plan_resume(messages, open_calls)
    if isinstance(plan, Start):
        return
    kept = messages[: plan.keep]
    view, repaired = repair_orphaned_tool_calls(kept, open_calls)
    assert repaired == plan.repaired
    assert repaired == sorted(repaired)
    assert not set(repaired) & set(open_calls)
    assert sum(message.get("synthetic", False) for message in view) == len(repaired)


@quick
@given(WITH_OPEN_CALLS)
def test_the_view_answers_every_call_once_behind_its_own_frame(given_: tuple[list[Any], list[Any]]) -> None:
    messages, open_calls = given_
    view, _ = repair_orphaned_tool_calls(messages, open_calls)
    assert_every_call_is_answered_behind_its_frame(view, len(open_calls))
    closed, _ = repair_orphaned_tool_calls(messages)
    assert_every_call_is_answered_behind_its_frame(closed)


@quick
@given(TRANSCRIPTS)
def test_repairing_twice_changes_nothing(messages: list[Any]) -> None:
    view, _ = repair_orphaned_tool_calls(messages)
    again, repaired = repair_orphaned_tool_calls(view)
    assert again is view
    assert repaired == []


@quick
@given(TRANSCRIPTS)
def test_user_messages_and_whole_frames_keep_their_order_and_none_is_lost(messages: list[Any]) -> None:
    view, _ = repair_orphaned_tool_calls(messages)

    def said(of: list[Any]) -> list[int]:
        return [
            id(m)
            for m in of
            if role_of(m) == "user" or (role_of(m) == "assistant" and read_frame(m).is_shown)
        ]

    assert said(view) == said(messages)
    durable = {id(message) for message in messages}
    assert all(id(message) in durable or message["synthetic"] for message in view)


@quick
@given(TRANSCRIPTS)
def test_the_view_of_a_continue_ends_in_a_user_or_result_message(messages: list[Any]) -> None:
    plan = plan_resume(messages)
    if isinstance(plan, Continue):
        view, _ = repair_orphaned_tool_calls(messages[: plan.keep])
        carrying = [message for message in view if role_of(message) in ("user", "assistant", "tool_result")]
        assert role_of(carrying[-1]) in ("user", "tool_result")
        assert role_of(to_request(view, "anthropic")[-1]) in ("user", "tool_result")


@quick
@given(TRANSCRIPTS)
def test_a_whole_reply_at_the_end_is_never_followed_by_another(messages: list[Any]) -> None:
    answer = {"role": "assistant", "content": "done", "stop": "stop", "error": None}
    plan = plan_resume([*messages, answer])
    assert isinstance(plan, AlreadyComplete)
    assert plan.keep == len(messages) + 1


@quick
@given(TRANSCRIPTS, TARGETS)
def test_a_request_built_from_a_request_is_the_same_object(messages: list[Any], provider: str) -> None:
    request = to_request(messages, provider)
    assert to_request(request, provider) is request


@quick
@given(TRANSCRIPTS, TRANSCRIPTS, TARGETS)
def test_what_was_sent_before_stays_the_same_when_the_transcript_grows(
    earlier: list[Any], later: list[Any], provider: str
) -> None:
    """C12: a later message, also one with an id that is taken, changes nothing of an earlier request."""
    view, _ = repair_orphaned_tool_calls(earlier)
    view = [{key: value for key, value in message.items() if key != SYNTHETIC} for message in view]  # settled
    grown, _ = repair_orphaned_tool_calls([*view, {"role": "user", "content": "next"}, *later])
    before = to_request(view, provider)
    if before and before[-1] == {"role": "user", "content": GO_ON}:
        before = before[:-1]
    assert repr(to_request(grown, provider)[: len(before)]) == repr(before)


@quick
@given(TRANSCRIPTS, TARGETS)
def test_a_request_is_legal_before_any_mapping(messages: list[Any], provider: str) -> None:
    """C12, C13, C23: ids unique, pairs kept, roles, both ends, and something in every message."""
    request = to_request(messages, provider)
    assert_every_call_is_answered_behind_its_frame(request)
    ids = [call.id for message in request for call in calls_of(message)]
    assert len(set(ids)) == len(ids)
    assert all(0 < len(sent) <= (64 if provider in ("openai", "anthropic", "google") else 40) for sent in ids)
    assert all(role_of(message) in ("user", "assistant", "tool_result") for message in request)
    if request:
        assert role_of(request[0]) == "user"
        assert role_of(request[-1]) in ("user", "tool_result")
    for message in request:
        content = message["content"]
        assert not is_blank(content) if isinstance(content, str) else content


@quick
@given(st.lists(IDS, unique=True, min_size=1), TARGETS)
def test_different_ids_stay_different_and_keep_their_results(ids: list[str], provider: str) -> None:
    """C12, C13: no two stored ids are sent as one, legal ones among them, and pairs agree."""
    calls = [{"type": "tool_call", "id": each, "name": "f", "args": {}} for each in ids]
    results = [
        {"role": "tool_result", "id": each, "name": "f", "error": False, "content": each or "-"}
        for each in ids
    ]
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": calls},
        *reversed(results),
    ]
    request = to_request(messages, provider)
    sent = [block["id"] for block in request[1]["content"]]
    assert len(set(sent)) == len(ids)
    assert [(m["id"], m["content"]) for m in request[2:]] == [
        (new, old or "-") for new, old in zip(sent, ids, strict=True)
    ]
