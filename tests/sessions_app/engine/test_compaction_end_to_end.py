"""R5: sessions that become too long, with a real worker and the scripted provider or a provider's own wire."""

import json
from typing import Any
from uuid import UUID

import httpx2
import pytest

from sessions_app import configs, control, ids, inputs, invariants, leases, session_service, steps
from sessions_app.engine import state as states
from sessions_app.entry_kinds import SYSTEM
from sessions_app.errors import SessionArchived
from sessions_app.inputs import NewInput
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Input, ModelCall, Session, SessionStatus, Turn
from sessions_app.providers.library import models
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.sessions_app.providers.streams import chat
from tests.staging import eventually

pytestmark = pytest.mark.django_db(transaction=True)

LONG = "It rained all day and nobody came by. " * 40  # about 380 tokens
WINDOW = 1900


def start(*replies: dict[str, Any], text: str | None = LONG, **document: Any) -> UUID:
    """A session under a script, with one input."""
    project = factories.project().pk
    whole = {
        "instructions": "Be brief.",
        "model": {"provider": "scripted", "name": "long"},
        "script": {"replies": list(replies)},
    }
    config = configs.create_config(project=project, document=whole | document).row
    first = None if text is None else NewInput(content=[{"type": "text", "text": text}], actor=SYSTEM)
    return session_service.start_session(project=project, actor=SYSTEM, config=config.pk, input=first).pk


def say(session: UUID, text: str, delivery: str = "queued") -> None:
    inputs.submit_input(
        session=session, content=[{"type": "text", "text": text}], actor=SYSTEM, delivery=delivery
    )


def kinds(session: UUID, *wanted: str) -> list[str]:
    rows = Entry.objects.filter(session_id=session).order_by("seq")
    return [kind for kind in rows.values_list("kind", flat=True) if not wanted or kind in wanted]


def checkpoints(session: UUID) -> list[dict[str, Any]]:
    rows = Entry.objects.filter(session_id=session, kind="checkpoint").order_by("seq")
    return list(rows.values_list("data", flat=True))


def context(session: UUID) -> list[dict[str, Any]]:
    return states.load({session: 1})[session].context.messages


def ends(session: UUID) -> list[tuple[str, str]]:
    return list(Turn.objects.filter(session_id=session).order_by("number").values_list("status", "reason"))


def test_a_session_is_compacted_before_its_request_becomes_too_long(settings):
    """R5, A148: by estimate, inside the turn, and the history stays in the log."""
    session = start(
        *({"text": f"Answer {number}. {LONG}"} for number in (1, 2)),
        {"text": "It rained; nobody came."},
        {"text": "Goodbye."},
    )
    with working(settings, context_window=WINDOW) as rested:
        rested(session)
        say(session, LONG)
        rested(session)
        assert checkpoints(session) == []
        say(session, "And now?")
        rested(session)
    (checkpoint,) = checkpoints(session)
    assert checkpoint["summary"] == "It rained; nobody came."
    assert checkpoint["because"] == "estimate"
    assert checkpoint["tokens_before"] >= 0.8 * WINDOW > checkpoint["tokens_after"]
    assert ends(session) == [("succeeded", "done")] * 3
    assert kinds(session, "user_message", "assistant_message") == ["user_message", "assistant_message"] * 3
    view = context(session)
    assert view[0]["role"] == "checkpoint"
    assert view[-1]["content"] == [{"type": "text", "text": "Goodbye."}]
    purposes = list(
        ModelCall.objects.filter(session_id=session).order_by("started_at").values_list("purpose", "state")
    )
    assert purposes == [
        ("reply", "succeeded"),
        ("reply", "succeeded"),
        ("compaction", "succeeded"),
        ("reply", "succeeded"),
    ]
    assert invariants.check_session(session) == []


def test_a_second_compaction_builds_on_the_first(settings):
    """R5: the earlier summary is part of what the later one covers."""
    session = start(
        {"text": LONG}, {"text": LONG}, {"text": "First summary."}, {"text": LONG}, {"text": LONG},
        {"text": "Second summary."}, {"text": "Done."},
    )  # fmt: skip
    with working(settings, context_window=WINDOW) as rested:
        for _ in range(4):
            rested(session)
            say(session, LONG)
        rested(session)
    first, second = checkpoints(session)
    assert first["covers_seq"] < second["covers_seq"]
    assert ends(session) == [("succeeded", "done")] * 5
    texts = [message["content"] for message in context(session) if message["role"] == "checkpoint"]
    assert len(texts) == 1
    assert texts[0].endswith("Second summary.")
    assert invariants.check_session(session) == []


def test_a_call_that_waits_for_its_results_is_never_cut_from_them(settings):
    """A148: a batch whose results fill the window is kept whole; what came before is covered."""
    session = start(
        {"text": LONG},
        {
            "text": "Looking.",
            "tool_calls": [{"name": "set_label", "arguments": {"key": "a", "value": "b"}}] * 2,
        },
        {"text": "Summary."},
        {"text": "Done."},
        tools={"set_label": {}},
        compaction={"at": 0.5, "keep_recent": 0.01},
    )
    with working(settings, context_window=WINDOW) as rested:
        rested(session)
        say(session, "Label it.")
        rested(session)
    (checkpoint,) = checkpoints(session)
    view = context(session)
    assert [message["role"] for message in view] == [
        "checkpoint", "assistant", "tool_result", "tool_result", "assistant",
    ]  # fmt: skip
    assert checkpoint["messages"] == 3
    assert ends(session)[-1] == ("succeeded", "done")
    assert invariants.check_session(session) == []


def test_a_refused_request_is_compacted_and_sent_again(settings):
    """R5: after the error, for a model whose window nobody knows."""
    session = start(
        {"text": "Hello."},
        {"error": {"status": 400, "code": "context_length_exceeded"}},
        {"text": "They said hello."},
        {"text": "Fine."},
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
    (checkpoint,) = checkpoints(session)
    assert checkpoint["because"] == "overflow"
    assert ends(session) == [("succeeded", "done")] * 2
    assert kinds(session, "model_call_failed", "checkpoint", "assistant_message", "retry_scheduled") == [
        "assistant_message", "model_call_failed", "checkpoint", "assistant_message",
    ]  # fmt: skip
    assert invariants.check_session(session) == []


def test_a_summary_that_does_not_shorten_the_context_ends_the_turn_once(settings):
    """R5, A148: one clear error instead of a loop, and the session stays usable."""
    session = start(
        {"text": "Hello."},
        {"error": {"status": 400, "code": "context_length_exceeded"}},
        {"text": LONG * 3},
        {"text": "Short."},
        {"text": "Fine."},
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
        assert ends(session)[-1] == ("failed", "context_too_long")
        error = Turn.objects.get(session_id=session, number=2).error
        assert error["code"] == "compaction_did_not_help"
        assert checkpoints(session) == []
        assert ModelCall.objects.filter(session_id=session).count() == 3
        say(session, "Are you there?")
        rested(session)
    assert ends(session)[-1] == ("succeeded", "done")
    assert len(checkpoints(session)) == 1
    assert invariants.check_session(session) == []


def test_one_message_that_nothing_can_shorten_ends_the_turn(settings):
    """R5: there is nothing to summarize but the message that has to be answered."""
    session = start({"error": {"status": 400, "code": "context_length_exceeded"}}, {"text": "Never said."})
    with working(settings) as rested:
        rested(session)
    assert ends(session) == [("failed", "context_too_long")]
    assert ModelCall.objects.filter(session_id=session).count() == 1


def test_a_request_for_a_summary_that_is_too_long_itself_is_made_shorter(settings):
    """R5: at once, a few times, each time for half as much."""
    too_long = {"error": {"status": 400, "code": "context_length_exceeded"}}
    session = start({"text": LONG}, too_long, too_long, too_long, {"text": "Rain."}, {"text": "Fine."})
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
    assert ends(session)[-1] == ("succeeded", "done")
    assert len(checkpoints(session)) == 1
    assert "retry_scheduled" not in kinds(session)
    assert invariants.check_session(session) == []


def test_a_request_for_a_summary_that_never_fits_gives_up(settings):
    """A148: exhaustion gives one error."""
    too_long = {"error": {"status": 400, "code": "context_length_exceeded"}}
    session = start({"text": LONG}, *[too_long] * 20)
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
    assert ends(session)[-1] == ("failed", "context_too_long")
    assert ModelCall.objects.filter(session_id=session).count() == 7
    assert kinds(session).count("turn_ended") == 2
    assert invariants.check_session(session) == []


def test_a_compaction_is_retried_like_any_call(settings):
    """R5, R2: its failures back off, count in the same budget, and the script goes on."""
    session = start(
        {"text": LONG},
        {"error": {"status": 400, "code": "context_length_exceeded"}},
        {"error": {"status": 529}},
        {"text": "half of it is lost", "cut": True},
        {"text": "Rain."},
        {"text": "Fine."},
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
    assert ends(session)[-1] == ("succeeded", "done")
    assert kinds(session).count("retry_scheduled") == 2
    failed = Entry.objects.filter(session_id=session, kind="model_call_failed").order_by("seq")
    assert [entry.data.get("purpose") for entry in failed] == [None, "compaction", "compaction"]
    assert invariants.check_session(session) == []


def test_a_compaction_that_fails_for_good_ends_the_turn_that_needs_it(settings):
    """R3"""
    session = start(
        {"text": LONG},
        {"error": {"status": 400, "code": "context_length_exceeded"}},
        {"error": {"status": 401}},
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
    assert ends(session)[-1] == ("failed", "auth")
    assert invariants.check_session(session) == []


def test_an_idle_session_is_compacted_at_once_when_asked(settings):
    """R5: no turn is opened for it, and asking twice is asking once."""
    session = start({"text": LONG}, {"text": "Rain."}, {"text": "Fine."})
    with working(settings) as rested:
        rested(session)
        control.request_compaction(session=session, actor=factories.ACTOR)
        control.request_compaction(session=session, actor=factories.ACTOR)
        row = rested(session)
        assert not row.compact_requested
        (checkpoint,) = checkpoints(session)
        assert checkpoint["because"] == "requested"
        say(session, "How are you?")
        rested(session)
    assert ends(session) == [("succeeded", "done")] * 2
    call = ModelCall.objects.get(session_id=session, purpose="compaction")
    assert (call.turn_id, call.state) == (None, "succeeded")
    asked = Entry.objects.get(session_id=session, kind="session_updated")
    assert asked.actor == factories.ACTOR
    assert invariants.check_session(session) == []


def test_what_was_asked_for_and_cannot_be_is_told_and_costs_no_turn(settings):
    """R5: nothing to summarize, a refusal, a summary that is longer than what it stands for."""
    empty = start(text=None)
    refused = start({"text": LONG}, {"error": {"status": 401}}, {"text": "Fine."})
    longer = start({"text": "Hello."}, {"text": LONG}, {"text": "Fine."}, text="Hello.")
    with working(settings) as rested:
        for session in (empty, refused, longer):
            rested(session)
            control.request_compaction(session=session, actor=SYSTEM)
            assert not rested(session).compact_requested
        for session in (refused, longer):
            say(session, "How are you?")
            rested(session)
            assert ends(session) == [("succeeded", "done")] * 2
    for session, words in ((empty, "nothing to summarize"), (refused, "credential"), (longer, "shorter")):
        note = Entry.objects.get(session_id=session, kind="note")
        assert words in note.data["text"]
        assert checkpoints(session) == []
        assert invariants.check_session(session) == []


def test_what_was_asked_for_waits_out_a_failure_and_input_does_not_wait_for_it(settings):
    """R6: between turns too the retry time is durable; a new input starts its turn at once."""
    session = start(
        {"text": LONG}, {"error": {"status": 529, "retry_after": 600}}, {"text": "Rain."}, {"text": "Fine."}
    )
    with working(settings) as rested:
        rested(session)
        control.request_compaction(session=session, actor=SYSTEM)
        eventually(lambda: factories.reread(session).status == SessionStatus.BACKING_OFF)
        assert factories.reread(session).turn_id is None
        say(session, "How are you?")
        rested(session)
    assert ends(session) == [("succeeded", "done")] * 2
    assert checkpoints(session)[0]["summary"] == "Rain."
    assert factories.reread(session).retry_at is None
    assert invariants.check_session(session) == []


def test_a_request_ends_with_cancel_and_archived_sessions_take_none(settings):
    """I6: nothing is left pending."""
    session = start(text=None)
    control.request_compaction(session=session, actor=SYSTEM)
    assert factories.reread(session).status == SessionStatus.QUEUED
    control.cancel(session=session, actor=SYSTEM)
    row = factories.reread(session)
    assert (row.compact_requested, row.status, row.wake_at) == (False, SessionStatus.IDLE, None)
    control.archive(session=session, actor=SYSTEM)
    with pytest.raises(SessionArchived):
        control.request_compaction(session=session, actor=SYSTEM)


def test_steering_behind_a_compaction_that_nobody_knows_the_end_of(settings):
    """A52: the compaction is asked again from a fresh place of the log, with a fresh budget, steering included."""
    session = start(
        {"text": LONG},
        {"error": {"status": 400, "code": "context_length_exceeded"}},
        {"error": {"status": 529, "retry_after": 600}},
        {"text": "Rain."},
        {"text": "Fine."},
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        eventually(lambda: factories.reread(session).status == SessionStatus.BACKING_OFF)
        say(session, "Hurry.", delivery="steering")
        rested(session)
    assert ends(session) == [("succeeded", "done")] * 2
    assert kinds(session, "user_message", "checkpoint", "assistant_message")[2:] == [
        "user_message", "user_message", "checkpoint", "assistant_message",
    ]  # fmt: skip
    first, second = ModelCall.objects.filter(session_id=session, purpose="compaction").order_by("started_at")
    assert first.covers_seq < second.covers_seq
    assert invariants.check_session(session) == []


def test_steering_that_comes_while_the_summary_is_written_stands_behind_it(settings):
    """A52: a checkpoint that is published first stays; steering comes after it."""
    session = start(
        {"text": LONG},
        {"error": {"status": 400, "code": "context_length_exceeded"}},
        {"text": "Rain.", "delay": 0.5},
        {"text": "Fine."},
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        eventually(lambda: ModelCall.objects.filter(session_id=session, purpose="compaction").exists())
        say(session, "Hurry.", delivery="steering")
        rested(session)
    assert kinds(session, "user_message", "checkpoint", "assistant_message")[2:] == [
        "user_message", "checkpoint", "user_message", "assistant_message",
    ]  # fmt: skip
    assert invariants.check_session(session) == []


def test_the_checkpoint_of_an_attempt_that_lost_its_session_is_refused():
    """A29: and the attempt that took over publishes its own."""
    old, new = factories.worker(), factories.worker()
    session = factories.running(old)
    lost = session.attempt

    def publish(worker: int, attempt: int, summary: str) -> steps.StepResult:
        data = {"summary": summary, "covers_seq": 0, "model_call": ids.encode("mcl", ids.new_id())}
        step = steps.StepWrite(
            session=session.pk,
            attempt=attempt,
            work_rev=0,
            entries=(NewEntry(kind="checkpoint", data=data, turn=session.turn_id),),
            compaction_over=True,
        )
        (result,) = steps.commit_steps(worker, [step])
        return result

    leases.steal(session.pk, worker=new.pk)
    assert isinstance(publish(old.pk, lost, "late"), steps.Lost)
    assert checkpoints(session.pk) == []
    assert isinstance(publish(new.pk, lost + 1, "mine"), steps.Saved)
    assert [data["summary"] for data in checkpoints(session.pk)] == ["mine"]


def test_a_provider_that_refuses_a_long_request_is_asked_for_a_summary_first(settings, monkeypatch):
    """R5: over a provider's own protocol; the request for the summary holds no tools and no calls."""
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        if len(bodies) == 2:
            error = {
                "code": "context_length_exceeded",
                "message": "too many tokens",
                "type": "invalid_request_error",
            }
            return httpx2.Response(400, json={"error": error})
        text = {1: LONG, 3: "Rain, all day."}.get(len(bodies), "Fine.")
        stream = chat(
            {"role": "assistant", "content": text}, usage={"prompt_tokens": 700, "completion_tokens": 9}
        )
        return httpx2.Response(200, text=stream, headers={"content-type": "text/event-stream"})

    monkeypatch.setattr(
        models, "_http_client", lambda *_: httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    )
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    session = start(
        text=LONG,
        model={"provider": "openai-chat", "name": "gpt-4.1"},
        tools={"set_label": {}},
        script=None,
    )
    with working(settings) as rested:
        rested(session)
        say(session, "How are you?")
        rested(session)
    assert ends(session) == [("succeeded", "done")] * 2, Turn.objects.filter(session_id=session).last().error
    assert len(bodies) == 4
    summary_request = bodies[2]
    assert "tools" not in summary_request
    assert [message["role"] for message in summary_request["messages"]] == ["system", "user"]
    assert LONG[:30] in json.dumps(summary_request["messages"])
    said = json.dumps(bodies[3]["messages"])
    assert "Rain, all day." in said
    assert LONG[:30] not in said
    assert invariants.check_session(session) == []


def test_no_input_is_lost_around_a_compaction(settings):
    """I1, R5"""
    session = start(
        *({"text": f"{number}: {LONG}"} for number in range(2)), {"text": "Rain."}, {"text": "Fine."}
    )
    for number in range(2):
        say(session, f"{number} {LONG}")
    with working(settings, context_window=WINDOW) as rested:
        rested(session)
    assert not Input.objects.filter(session_id=session).exclude(state="delivered").exists()
    assert Session.objects.get(pk=session).turn_count == 3
    assert invariants.check_session(session) == []
