"""Faulty streams over a socket, through the library: none of them may pass as a success.

The library's known gaps are pinned here, so that an upgrade keeps them covered.
"""

import asyncio
import gzip
import json

import pytest

from sessions_app.engine.retry import EndTurn, RetryAfter, classify
from sessions_app.providers.library.adapter import LibraryProvider
from sessions_app.providers.library.models import close_clients
from sessions_app.providers.port import Category, ModelCallFailed, Stop
from tests.sessions_app.providers import streams

CUTS = {
    "openai-chat": streams.chat({"role": "assistant", "content": "Hel"}, finish=None, done=False),
    "anthropic": streams.anthropic(*streams.anthropic_text(0, "Hel"), stop=None, end=False),
    "openai": streams.responses(*streams.responses_text("msg_1", "Hel"), last={}),
    "google": streams.sse({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}]}),
}
WHOLE = {
    "openai-chat": streams.chat({"role": "assistant", "content": "Hello"}),
    "anthropic": streams.anthropic(*streams.anthropic_text(0, "Hello")),
    "openai": streams.responses(*streams.responses_text("msg_1", "Hello")),
    "google": streams.sse(
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}]}
    ),
}


async def failure_of(library, request) -> ModelCallFailed:
    with pytest.raises(ModelCallFailed) as caught:
        await library.reply(request)
    return caught.value


def is_retried(failure: ModelCallFailed) -> bool:
    return isinstance(classify(failure, failures_so_far=0, call_id="mcl_01"), RetryAfter)


@pytest.mark.parametrize("provider", WHOLE)
async def test_a_whole_stream_is_a_reply(provider, library, server, request_to):
    server.play(WHOLE[provider])
    reply = await library.reply(request_to(provider, server.url))
    assert [block["text"] for block in reply.content] == ["Hello"]
    assert reply.stop is Stop.DONE
    assert reply.time_to_first_token is not None
    assert len(server.received) == 1


@pytest.mark.parametrize("provider", CUTS)
@pytest.mark.parametrize("end", ["clean", "cut", "reset"])
async def test_a_stream_without_its_end_event_is_cut(provider, end, library, server, request_to):
    """C51, R4: whether the connection ends cleanly or breaks, the SDK alone would take some for whole."""
    server.play(CUTS[provider], end=end)
    failure = await failure_of(library, request_to(provider, server.url))
    assert failure.category is Category.CUT
    assert failure.may_be_billed
    assert is_retried(failure)
    assert len(server.received) == 1  # nobody below us retried


@pytest.mark.parametrize("end", ["clean", "cut"])
async def test_a_stream_cut_after_a_whole_call_block_runs_nothing(end, library, server, request_to):
    """C52: the call's block is complete, the message is not."""
    call = streams.anthropic_call(0, "toolu_half", "read", '{"f": "a.txt"}')
    server.play(streams.anthropic(*call, stop=None, end=False), end=end)
    failure = await failure_of(library, request_to("anthropic", server.url))
    assert failure.category is Category.CUT
    assert failure.usage is not None
    assert failure.usage.input_tokens == 5


async def test_a_chat_stream_that_says_done_without_a_finish_reason_is_cut(library, server, request_to):
    """R4: the library would report a missing finish reason as a normal stop."""
    server.play(streams.chat({"content": "Hel"}, finish=None, done=True))
    assert (await failure_of(library, request_to("openai-chat", server.url))).category is Category.CUT


async def test_an_anthropic_stream_that_stops_without_a_reason_is_cut(library, server, request_to):
    """R4."""
    server.play(streams.anthropic(*streams.anthropic_text(0, "Hel"), stop=None))
    assert (await failure_of(library, request_to("anthropic", server.url))).category is Category.CUT


@pytest.mark.parametrize("ids", [("A", "B"), ("call_1", "call_2")])
async def test_two_calls_at_one_index_stay_two(ids, library, server, request_to):
    """C42: the library would merge them."""
    first, second = ids
    server.play(
        streams.chat(
            streams.chat_call(0, first, "read", '{"f":'),
            streams.chat_call(0, None, None, '"a"}'),
            streams.chat_call(0, second, "read", '{"f":'),
            streams.chat_call(0, None, None, '"b"}'),
            finish="tool_calls",
        )
    )
    reply = await library.reply(request_to("openai-chat", server.url))
    assert [(block["id"], block["arguments"]) for block in reply.content] == [
        (first, {"f": "a"}),
        (second, {"f": "b"}),
    ]
    assert reply.stop is Stop.TOOL_CALLS


async def test_two_calls_without_an_index_stay_two(library, server, request_to):
    """C42: some servers send no index at all."""
    server.play(
        streams.chat(
            streams.chat_call(None, "A", "read", '{"f": "a"}'),
            streams.chat_call(None, "B", "read", '{"f": "b"}'),
            finish="tool_calls",
        )
    )
    reply = await library.reply(request_to("openai-chat", server.url))
    assert [block["id"] for block in reply.content] == ["A", "B"]


async def test_two_anthropic_blocks_at_one_index_stay_two(library, server, request_to):
    """C42, the same fault in another protocol."""
    calls = [
        *streams.anthropic_call(0, "toolu_a", "read", '{"f": "a"}'),
        *streams.anthropic_call(0, "toolu_b", "read", '{"f": "b"}'),
    ]
    server.play(streams.anthropic(*calls, stop="tool_use"))
    reply = await library.reply(request_to("anthropic", server.url))
    assert [(block["id"], block["arguments"]) for block in reply.content] == [
        ("toolu_a", {"f": "a"}),
        ("toolu_b", {"f": "b"}),
    ]


@pytest.mark.parametrize("item", ["fc_1", ""])
async def test_two_responses_calls_with_one_item_id_stay_two(item, library, server, request_to):
    """C42, the same fault in another protocol; an id made up for a call without one is not kept."""
    calls = [
        *streams.responses_call(item, "call_a", "read", '{"f": "a"}', 0),
        *streams.responses_call(item, "call_b", "read", '{"f": "b"}', 1),
    ]
    server.play(streams.responses(*calls))
    reply = await library.reply(request_to("openai", server.url))
    assert [(block["id"], block["arguments"]) for block in reply.content] == [
        ("call_a", {"f": "a"}),
        ("call_b", {"f": "b"}),
    ]
    assert "tenure-item" not in json.dumps(reply.content)


async def test_one_call_sent_twice_is_kept_once_and_a_reused_id_is_renamed(library, server, request_to):
    """C05, C06."""
    calls = [
        *streams.anthropic_call(0, "toolu_a", "read", '{"f": "a"}'),
        *streams.anthropic_call(1, "toolu_a", "read", '{"f": "a"}'),
        *streams.anthropic_call(2, "toolu_a", "read", '{"f": "b"}'),
    ]
    server.play(streams.anthropic(*calls, stop="tool_use"))
    reply = await library.reply(request_to("anthropic", server.url))
    assert [(block["id"], block["arguments"]) for block in reply.content] == [
        ("toolu_a", {"f": "a"}),
        ("toolu_a_2", {"f": "b"}),
    ]


@pytest.mark.parametrize(
    ("provider", "raw", "category"),
    [
        (
            "anthropic",
            streams.anthropic(
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
                stop=None,
                end=False,
            ),
            Category.OVERLOADED,
        ),
        (
            "anthropic",
            streams.anthropic({"type": "error", "error": {"type": "api_error", "message": "x"}}, stop=None),
            Category.SERVER,
        ),
        (
            "openai-chat",
            streams.sse({"error": {"code": "rate_limit_exceeded", "message": "slow"}}),
            Category.RATE,
        ),
        (
            "openai-chat",
            streams.sse({"error": {"code": 502, "message": "upstream"}}),
            Category.SERVER,
        ),
        (
            "openai-chat",
            # The reply is already whole when the error comes.
            streams.chat({"content": "Hi"}, done=False) + streams.sse({"error": {"message": "late"}}),
            Category.SERVER,
        ),
        (
            "openai",
            streams.responses(last={"type": "error", "code": "server_error", "message": "x", "param": None}),
            Category.SERVER,
        ),
        (
            "openai",
            streams.responses(
                last={"type": "error", "code": "insufficient_quota", "message": "x", "param": None}
            ),
            Category.QUOTA,
        ),
        (
            "google",
            streams.sse({"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}),
            Category.OVERLOADED,
        ),
    ],
)
async def test_an_error_event_inside_a_200_stream_fails_the_call(
    provider, raw, category, library, server, request_to
):
    """C49, R4."""
    server.play(raw)
    failure = await failure_of(library, request_to(provider, server.url))
    assert failure.category is category
    assert failure.may_be_billed


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("server_error", Category.SERVER),
        ("rate_limit_exceeded", Category.RATE),
        ("invalid_prompt", Category.INVALID_REQUEST),
        ("context_length_exceeded", Category.CONTEXT_TOO_LONG),
    ],
)
async def test_a_failed_response_is_an_error_by_its_code(code, category, library, server, request_to):
    """C53."""
    failed = {"id": "resp_9", "status": "failed", "error": {"code": code, "message": "no"}, "output": []}
    server.play(streams.responses(last={"type": "response.failed", "response": failed}))
    failure = await failure_of(library, request_to("openai", server.url))
    assert (failure.category, failure.code) == (category, code)


@pytest.mark.parametrize("error", [None, {}])
async def test_a_failed_response_without_an_error_is_still_an_error(error, library, server, request_to):
    """C53."""
    failed = {"id": "resp_9", "status": "failed", "error": error, "output": []}
    server.play(streams.responses(last={"type": "response.failed", "response": failed}))
    assert (await failure_of(library, request_to("openai", server.url))).category is Category.SERVER


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", Stop.LENGTH), ("content_filter", Stop.FILTERED), ("something_new", Stop.UNKNOWN)],
)
async def test_an_incomplete_response_is_what_it_says(reason, stop, library, server, request_to):
    """C53."""
    response = {
        "id": "resp_9",
        "model": "some-model",
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "output": [],
    }
    last = {"type": "response.incomplete", "response": response}
    server.play(streams.responses(*streams.responses_text("msg_1", "Hel"), last=last))
    reply = await library.reply(request_to("openai", server.url))
    assert (reply.stop, reply.raw_stop) == (stop, reason)


async def test_a_chunk_without_choices_is_no_fault(library, server, request_to):
    """C54: and the usage of such a chunk counts."""
    server.play(
        streams.sse(
            {"id": "", "choices": [], "prompt_filter_results": []},
            {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]},
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            "[DONE]",
        )
    )
    reply = await library.reply(request_to("openai-chat", server.url))
    assert [block["text"] for block in reply.content] == ["Hi"]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 1)


@pytest.mark.parametrize(
    "raw",
    [
        streams.chat(),
        streams.chat({"content": ""}),
        streams.chat({"content": " \n"}),
        streams.sse({"id": "c", "choices": []}, "[DONE]"),
        "data: [DONE]\n\n",
        "",
    ],
)
async def test_an_empty_reply_is_a_failure(raw, library, server, request_to):
    """R4: empty replies and replies without choices."""
    server.play(raw)
    failure = await failure_of(library, request_to("openai-chat", server.url))
    assert failure.category in {Category.EMPTY, Category.CUT}
    assert is_retried(failure)


async def test_a_reply_that_says_it_calls_tools_and_calls_none_is_a_failure(library, server, request_to):
    """A42."""
    server.play(streams.chat({"content": "I will"}, finish="tool_calls"))
    failure = await failure_of(library, request_to("openai-chat", server.url))
    assert failure.category is Category.MALFORMED
    assert is_retried(failure)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("content_filter", Stop.FILTERED), ("length", Stop.LENGTH), ("new_reason", Stop.UNKNOWN)],
)
async def test_the_stop_reason_outranks_the_calls(finish, stop, library, server, request_to):
    """C56, R4: the engine runs calls only after `tool_calls`."""
    call = streams.chat_call(0, "cf1", "send", '{"to": "x"}')
    server.play(streams.chat(call, finish=finish))
    reply = await library.reply(request_to("openai-chat", server.url))
    assert (reply.stop, reply.raw_stop) == (stop, finish)


async def test_a_refusal_is_filtered_and_its_words_are_kept(library, server, request_to):
    """R4, A42."""
    server.play(streams.chat({"refusal": "I can't "}, {"refusal": "help."}))
    reply = await library.reply(request_to("openai-chat", server.url))
    assert reply.stop is Stop.FILTERED
    assert reply.content == [{"type": "text", "text": "I can't help."}]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_tokens", Stop.LENGTH),
        ("refusal", Stop.FILTERED),
        ("pause_turn", Stop.PAUSED),
        ("stop_sequence", Stop.DONE),
        ("brand_new", Stop.UNKNOWN),
    ],
)
async def test_anthropic_stop_reasons(reason, stop, library, server, request_to):
    """C39, R4: an unknown stop reason raises nothing in the library, and is never a success here."""
    server.play(streams.anthropic(*streams.anthropic_text(0, "x"), stop=reason))
    reply = await library.reply(request_to("anthropic", server.url))
    assert (reply.stop, reply.raw_stop) == (stop, reason)


INCOMPLETE = {
    reason: {
        "type": "response.incomplete",
        "response": {
            "id": "r",
            "status": "incomplete",
            "incomplete_details": {"reason": reason},
            "output": [],
        },
    }
    for reason in ("content_filter", "max_output_tokens")
}


@pytest.mark.parametrize(
    ("provider", "raw", "stop"),
    [
        ("openai-chat", streams.chat(finish="content_filter"), Stop.FILTERED),
        ("openai-chat", streams.chat(finish="length"), Stop.LENGTH),
        ("anthropic", streams.anthropic(stop="refusal"), Stop.FILTERED),
        ("anthropic", streams.anthropic(stop="max_tokens"), Stop.LENGTH),
        ("openai", streams.responses(last=INCOMPLETE["content_filter"]), Stop.FILTERED),
        ("openai", streams.responses(last=INCOMPLETE["max_output_tokens"]), Stop.LENGTH),
        ("google", streams.sse({"candidates": [{"finishReason": "SAFETY"}]}), Stop.FILTERED),
        ("google", streams.sse({"candidates": [{"finishReason": "MAX_TOKENS"}]}), Stop.LENGTH),
        ("google", streams.sse({"promptFeedback": {"blockReason": "SAFETY"}}), Stop.FILTERED),
    ],
)
async def test_a_filter_or_limit_that_leaves_nothing_is_saved_as_what_it_is(
    provider, raw, stop, library, server, request_to
):
    """R4, A43: retrying would only meet the filter or the limit again."""
    server.play(raw)
    reply = await library.reply(request_to(provider, server.url))
    assert (reply.stop, reply.content) == (stop, [])


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "openai", "google"])
@pytest.mark.parametrize("escaped", [True, False])
async def test_line_separators_of_unicode_are_text(provider, escaped, library, server, request_to):
    """C59: one SDK splits lines at them, so they must not reach it."""
    text = "a\u2028b\u2029c\u0085d"
    raw = WHOLE[provider].replace("Hello", "a\\u2028b\\u2029c\\u0085d" if escaped else text)
    server.play(raw)
    reply = await library.reply(request_to(provider, server.url))
    assert [block["text"] for block in reply.content] == [text]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "openai", "google"])
async def test_any_slicing_and_any_line_ending_gives_the_same_reply(
    provider, ending, library, server, request_to
):
    """C59: one byte per network read, umlauts and emoji cut apart."""
    raw = WHOLE[provider].replace("Hello", "Hällo 🎈").replace("\n", ending).encode()
    server.play([bytes([byte]) for byte in raw])
    reply = await library.reply(request_to(provider, server.url))
    assert [block["text"] for block in reply.content] == ["Hällo 🎈"]


async def test_a_stream_that_goes_quiet_is_given_up(server, request_to):
    """R2: nothing else would ever end it."""
    server.play(CUTS["openai-chat"], end="stall")
    impatient = LibraryProvider(quiet_limit=0.1)
    failure = await failure_of(impatient, request_to("openai-chat", server.url))
    assert failure.category is Category.TIMEOUT
    assert failure.may_be_billed
    await close_clients()


async def test_comments_do_not_keep_a_quiet_stream_alive(server, request_to):
    server.play([b": still here\n\n"] * 3, end="stall")
    impatient = LibraryProvider(first_event_within=0.1)
    assert (await failure_of(impatient, request_to("openai-chat", server.url))).category is Category.TIMEOUT
    await close_clients()


async def test_cancelling_the_task_ends_the_request(library, server, request_to):
    server.play(CUTS["openai-chat"], end="stall")
    begun = asyncio.Event()
    call = asyncio.create_task(
        library.reply(request_to("openai-chat", server.url), lambda _delta: begun.set())
    )
    async with asyncio.timeout(5):
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.left.wait()


@pytest.mark.parametrize("body", ["<html>maintenance</html>", '{"hello": "there"}'])
async def test_an_answer_that_is_no_event_stream_is_a_failure(body, library, server, request_to):
    server.play(body, content_type="text/html")
    failure = await failure_of(library, request_to("openai-chat", server.url))
    assert failure.category is Category.MALFORMED
    assert is_retried(failure)


async def test_an_error_in_a_200_body_without_events_counts(library, server, request_to):
    """C49: as some gateways answer."""
    server.play(
        '{"error": {"code": "rate_limit_exceeded", "message": "slow"}}', content_type="application/json"
    )
    assert (await failure_of(library, request_to("openai-chat", server.url))).category is Category.RATE


async def test_an_event_that_is_no_json_is_a_failure(library, server, request_to):
    server.play(streams.chat({"content": "Hel"}, finish=None, done=False) + "data: {broken\n\n")
    assert (await failure_of(library, request_to("openai-chat", server.url))).category is Category.MALFORMED


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "openai", "google"])
@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, Category.INVALID_REQUEST),
        (401, Category.AUTH),
        (403, Category.AUTH),
        (404, Category.MODEL_NOT_FOUND),
        (408, Category.TIMEOUT),
        (413, Category.TOO_LARGE),
        (429, Category.RATE),
        (500, Category.SERVER),
        (502, Category.SERVER),
        (503, Category.OVERLOADED),
        (529, Category.OVERLOADED),
    ],
)
async def test_a_status_is_a_category_and_nothing_below_retries(
    provider, status, category, library, server, request_to
):
    """R2, R3: with retries of the SDK there would be more than one request."""
    server.play('{"error": {"message": "no"}}', status=status)
    failure = await failure_of(library, request_to(provider, server.url))
    assert (failure.category, failure.status) == (category, status)
    assert not failure.may_be_billed
    assert len(server.received) == 1


async def test_a_429_is_final_only_with_the_exact_code(library, server, request_to):
    """C48, R3."""
    server.play('{"status": 429, "error": "INSUFFICIENT QUOTA", "message": "too many requests"}', status=429)
    server.play('{"error": {"code": "insufficient_quota", "message": "pay"}}', status=429)
    server.play('{"error": {"type": "insufficient_quota", "message": "pay"}}', status=429)
    request = request_to("openai-chat", server.url)
    assert is_retried(await failure_of(library, request))
    for _ in range(2):
        decided = classify(await failure_of(library, request), failures_so_far=0, call_id="mcl_01")
        assert isinstance(decided, EndTurn)
        assert decided.reason == "quota"


@pytest.mark.parametrize(
    ("provider", "error"),
    [
        ("openai-chat", {"code": "context_length_exceeded", "message": "too long"}),
        ("openai-chat", {"message": "This model's maximum context length is 8192 tokens"}),
        ("openai", {"code": "context_length_exceeded", "message": "too long"}),
        (
            "anthropic",
            {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"},
        ),
        (
            "google",
            {
                "code": 400,
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (9) exceeds the maximum",
            },
        ),
    ],
)
async def test_a_full_context_is_recognised_for_each_family(provider, error, library, server, request_to):
    """R5."""
    server.play(json.dumps({"error": error}), status=400)
    assert (await failure_of(library, request_to(provider, server.url))).category is Category.CONTEXT_TOO_LONG


async def test_another_too_long_is_no_full_context(library, server, request_to):
    """C58."""
    error = {
        "type": "invalid_request_error",
        "code": "string_above_max_length",
        "param": "messages[3].tool_calls[0].id",
        "message": "string too long: maximum length 40, got 41",
    }
    server.play(json.dumps({"error": error}), status=400)
    failure = await failure_of(library, request_to("openai-chat", server.url))
    assert failure.category is Category.INVALID_REQUEST
    assert not is_retried(failure)


async def test_an_empty_balance_is_billing_though_it_comes_as_400(library, server, request_to):
    """R3."""
    error = {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}
    server.play(json.dumps({"type": "error", "error": error}), status=400)
    assert (await failure_of(library, request_to("anthropic", server.url))).category is Category.QUOTA


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "openai", "google"])
async def test_retry_after_arrives_in_every_form(provider, library, server, request_to):
    """C43, R2."""
    forms = [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"date": "Thu, 01 Jan 2026 12:00:00 GMT", "retry_after": "Thu, 01 Jan 2026 12:02:00 GMT"}, 120.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-3"}, None),
    ]
    for headers, wanted in forms:
        server.play('{"error": {"message": "slow"}}', status=429, **headers)
        assert (await failure_of(library, request_to(provider, server.url))).retry_after == wanted


async def test_the_providers_own_word_on_retrying_is_passed_on(library, server, request_to):
    """A36."""
    server.play('{"error": {"message": "x"}}', status=500, x_should_retry="false")
    server.play('{"error": {"message": "x"}}', status=400, x_should_retry="true")
    request = request_to("openai-chat", server.url)
    assert not is_retried(await failure_of(library, request))
    assert is_retried(await failure_of(library, request))


async def test_a_server_that_is_not_there_is_a_connection_failure(
    library, server, request_to, unused_tcp_port
):
    """R2."""
    failure = await failure_of(library, request_to("openai-chat", f"http://127.0.0.1:{unused_tcp_port}"))
    assert failure.category is Category.CONNECTION
    assert not failure.may_be_billed
    assert is_retried(failure)


async def test_an_address_that_the_network_rule_forbids_ends_the_turn(library, server, request_to):
    """R3, the network rule: nothing is sent."""
    failure = await failure_of(library, request_to("openai-chat", server.url, allowed_networks=()))
    assert failure.category is Category.INVALID_REQUEST
    assert failure.code == "forbidden_address"
    assert server.received == []


async def test_a_compressed_stream_is_read_though_none_was_asked_for(library, server, request_to):
    """C59: our transport stands below the client's decoding."""
    server.play(gzip.compress(WHOLE["openai-chat"].encode()), content_encoding="gzip")
    reply = await library.reply(request_to("openai-chat", server.url))
    assert [block["text"] for block in reply.content] == ["Hello"]
    assert server.received[0].headers["accept-encoding"] == "identity"


async def test_calls_at_once_are_judged_each_by_its_own_stream(library, server, request_to):
    """R4: one process runs many sessions on one client."""
    for number in range(30):
        server.play((CUTS if number % 3 == 0 else WHOLE)["openai-chat"])
    request = request_to("openai-chat", server.url)
    results = await asyncio.gather(*(library.reply(request) for _ in range(30)), return_exceptions=True)
    failures = [result for result in results if isinstance(result, ModelCallFailed)]
    assert [failure.category for failure in failures] == [Category.CUT] * 10
    replies = [result for result in results if not isinstance(result, BaseException)]
    assert [reply.content[0]["text"] for reply in replies] == ["Hello"] * 20
