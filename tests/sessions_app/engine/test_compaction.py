"""R5: where a context may be cut, what is asked, and when; as tables and for any history."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions_app.engine import compaction, tokens
from sessions_app.engine.compaction import Because, Rule, cut_point, plan, request_text, summary_of
from sessions_app.engine.context import HEADING
from sessions_app.engine.pressure import Pressure
from sessions_app.engine.resume import repair_orphaned_tool_calls
from sessions_app.engine.transcript import read
from sessions_app.providers.port import Category, ModelCallFailed, Reply, Stop, Usage
from sessions_app.providers.request_rules import check_request
from tests.sessions_app.engine.generated import transcripts
from tests.sessions_app.engine.transcripts import transcript
from tests.sessions_app.providers.test_requests_on_the_wire import (
    TARGETS,
    Recorder,
    recorder,  # noqa: F401 - a fixture
    sent_bodies,
)


def cut(text: str, keep: int) -> int | None:
    """The cut of a transcript whose messages are all one token long."""
    messages = transcript(text)
    return cut_point(messages, [1] * len(messages), keep)


@pytest.mark.parametrize(
    ("text", "keep", "expected"),
    [
        pytest.param("", 5, None, id="nothing"),
        pytest.param("U", 0, None, id="one message is never covered"),
        pytest.param("U T", 1, 1, id="the last reply stays"),
        pytest.param("U T", 0, 1, id="something stays whatever may"),
        pytest.param("U T U T U", 1, 4, id="before a user message"),
        pytest.param("U T U T U", 2, 3, id="before a reply"),
        pytest.param("U T U T U", 99, 1, id="something is covered"),
        pytest.param("U A[c1] r(c1) U", 2, 3, id="not before a result: fewer stay"),
        pytest.param("U A[c1] r(c1)", 1, 1, id="the last exchange stays whole, though it is too much"),
        pytest.param("U A[c1,c2] r(c1) r(c2) A[c3] r(c3)", 3, 4, id="a batch is one piece"),
        pytest.param("U A[c1] U r(c1) T", 2, 4, id="a late result holds its call back"),
        pytest.param("U r(c1) A[c1] T", 3, 3, id="an adopted result too"),
        pytest.param("U A[c1] U", 1, 2, id="a call without a result is the view's to repair"),
        pytest.param("checkpoint U", 0, None, id="an earlier summary alone is not covered again"),
        pytest.param("checkpoint U T", 0, 2, id="but with something new it is"),
        pytest.param("U T note note", 0, 1, id="no cut before a note"),
    ],
)
def test_where_a_context_is_cut(text, keep, expected):
    """A148"""
    assert cut(text, keep) == expected


def test_a_cut_that_would_fall_between_a_call_and_its_result_moves() -> None:
    """C03"""
    messages = transcript("U A[k1] r(k1) A[k2] r(k2) A[k3] r(k3) T")
    found = cut_point(messages, [1] * len(messages), 4)
    assert found == 5  # the four last ones would begin with the result of k2
    kept = messages[found:]
    assert kept[0]["role"] != "tool_result"
    assert len(read(kept).owner) == sum(message["role"] == "tool_result" for message in kept)


@settings(max_examples=200, deadline=None)
@given(messages=transcripts(st.just("openai")), keep=st.integers(0, 2000))
def test_no_cut_separates_a_call_from_a_result(messages, keep):
    """A148, C03: in any history the results that are kept are those of the frames that are kept."""
    sizes = [tokens.of_message(message) for message in messages]
    found = cut_point(messages, sizes, keep)
    if found is None:
        return
    assert 0 < found < len(messages)
    assert messages[found]["role"] in {"user", "assistant"}
    for result, frame in read(messages).owner.items():
        assert (result >= found) == (frame >= found)
    before = read(messages).owner
    after = {result + found: frame + found for result, frame in read(messages[found:]).owner.items()}
    assert after == {result: frame for result, frame in before.items() if result >= found}


@pytest.mark.parametrize("provider", TARGETS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_compacted_history_and_its_request_keep_the_rules_of_each_protocol(
    recorder: Recorder,  # noqa: F811
    provider: str,
    data: st.DataObject,
) -> None:
    """R5: at the wire, once and once more."""
    messages = data.draw(transcripts(st.sampled_from([provider, "google"])))
    views = []
    for number in range(2):
        sizes = [tokens.of_message(message) for message in messages]
        job = plan(messages, sizes, frame=10, ratio=1.0, rule=Rule(data.draw(st.integers(500, 4000))))
        if job is None:
            break
        views.append([{"role": "user", "content": [{"type": "text", "text": job.text}]}])
        messages = [{"role": "checkpoint", "content": f"{HEADING}{number}"}, *messages[job.cut :]]
        views.append(repair_orphaned_tool_calls(messages)[0])
    for body in sent_bodies(recorder, views, provider) if views else ():
        assert check_request(provider, body) == []


def test_the_request_holds_what_is_covered_as_text() -> None:
    messages = transcript("checkpoint U A[c1,c2] r(c1) rE(c2) thinking T")
    messages[1]["content"].append({"type": "media", "media_type": "image/png", "data": "AAAA"})
    messages[1]["content"].append({"type": "data", "value": {"a": 1}})
    text = request_text(messages, 10_000)
    assert "[Earlier summary]\ncheckpoint 0" in text
    assert '[User]\nmessage 1\n(a file: image/png)\n{"a": 1}' in text
    assert "(calls c with {})" in text
    assert "[result of c]\nresult 3" in text
    assert "[error of c]\nresult 4" in text
    assert "AAAA" not in text
    assert "hm" not in text
    assert text.startswith("<transcript>\n")


@given(lengths=st.lists(st.integers(0, 30_000), max_size=30), limit=st.integers(1000, 50_000))
def test_a_request_for_a_summary_fits(lengths, limit):
    """R5: however long what it covers is."""
    covered = [{"role": "user", "content": "x" * length} for length in lengths]
    assert len(request_text(covered, limit)) <= limit + 100


def test_long_messages_are_cut_before_short_ones_are() -> None:
    covered = [{"role": "user", "content": word * 10} for word in ("alpha ", "omega ")]
    covered.insert(1, {"role": "tool_result", "name": "read", "content": "x" * 100_000})
    text = request_text(covered, 5000)
    assert "alpha " * 9 in text
    assert "omega " * 9 in text
    assert "characters left out" in text


def test_each_refusal_halves_the_request() -> None:
    messages = transcript("U T U T U")
    messages[1]["content"][0]["text"] = "x" * 100_000
    sizes = [tokens.of_message(message) for message in messages]
    rule = Rule(window=20_000)
    lengths = [
        len(plan(messages, sizes, frame=0, ratio=1.0, rule=rule, overflows=overflows).text)
        for overflows in range(4)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 1.5 * lengths[3]


def test_a_share_of_what_is_there_is_kept_where_that_is_less_than_the_window() -> None:
    messages = transcript("U T U T U T U T U T")
    sizes = [100] * 10
    job = plan(messages, sizes, frame=0, ratio=1.0, rule=Rule(window=1_000_000, keep_recent=0.3))
    assert (job.cut, job.before, job.covered) == (7, 1000, 700)


def test_sizes_are_told_as_the_provider_would_count_them() -> None:
    messages = transcript("U T U")
    job = plan(messages, [100, 100, 100], frame=100, ratio=2.0, rule=Rule(window=1000, keep_recent=0.2))
    assert (job.before, job.covered) == (800, 400)
    after = job.after("x" * 80, 2.0)
    assert after == 800 - 400 + 2 * (20 + tokens.MESSAGE_TOKENS)
    assert compaction.helps(job, after)
    assert not compaction.helps(job, job.after("x" * 4000, 2.0))


def reply(*content: dict[str, Any], stop: Stop = Stop.DONE) -> Reply:
    return Reply(list(content), stop, None, Usage(1, 1), provider_details={"script_next": 4})


def test_a_summary_is_the_text_of_the_reply() -> None:
    thought = {"type": "reasoning", "text": "hm"}
    call = {"type": "tool_call", "id": "c1", "name": "read", "arguments": {}}
    said = [{"type": "text", "text": "\nIt rained."}, {"type": "text", "text": "Nobody came.\n"}]
    assert summary_of(reply(thought, *said, call)) == "It rained.\nNobody came."
    assert summary_of(reply(*said, stop=Stop.LENGTH)) == "It rained.\nNobody came."


@pytest.mark.parametrize(
    ("answer", "category"),
    [
        (reply({"type": "text", "text": " "}), Category.EMPTY),
        (reply({"type": "reasoning", "text": "hm"}), Category.EMPTY),
        (reply({"type": "text", "text": "No."}, stop=Stop.FILTERED), Category.INVALID_REQUEST),
    ],
)
def test_a_reply_without_a_summary_is_a_failed_call(answer, category):
    """R4: with its usage, and its place in the script."""
    with pytest.raises(ModelCallFailed) as failed:
        summary_of(answer)
    assert failed.value.category is category
    assert failed.value.usage == answer.usage
    assert failed.value.provider_details == {"script_next": 4}


# --- when ------------------------------------------------------------------------------------------------

RULE = Rule(window=1000)


@pytest.mark.parametrize(
    ("pressure", "size", "new", "expected"),
    [
        pytest.param({"grown": True}, 799, 0, None, id="there is room"),
        pytest.param({"grown": True}, 800, 0, Because.ESTIMATE, id="there is none"),
        pytest.param(
            {"grown": True}, 700, 100, Because.ESTIMATE, id="what is delivered with the call counts"
        ),
        pytest.param(
            {"pending": 100}, 700, 0, Because.ESTIMATE, id="so do results on their way into the log"
        ),
        pytest.param({"grown": True, "ratio": 2.0}, 400, 0, Because.ESTIMATE, id="as the provider counts"),
        pytest.param({}, 5000, 0, None, id="nothing was said since the last checkpoint"),
        pytest.param({}, 700, 100, Because.ESTIMATE, id="but now there is"),
        pytest.param({"overflowed": True}, 10, 0, Because.OVERFLOW, id="the provider refused"),
        pytest.param({"requested": True}, 10, 0, Because.REQUESTED, id="somebody asked"),
        pytest.param(
            {"requested": True, "overflowed": True}, 10, 0, Because.REQUESTED, id="one answers both"
        ),
    ],
)
def test_why_a_session_is_compacted(pressure, size, new, expected):
    """R5"""
    asked = Pressure(**pressure)
    assert asked.why(rule=RULE, size=size, new=new, covered=lambda: 400) is expected
    in_vain = Because.IN_VAIN if asked.requested else None
    assert asked.why(rule=RULE, size=size, new=new, covered=lambda: None) is in_vain


def test_an_estimate_is_no_reason_to_summarize_what_is_short() -> None:
    """A request that is mostly one large message would stay as long; the provider says whether it fits."""
    pressure = Pressure(grown=True)
    assert pressure.why(rule=RULE, size=900, new=0, covered=lambda: 90) is Because.ESTIMATE
    assert pressure.why(rule=RULE, size=900, new=0, covered=lambda: 89) is None
    pressure.overflowed = True
    assert pressure.why(rule=RULE, size=900, new=0, covered=lambda: 1) is Because.OVERFLOW


def failed(**data: Any) -> tuple[str, dict[str, Any]]:
    return "model_call_failed", {"category": "context_too_long", **data}


SAID = ("user_message", {})
REPLY = ("assistant_message", {"provider": "openai", "usage": {"input_tokens": 150}})
CHECKPOINT = ("checkpoint", {"ratio": 1.25})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param([SAID], {"grown": True}, id="something was said"),
        pytest.param([REPLY], {"grown": True, "ratio": 1.5}, id="the provider counted"),
        pytest.param(
            [("assistant_message", {"provider": "scripted", "usage": {"input_tokens": 9}})],
            {"grown": True},
            id="the scripted provider does not",
        ),
        pytest.param([failed()], {"overflowed": True}, id="refused as too long"),
        pytest.param([("model_call_failed", {"category": "rate"})], {}, id="another failure"),
        pytest.param(
            [failed(), failed(purpose="compaction")], {"overflowed": True, "overflows": 1}, id="and again"
        ),
        pytest.param([failed(), ("config_changed", {})], {}, id="perhaps of a model that reads more"),
        pytest.param(
            [SAID, failed(), failed(purpose="compaction"), CHECKPOINT],
            {"ratio": 1.25, "checkpoint": 4},
            id="a checkpoint settles it",
        ),
        pytest.param([failed(), REPLY], {"grown": True, "ratio": 1.5}, id="so does a reply"),
    ],
)
def test_what_the_log_says_about_the_pressure(entries, expected):
    """R5: an attempt that takes over judges as the one before."""
    pressure = Pressure()
    for seq, (kind, data) in enumerate(entries, start=1):
        pressure.take(seq, kind, data, 100)
    assert pressure == Pressure(**expected)


def test_a_context_that_begins_with_a_checkpoint_is_not_measured_by_older_replies() -> None:
    """What a checkpoint covers is not in the context of whoever reads the branch from there."""
    pressure = Pressure()
    pressure.take(9, *CHECKPOINT, 0)
    pressure.take(7, *REPLY, 100)
    assert pressure.ratio == 1.25
    pressure.take(12, *REPLY, 100)
    assert pressure.ratio == 1.5


def test_the_rule_of_a_config() -> None:
    assert Rule.of({}, 1000) == Rule(1000, 0.8, 0.2)
    assert Rule.of({"compaction": {"at": 0.5}}, 1000) == Rule(1000, 0.5, 0.2)
    assert Rule.of({"compaction": {"at": 0.5, "keep_recent": 0.1}}, 1000).limit == 500
