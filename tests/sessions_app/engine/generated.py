"""Generated transcripts: what could stand in a log, an import or a fork, with much more going wrong in it.

Ids come from a small pool, so that they are reused, collide when they are shortened, and are illegal
somewhere. Everything a block may carry (signatures, provider details, media) is there or missing at random.
"""

from typing import Any

from hypothesis import strategies as st

from sessions_app.engine.request_view import SentIds

LONG = "x" * 80

# `call_…` is what the first of the illegal ids becomes: a legal id that is taken already.
IDS = st.sampled_from(
    [
        *("c1", "c2", "c3", "ask", "", "a.b:0", "a_b_0", "p|q", f"{LONG}a", f"{LONG}b"),
        *("call_" + "0" * 40, SentIds(64).for_call("a.b:0")),
    ]
)
NAMES = st.sampled_from(["find", "save", "ask_user", "create_skill", "not a name", "", "n" * 90])
TEXTS = st.sampled_from(["hello", "", " \n", "ok \ud83d", "nul \0 byte", "\u2028", "äöü", "<b>"])
PROVIDERS = st.sampled_from(["openai", "openai-chat", "anthropic", "google", "mistral", None])
STOPS = st.sampled_from([None, "stop", "end_turn", "tool_use", "aborted", "error", "length", "pause"])
ARGUMENTS: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(st.sampled_from(["q", "n", "\ud800"]), st.one_of(st.integers(0, 1), TEXTS), max_size=2),
    st.sampled_from(["", "{}", '{"q": 1}', '{"q":', "[1]", '{"n": NaN}', '"\\ud83d"', '{"s": "\\ud83d"}']),
    st.sampled_from([None, [1], 3.5, {"n": float("nan")}, {"deep": [[[[]]]]}]),
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


def block(kind: str, must: dict[str, Any], may: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"type": st.just(kind), **must}, optional=may or {})


ITEM_IDS = st.sampled_from(["rs_1", "rs_2", "fc_1", "msg_1"])
DETAILS = st.one_of(st.none(), st.fixed_dictionaries({"id": ITEM_IDS}), st.just({}))
CALLS = block(
    "tool_call", {"id": IDS, "name": NAMES, "args": ARGUMENTS}, {"provider": PROVIDERS, "details": DETAILS}
)
THINKING = block(
    "thinking",
    {"thinking": TEXTS},
    {
        "provider": PROVIDERS,
        "signature": st.sampled_from(["c2lnLTE=", "c2lnLTI=", "", None]),
        "details": DETAILS,
    },
)
SAID = block("text", {"text": TEXTS}, {"provider": PROVIDERS, "details": DETAILS})
MEDIA = block("media", {"media_type": st.just("image/png"), "data": st.sampled_from([PIXEL, ""])})
DATA = block("data", {"value": st.one_of(TEXTS, st.just({"n": float("inf")}), st.just([1, {"a": None}]))})
UNKNOWN = st.sampled_from([{"type": "from_the_future"}, {}, "text", 5, None, {"type": "text"}])

CONTENT = st.one_of(TEXTS, st.lists(st.one_of(SAID, MEDIA, DATA, UNKNOWN), max_size=3), st.none())
FRAMES = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.one_of(
            st.lists(st.one_of(CALLS, CALLS, SAID, THINKING, MEDIA, DATA, UNKNOWN), max_size=5),
            TEXTS,
            st.none(),
        ),
        "stop": STOPS,
        "error": st.sampled_from([None, None, "", "it broke"]),
    },
    optional={"provider": PROVIDERS},
)
RESULTS = st.fixed_dictionaries(
    {"role": st.just("tool_result"), "id": IDS, "name": NAMES, "error": st.booleans(), "content": CONTENT},
    optional={"answered": st.booleans()},
)
USERS = st.fixed_dictionaries({"role": st.just("user"), "content": CONTENT})
NOTES = st.fixed_dictionaries(
    {"role": st.sampled_from(["note", "summary", "checkpoint"]), "content": CONTENT}
)
MESSAGES = st.one_of(FRAMES, FRAMES, RESULTS, RESULTS, USERS, NOTES)


@st.composite
def turns(draw: st.DrawFn, made_by: st.SearchStrategy[str | None]) -> list[Any]:
    """A turn as a provider makes it: reasoning with its calls, some results in some order, and what came in."""
    provider = draw(made_by)
    content: list[Any] = []
    for call in draw(st.lists(CALLS, min_size=1, max_size=3)):
        own = {"provider": provider}
        if draw(st.booleans()):
            item = draw(ITEM_IDS)
            content.append(
                {
                    "type": "thinking",
                    "thinking": draw(TEXTS),
                    "signature": "c2lnLTE=",
                    "details": {"id": item},
                }
                | own
            )
        if draw(st.booleans()):
            content.append({"type": "text", "text": "on it", "details": {"id": draw(ITEM_IDS)}} | own)
        content.append(call | draw(st.sampled_from([{}, own, own | {"details": {"id": draw(ITEM_IDS)}}])))
    calls = [block for block in content if block["type"] == "tool_call"]
    results = [
        {
            "role": "tool_result",
            "id": call["id"],
            "name": call["name"],
            "error": draw(st.booleans()),
            "content": draw(CONTENT),
        }
        for call in draw(st.permutations(calls))[: draw(st.integers(0, len(calls)))]
    ]
    behind = draw(st.lists(MESSAGES, max_size=1))
    stop = draw(st.sampled_from([None, "tool_use", "tool_use", "aborted"]))
    frame = {"role": "assistant", "content": content, "stop": stop, "error": None}
    return [draw(USERS), frame, *draw(st.permutations([*results, *behind]))]


def transcripts(made_by: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Any]]:
    """Whole turns between single messages of any kind."""
    pieces = st.one_of(MESSAGES.map(lambda message: [message]), turns(made_by))
    return st.lists(pieces, max_size=6).map(lambda parts: [message for part in parts for message in part])


TRANSCRIPTS = transcripts(PROVIDERS)


@st.composite
def transcripts_with_open_calls(draw: st.DrawFn) -> tuple[list[Any], list[tuple[int, int]]]:
    """A transcript, and the places of some of its calls."""
    messages = draw(TRANSCRIPTS)
    calls = [
        (index, place)
        for index, message in enumerate(messages)
        if message["role"] == "assistant" and isinstance(message["content"], list)
        for place, content in enumerate(message["content"])
        if isinstance(content, dict) and content.get("type") == "tool_call"
    ]
    return messages, draw(st.lists(st.sampled_from(calls), unique=True)) if calls else []


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(
            st.sampled_from(["role", "content", "type", "id", "name", "args", "stop", "error", "text"]), inner
        ),
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool_result", "note"]), "content": inner},
            optional={"id": inner, "stop": inner},
        ),
    ),
    max_leaves=12,
)
