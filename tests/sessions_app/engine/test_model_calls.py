"""What follows from each answer of a provider: real sessions, a real worker, the adapters, a server that misbehaves."""

import base64
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.core.files.storage import default_storage

from sessions_app import artifacts, configs, ids, inputs, secrets, session_service
from sessions_app.api import session_shapes
from sessions_app.entry_kinds import SYSTEM
from sessions_app.inputs import NewInput
from sessions_app.models import Entry, ModelCall, Project, Secret, Session, Turn
from sessions_app.providers.request_rules import check_request
from tests import factories
from tests.sessions_app.engine.in_process import working
from tests.sessions_app.engine.test_images import png
from tests.sessions_app.engine.wire import in_background
from tests.sessions_app.providers import streams
from tests.sessions_app.providers.wire_server import WireServer

pytestmark = pytest.mark.django_db(transaction=True)

LOOPBACK = ("127.0.0.0/8", "::1/128")
SAID = streams.chat({"content": "Hello."})


@pytest.fixture
def server() -> Iterator[WireServer]:
    with in_background(WireServer()) as running:
        yield running


@pytest.fixture
def project() -> Project:
    return factories.project()


def document(server: WireServer, provider: str = "openai-chat", **more: Any) -> dict[str, Any]:
    path = {"openai": "/v1", "openai-chat": "/v1"}.get(provider, "")
    model = {"provider": provider, "name": "some-model", "base_url": server.url + path}
    return {"instructions": "Be brief.", "model": model | more.pop("model", {}), **more}


def start(project: Project, document: dict[str, Any], *blocks: dict[str, Any]) -> UUID:
    config = configs.create_config(project=project.pk, document=document).row
    content = list(blocks) or [{"type": "text", "text": "hi"}]
    first = NewInput(content=content, actor=SYSTEM)
    return session_service.start_session(project=project.pk, actor=SYSTEM, config=config.pk, input=first).pk


def say(session: UUID, text: str) -> None:
    inputs.submit_input(
        session=session, content=[{"type": "text", "text": text}], actor=SYSTEM, delivery="queued"
    )


def run(settings: Any, session: UUID, **changed: Any) -> Session:
    with working(settings, **{"allowed_networks": LOOPBACK, **changed}) as rested:
        return rested(session)


def turn_of(session: UUID) -> Turn:
    return Turn.objects.filter(session_id=session).latest("number")


def log_of(session: UUID, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
    rows = Entry.objects.filter(session_id=session, kind__in=kinds).order_by("seq")
    return list(rows.values_list("kind", "data"))


def calls_of(session: UUID) -> list[ModelCall]:
    return list(ModelCall.objects.filter(session_id=session).order_by("started_at"))


def error(status: int, **fields: Any) -> tuple[str, int]:
    return json.dumps({"type": "error", "error": fields}), status


FAILURES = [
    pytest.param(
        429, {"code": "rate_limit_exceeded", "message": "slow"}, None, "limits how often", id="rate"
    ),
    pytest.param(500, {"message": "oops"}, None, "an error of its own", id="server"),
    pytest.param(529, {"type": "overloaded_error", "message": "busy"}, None, "overloaded", id="overloaded"),
    pytest.param(401, {"message": "bad key"}, "auth", "does not accept the credential", id="A36: auth"),
    pytest.param(429, {"code": "insufficient_quota", "message": "pay"}, "quota", "quota", id="C48: quota"),
    pytest.param(404, {"message": "no"}, "model_not_found", "does not know the model", id="unknown model"),
    pytest.param(400, {"message": "no"}, "invalid_request", "does not accept the request", id="invalid"),
]


@pytest.mark.parametrize(("status", "fields", "reason", "words"), FAILURES)
def test_an_error_is_retried_or_ends_the_turn_and_is_told_in_words(
    settings, server, project, status, fields, reason, words
):
    """R2, R3, A36: the log says what happened; a failed attempt has its row, and nothing was billed."""
    body, code = error(status, **fields)
    server.play(body, status=code)
    server.play(SAID)
    session = start(project, document(server))
    run(settings, session)
    turn = turn_of(session)
    assert (turn.status, turn.reason) == (("failed", reason) if reason else ("succeeded", "done"))
    failed, *scheduled = log_of(session, "model_call_failed", "retry_scheduled")
    assert words in failed[1]["detail"]
    assert fields["message"] in failed[1]["detail"]
    assert [data["reason"] for _, data in scheduled] == ([] if reason else [failed[1]["detail"]])
    if reason:
        assert words in turn.error["detail"]
    states = [(call.state, call.may_be_billed) for call in calls_of(session)]
    assert states == [("failed", False)] + ([] if reason else [("succeeded", False)])


def test_the_ninth_failure_ends_the_turn(settings, server, project):
    """A35: eight retries; what the provider asked for stays in the error."""
    for _ in range(9):
        server.play(*error(429, message="slow down")[:1], status=429, retry_after="0.01")
    session = start(project, document(server))
    row = run(settings, session)
    turn = turn_of(session)
    assert turn.reason == "retries_exhausted"
    assert "failed 9 times" in turn.error["detail"]
    assert "0.01 s" in turn.error["detail"]
    assert len(log_of(session, "retry_scheduled")) == 8
    assert (row.status, row.wake_at, row.retry_at) == ("idle", None, None)


def test_the_providers_word_outranks_the_table(settings, server, project):
    """A36: x-should-retry, both ways."""
    server.play(error(400, message="a moment")[0], status=400, x_should_retry="true")
    server.play(error(500, message="never")[0], status=500, x_should_retry="false")
    session = start(project, document(server))
    run(settings, session)
    assert turn_of(session).reason == "invalid_request"
    assert len(log_of(session, "retry_scheduled")) == 1


def test_an_ended_turn_is_not_asked_again_and_the_next_one_tells_the_model(settings, server, project):
    """A44, R3: not due; a new input is try 1, and the model sees the error."""
    server.play(error(401, message="bad key")[0], status=401)
    server.play(SAID)
    session = start(project, document(server))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        row = rested(session)
        assert (row.wake_at, row.turn_id) == (None, None)
        assert len(server.received) == 1
        say(session, "and now?")
        rested(session)
    assert turn_of(session).status == "succeeded"
    body = server.received[-1].body
    assert check_request("openai-chat", body) == []
    texts = [message["content"] for message in body["messages"]]
    assert texts[1] == "hi"
    assert "ended with an error" in texts[2]
    assert "bad key" in texts[2]
    assert texts[3] == "and now?"


@pytest.mark.parametrize("stall", ["stall", "cut"])
def test_a_stream_that_stops_is_a_failed_call(settings, server, project, stall):
    """R4: no event for the stall timeout, from the answer's head on; the next try succeeds."""
    server.play(streams.sse({"choices": [{"index": 0, "delta": {"content": "He"}}]}), end=stall)
    server.play([], end=stall)
    server.play(SAID)
    session = start(project, document(server))
    run(settings, session, stream_stall_timeout=0.2)
    assert turn_of(session).status == "succeeded"
    failed = [data for _, data in log_of(session, "model_call_failed")]
    assert [data["category"] for data in failed] == ["timeout" if stall == "stall" else "cut"] * 2
    first, second, _ = calls_of(session)
    assert first.may_be_billed
    assert second.may_be_billed


def test_reasoning_that_cannot_be_read_any_more_is_left_out_for_good(settings, server, project):
    """A38, C21: one call more, with its own row and entry, at once; later requests leave it out as well."""
    server.play(
        streams.responses(
            *streams.responses_reasoning("rs_1", ["Look."], "stale", 0),
            *streams.responses_text("msg_1", "One.", 1),
        )
    )
    refusal = error(
        400, type="invalid_request_error", code="invalid_encrypted_content", message="not verified"
    )
    server.play(refusal[0], status=400)
    server.play(streams.responses(*streams.responses_text("msg_2", "Two.")))
    server.play(streams.responses(*streams.responses_text("msg_3", "Three.")))
    session = start(project, document(server, "openai", model={"name": "gpt-5"}))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        rested(session)
        say(session, "and?")
        rested(session)
    # Another worker reads the same from the log.
    say(session, "more")
    run(settings, session)
    assert [call.state for call in calls_of(session)] == ["succeeded", "failed", "succeeded", "succeeded"]
    assert log_of(session, "retry_scheduled") == []
    assert [data["category"] for _, data in log_of(session, "model_call_failed")] == ["replay_refused"]
    sent = [json.dumps(received.body["input"]) for received in server.received]
    assert ["stale" in body for body in sent] == [False, True, False, False]
    assert "rs_1" not in sent[3]
    for received in server.received:
        assert check_request("openai", received.body) == []


def test_reasoning_that_is_refused_twice_at_one_place_ends_the_turn(settings, server, project):
    """A38: again at the same place of the log: stop."""
    server.play(
        streams.responses(
            *streams.responses_reasoning("rs_1", ["Look."], "stale", 0),
            *streams.responses_text("msg_1", "One.", 1),
        )
    )
    refusal = error(
        400, type="invalid_request_error", code="invalid_encrypted_content", message="not verified"
    )
    for _ in range(2):
        server.play(refusal[0], status=400)
    session = start(project, document(server, "openai", model={"name": "gpt-5"}))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        rested(session)
        say(session, "and?")
        rested(session)
    assert turn_of(session).reason == "invalid_request"
    assert len(server.received) == 3


def image_block(project: Project, number: int) -> dict[str, Any]:
    data = png(100, 100) + bytes([number]) * 30_000
    row = artifacts.store(project=project.pk, name=f"{number}.png", media_type="image/png", data=data)
    return {"type": "media", "artifact": ids.encode("art", row.pk)}


def images_in(body: dict[str, Any]) -> int:
    return json.dumps(body).count('"image_url"') // 2


def test_a_body_that_is_refused_is_asked_again_with_half_as_much(settings, server, project):
    """C36: 413; once, at once, no retry used, and later requests stay below it. The log keeps the images."""
    server.play("<html>413 Request Entity Too Large</html>", status=413, content_type="text/html")
    server.play(SAID)
    server.play(SAID)
    blocks = [image_block(project, number) for number in range(6)]
    session = start(project, document(server), *blocks, {"type": "text", "text": "look"})
    with working(settings, allowed_networks=LOOPBACK) as rested:
        rested(session)
        say(session, "and?")
        rested(session)
    assert [turn.status for turn in Turn.objects.filter(session_id=session)] == ["succeeded"] * 2
    sizes = [int(received.headers["content-length"]) for received in server.received]
    counts = [images_in(received.body) for received in server.received]
    assert counts[0] == 6
    assert 0 < counts[1] < 4
    assert counts[2] == counts[1]
    assert sizes[1] <= sizes[0] / 2
    assert "An older file is left out" in json.dumps(server.received[1].body)
    assert log_of(session, "retry_scheduled") == []
    (failed,) = log_of(session, "model_call_failed")
    assert failed[1]["body_budget"] == sizes[0] // 2
    (_, kept), *_ = log_of(session, "user_message")
    assert [block["type"] for block in kept["content"]] == ["media"] * 6 + ["text"]


def test_a_body_that_is_refused_though_there_is_nothing_to_leave_out_ends_the_turn(settings, server, project):
    server.play(error(413, message="too large")[0], status=413)
    session = start(project, document(server))
    run(settings, session)
    turn = turn_of(session)
    assert turn.reason == "invalid_request"
    assert "larger than the provider takes" in turn.error["detail"]
    assert len(server.received) == 1


def test_a_body_that_is_refused_twice_ends_the_turn(settings, server, project):
    """C36: shrink once."""
    for _ in range(2):
        server.play(error(413, message="too large")[0], status=413)
    session = start(project, document(server), *[image_block(project, number) for number in range(6)])
    run(settings, session)
    assert turn_of(session).reason == "invalid_request"
    assert len(server.received) == 2


# --- preparing the request (A39) -------------------------------------------------------------------------


def test_a_secret_that_is_missing_ends_the_turn_and_is_named(settings, server, project):
    """A39."""
    session = start(project, document(server, model={"credential": "prod-key"}))
    run(settings, session)
    turn = turn_of(session)
    assert (turn.reason, turn.error["code"]) == ("auth", "secret_missing")
    assert "'prod-key'" in turn.error["detail"]
    assert server.received == []


def test_a_secret_that_cannot_be_decrypted_ends_the_turn_and_is_named(settings, server, project):
    """A39."""
    secrets.put_secret(project=project, name="prod-key", value="sk-1")
    Secret.objects.filter(project=project).update(ciphertext="gAAAAABnot-what-it-was")
    session = start(project, document(server, model={"credential": "prod-key"}))
    run(settings, session)
    turn = turn_of(session)
    assert (turn.reason, turn.error["code"]) == ("auth", "secret_unreadable")
    assert "'prod-key'" in turn.error["detail"]


class Gone(Exception):
    """As a storage in the cloud raises it: of no class that anybody could list."""


def test_a_storage_that_is_away_is_tried_again(settings, server, project, monkeypatch):
    """A39: a durable retry on the shared budget; nothing was sent, so nothing was billed."""
    server.play(error(500, message="oops")[0], status=500)
    server.play(SAID)
    default_storage.exists("anything")  # it is made at its first use
    real, tries = default_storage._wrapped.open, []

    def open_(name, mode="rb"):
        tries.append(name)
        if len(tries) == 1:
            raise Gone("the bucket is away")
        return real(name, mode)

    session = start(project, document(server), image_block(project, 1))
    monkeypatch.setattr(default_storage._wrapped, "open", open_)
    run(settings, session)
    assert turn_of(session).status == "succeeded"
    assert [data["category"] for _, data in log_of(session, "model_call_failed")] == ["preparation", "server"]
    assert [data["retry"] for _, data in log_of(session, "retry_scheduled")] == [1, 2]
    assert "could not be prepared" in log_of(session, "model_call_failed")[0][1]["detail"]
    assert not calls_of(session)[0].may_be_billed


def test_a_forbidden_address_ends_the_turn(settings, server, project):
    """A39, the network rule."""
    session = start(project, document(server))
    run(settings, session, allowed_networks=())
    turn = turn_of(session)
    assert (turn.reason, turn.error["code"]) == ("invalid_request", "forbidden_address")


def test_a_name_that_does_not_resolve_is_tried_again(settings, server, project):
    """A39: DNS."""
    session = start(project, document(server, model={"base_url": "http://nobody.invalid/v1"}))
    run(settings, session, retry_limit=1)
    assert turn_of(session).reason == "retries_exhausted"
    assert [data["category"] for _, data in log_of(session, "model_call_failed")] == ["connection"] * 2


# --- replies that end otherwise --------------------------------------------------------------------------

TOOL = {
    "class": "custom",
    "description": "Send it.",
    "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}},
}
REFUSED = {"choices": [{"index": 0, "delta": {"refusal": "I will not."}}]}


def test_a_refusal_together_with_calls_is_filtered_and_runs_nothing(settings, server, project):
    """A42, C56."""
    call = streams.chat_call(0, "call_1", "send", '{"to": "x"}')
    server.play(streams.chat({"refusal": "I will not."}, call, finish="tool_calls"))
    session = start(project, document(server, tools={"send": TOOL}))
    run(settings, session)
    turn = turn_of(session)
    assert (turn.status, turn.reason, turn.tool_calls) == ("failed", "filtered", 0)
    assert log_of(session, "tool_started", "tool_result") == []


def test_announced_calls_that_are_not_there_are_asked_for_again(settings, server, project):
    """A42: nothing of it is stored."""
    server.play(streams.chat({"content": "calling"}, finish="tool_calls"))
    server.play(SAID)
    session = start(project, document(server, tools={"send": TOOL}))
    run(settings, session)
    (message,) = log_of(session, "assistant_message")
    assert message[1]["content"] == [{"type": "text", "text": "Hello."}]


def test_a_reply_that_is_paused_for_ever_ends_the_turn(settings, server, project):
    """C39: bounded by the turn's limits, and by a number of its own where there are none."""
    for _ in range(30):
        server.play(streams.anthropic(*streams.anthropic_text(0, "wait"), stop="pause_turn"))
    session = start(project, document(server, "anthropic"))
    run(settings, session)
    turn = turn_of(session)
    assert (turn.status, turn.reason) == ("failed", "unknown_stop")
    assert 20 <= len(server.received) <= 22


# --- structured answers ----------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"priority": {"type": "string", "enum": ["low", "high"]}},
    "required": ["priority"],
    "additionalProperties": False,
}


def shape_of(session: UUID) -> session_shapes.TurnShape:
    return session_shapes.turn(session_shapes.turn_rows().get(pk=turn_of(session).pk))


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic"])
def test_an_answer_that_fits_is_the_output_of_the_turn(settings, server, project, provider):
    """`output_schema`: natively where the provider has it, in words where not."""
    answer = '{"priority": "high"}'
    raw = {
        "openai": streams.responses(*streams.responses_text("msg_1", answer)),
        "openai-chat": streams.chat({"content": answer}),
        "anthropic": streams.anthropic(*streams.anthropic_text(0, answer)),
    }[provider]
    server.play(raw)
    session = start(project, document(server, provider, output_schema=SCHEMA))
    run(settings, session)
    assert shape_of(session)["output"] == [{"type": "data", "value": {"priority": "high"}}]
    assert turn_of(session).status == "succeeded"
    # In the field that is for it, or in the instructions.
    assert "additionalProperties" in json.dumps(server.received[0].body)


def test_an_answer_that_does_not_fit_is_asked_for_again_once(settings, server, project):
    """`output_schema`: the failed answer stays in the log, and the model is told what was wrong."""
    server.play(streams.chat({"content": "It is high."}))
    server.play(streams.chat({"content": '{"priority": "high"}'}))
    session = start(project, document(server, output_schema=SCHEMA))
    run(settings, session)
    assert turn_of(session).status == "succeeded"
    assert shape_of(session)["output"] == [{"type": "data", "value": {"priority": "high"}}]
    (_, first), (_, note), (_, second) = log_of(session, "assistant_message", "note")
    assert "not JSON" in first["invalid_output"]
    assert first["invalid_output"] in note["text"]
    assert second["output"] == [{"type": "data", "value": {"priority": "high"}}]
    body = server.received[1].body
    assert check_request("openai-chat", body) == []
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert "does not fit the schema" in body["messages"][3]["content"]


def test_an_answer_that_does_not_fit_twice_ends_the_turn(settings, server, project):
    """`output_schema`: `invalid_output`, with what does not fit; the next turn asks afresh."""
    for text in ("It is high.", '{"priority": "middle"}', "no", '{"priority": "low"}'):
        server.play(streams.chat({"content": text}))
    session = start(project, document(server, output_schema=SCHEMA))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        rested(session)
        turn = turn_of(session)
        assert (turn.status, turn.reason) == ("failed", "invalid_output")
        assert "at /priority" in turn.error["detail"]
        say(session, "again")
        rested(session)
    assert turn_of(session).status == "succeeded"


# --- money -----------------------------------------------------------------------------------------------

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


@pytest.fixture
def official(server, monkeypatch) -> str:
    """The provider's own address leads to the server of the test, so that list prices apply."""
    from sessions_app.providers.library import models

    monkeypatch.setattr(models, "OPENAI_URL", server.url + "/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    return "gpt-4o-mini"


def priced(model: str) -> dict[str, Any]:
    return {"instructions": "Be brief.", "model": f"openai-chat:{model}"}


def test_every_attempt_has_its_cost_and_the_sums_are_those_of_turn_and_session(
    settings, server, project, official
):
    """R7: also the attempt that failed after it had begun; money is a decimal string."""
    cut = [
        {"id": "c1", "model": official, "choices": [{"index": 0, "delta": {"content": "He"}}], "usage": USAGE}
    ]
    server.play(streams.sse(*cut), end="cut")
    server.play(streams.chat({"content": "Hello."}, usage=USAGE, model=official))
    session = start(project, priced(official))
    row = run(settings, session)
    failed, saved = calls_of(session)
    assert (failed.state, saved.state) == ("failed", "succeeded")
    assert saved.cost is not None
    assert saved.cost > 0
    assert failed.cost == saved.cost
    assert failed.may_be_billed
    total = failed.cost + saved.cost
    assert (row.cost, turn_of(session).cost) == (total, total)
    assert Decimal(shape_of(session)["cost"] or "x") == total
    for call in (failed, saved):
        assert call.ended_at is not None
        assert call.ended_at > call.started_at
        assert call.first_token_seconds is not None


def test_an_attempt_that_cannot_have_been_billed_costs_nothing(settings, server, project, official):
    """R7: and one of which nobody knows is unknown, without making the sum so."""
    server.play(error(500, message="oops")[0], status=500)
    server.play([], end="cut")
    server.play(streams.chat({"content": "Hello."}, usage=USAGE, model=official))
    session = start(project, priced(official))
    row = run(settings, session)
    refused, unknown, saved = calls_of(session)
    assert refused.cost == 0
    assert unknown.cost is None
    assert unknown.may_be_billed
    assert row.cost == saved.cost


def test_an_unknown_price_makes_the_sum_unknown(settings, server, project, official):
    """R7: unknown is not zero; the price of a part would look like the price of all."""
    server.play(streams.chat({"content": "Hello."}, usage=USAGE, model=official))
    server.play(streams.chat({"content": "Hello."}, usage=USAGE, model="nobody-has-priced-it"))
    session = start(project, priced(official))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        assert rested(session).cost is not None
        say(session, "and?")
        row = rested(session)
    assert row.cost is None
    first, second = Turn.objects.filter(session_id=session).order_by("number")
    assert first.cost is not None
    assert second.cost is None
    assert shape_of(session)["cost"] is None


# --- prompt caching --------------------------------------------------------------------------------------


def test_anthropic_requests_are_marked_for_the_cache_and_keep_their_beginning(settings, server, project):
    """Prompt caching: tools, instructions and the last message are marked; cached tokens are in the usage."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7}
    start_event = {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "some-model",
            "content": [],
            "stop_reason": None,
            "usage": usage | {"output_tokens": 0},
        },
    }
    for _ in range(2):
        raw = streams.anthropic(*streams.anthropic_text(0, "Hello."))
        head = raw.index("event: content_block_start")
        server.play(streams.sse(start_event, named=True) + raw[head:])
    session = start(project, document(server, "anthropic", tools={"send": TOOL}))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        rested(session)
        say(session, "and?")
        row = rested(session)
    first, second = (received.body for received in server.received)
    for body in (first, second):
        assert body["tools"][-1]["cache_control"]["type"] == "ephemeral"
        assert body["system"][-1]["cache_control"]["type"] == "ephemeral"
        assert body["messages"][-1]["content"][-1]["cache_control"]["type"] == "ephemeral"
        assert json.dumps(body).count("cache_control") <= 4
        assert check_request("anthropic", body) == []
    assert _without_marks(second["tools"]) == _without_marks(first["tools"])
    assert _without_marks(second["system"]) == _without_marks(first["system"])
    assert _without_marks(second["messages"])[: len(first["messages"])] == _without_marks(first["messages"])
    assert (row.input_tokens, row.cached_tokens) == (100, 80)


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


def test_openai_requests_of_one_session_share_a_key(settings, server, project):
    """Prompt caching: the session's id, so that they meet on one machine of the provider."""
    for number in range(2):
        server.play(streams.responses(*streams.responses_text(f"msg_{number}", "Hello.")))
    session = start(project, document(server, "openai"))
    with working(settings, allowed_networks=LOOPBACK) as rested:
        rested(session)
        say(session, "and?")
        rested(session)
    keys = {received.body["prompt_cache_key"] for received in server.received}
    assert len(keys) == 1
    assert keys.pop().startswith("ses_")


def test_a_compatible_server_is_sent_no_key_that_it_may_refuse(settings, server, project):
    server.play(SAID)
    session = start(project, document(server))
    run(settings, session)
    assert "prompt_cache_key" not in server.received[0].body


def test_an_image_that_a_provider_refuses_goes_as_a_note(settings, server, project):
    """C37: and does not poison the session; the other provider is sent the image."""
    data = png(9000, 100)
    row = artifacts.store(project=project.pk, name="wide.png", media_type="image/png", data=data)
    wide = {"type": "media", "artifact": ids.encode("art", row.pk)}
    server.play(streams.anthropic(*streams.anthropic_text(0, "ok")))
    server.play(SAID)
    for provider in ("anthropic", "openai-chat"):
        session = start(project, document(server, provider), wide, {"type": "text", "text": "what?"})
        run(settings, session)
        assert turn_of(session).status == "succeeded"
    refused, taken = (json.dumps(received.body) for received in server.received)
    assert "9000 x 100 pixels is left out" in refused
    encoded = base64.b64encode(data).decode()
    assert encoded not in refused
    assert encoded in taken
