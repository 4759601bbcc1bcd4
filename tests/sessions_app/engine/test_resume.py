"""The table of resume rules, row by row, and what the table leaves to the text around it."""

import copy
import json
import time
from typing import Any

import pytest

from sessions_app.engine.resume import (
    AlreadyComplete,
    Continue,
    Start,
    plan_resume,
    repair_orphaned_tool_calls,
)
from tests.sessions_app.engine.transcripts import call, shape, transcript

START, CONTINUE, COMPLETE = "start", "continue", "already-complete"

# Row of the table, transcript, kind, messages kept, calls repaired.
ROWS: list[tuple[str, str, str, int, list[tuple[int, int]]]] = [
    ("1", "", START, 0, []),
    ("2", "U", CONTINUE, 1, []),
    ("3", "U A[c1] r(c1)", CONTINUE, 3, []),
    ("4", "U A[ask] r(ask)", COMPLETE, 3, []),
    ("5", "U A[create] r(create)", COMPLETE, 3, []),
    ("6", "U A[ask,c2] r(ask) r(c2)", COMPLETE, 4, []),
    ("7", "U A[c1,ask] r(c1) r(ask)", COMPLETE, 4, []),
    ("8", "U A[ask] rE(ask)", CONTINUE, 3, []),
    ("9", "U A[ask,c2] rE(ask) r(c2)", CONTINUE, 4, []),
    ("10", "U A[ask,c2] r(ask)", COMPLETE, 3, [(1, 1)]),
    ("11", "U A[ask] r(ask) U A[c2] r(c2)", CONTINUE, 6, []),
    ("12", "U A[ask] r(ask) U", CONTINUE, 4, []),
    ("13", "U A[c1]", CONTINUE, 2, [(1, 0)]),
    ("14", "U A[c1,c2] r(c1)", CONTINUE, 3, [(1, 1)]),
    ("15", "U A[c1,c2] r(c1) T A[c3]", CONTINUE, 5, [(1, 1), (4, 0)]),
    ("16", "U T", COMPLETE, 2, []),
    ("17 tool_use", "U thinking!tool_use", COMPLETE, 2, []),
    ("17 none", "U thinking", COMPLETE, 2, []),
    ("18", "U thinking!aborted", CONTINUE, 1, []),
    ("19 aborted", "U T!aborted", CONTINUE, 1, []),
    ("19 error", "U T!error", CONTINUE, 1, []),
    ("19 length", "U T!length", CONTINUE, 1, []),
    ("19 error text", "U T!!", CONTINUE, 1, []),
    ("20", "U A[c1] r(c1) empty!aborted", CONTINUE, 3, []),
    ("21", "U empty!stop", COMPLETE, 2, []),
    ("22", "U T!stop!!", COMPLETE, 2, []),
    ("23", "U unknown!stop", COMPLETE, 2, []),
    ("24", "U blank empty", CONTINUE, 1, []),
    ("25", "empty", START, 0, []),
    ("26", "U A[c1] empty", CONTINUE, 2, [(1, 0)]),
    ("27", "U A[c1] T!aborted T!error T!length", CONTINUE, 2, [(1, 0)]),
    ("28", "U A[ask] r(ask) empty", COMPLETE, 3, []),
    ("29", "U A[c1]!aborted", CONTINUE, 1, []),
    ("30", "U A[c1]!error r(c1)", CONTINUE, 3, []),
    ("31", "U A[c1,c2] r(c1) T!aborted r(c2)", CONTINUE, 5, []),
    ("32", "U A[c1,c2,c3] r(c1) T!aborted r(c2)", CONTINUE, 5, [(1, 2)]),
    ("33", "U A[c1] U", CONTINUE, 3, [(1, 0)]),
    ("34", "U A[c1] T!stop", COMPLETE, 3, [(1, 0)]),
    ("35", "U r(c1) A[c1]", CONTINUE, 3, []),
    ("36", "U T r(c1) note", COMPLETE, 4, []),
    ("37", "U A[ask] r(ask) note", COMPLETE, 4, []),
    ("38", "U T!stop note", COMPLETE, 3, []),
    ("39 note", "note", START, 0, []),
    ("39 result", "r(zz)", START, 0, []),
    ("40", "U r(zz)", CONTINUE, 2, []),
    ("41", "U A[c1] r(c1) A[c1]", CONTINUE, 4, [(3, 0)]),
    ("42", "U A[c1,c1]", CONTINUE, 2, [(1, 0)]),
    ("43 none", 'U "done"', COMPLETE, 2, []),
    ("43 stop", 'U "done"!stop', COMPLETE, 2, []),
    ("44", "U A[ask] rA(ask)", CONTINUE, 3, []),
    ("45", "U A[ask,c2] r(ask) note r(c2)", COMPLETE, 5, []),
    ("46", "U A[ask,c2] r(ask) T!aborted r(c2)", COMPLETE, 5, []),
    ("47", "U T!aborted note", CONTINUE, 1, []),
    ("48", "U empty note", CONTINUE, 1, []),
    ("50", "U A[c1] T!stop r(c1)", COMPLETE, 4, []),
]


def expected(kind: str, keep: int, repaired: list[tuple[int, int]]) -> Any:
    return {
        START: Start(),
        CONTINUE: Continue(keep, repaired),
        COMPLETE: AlreadyComplete(keep, repaired),
    }[kind]


@pytest.mark.parametrize(
    ("text", "kind", "keep", "repaired"),
    [pytest.param(*row[1:], id=f"row {row[0]}: {row[1]}") for row in ROWS],
)
def test_each_row_of_the_table_holds(
    text: str, kind: str, keep: int, repaired: list[tuple[int, int]]
) -> None:
    """S9: kind, messages kept and calls repaired, for every row of the table."""
    messages = transcript(text)
    before = copy.deepcopy(messages)
    assert plan_resume(messages) == expected(kind, keep, repaired)
    assert messages == before


@pytest.mark.parametrize("open_calls", [[(1, 1)], ((1, 1),), [[1, 1]], {(1, 1)}])
def test_row_49_an_open_call_is_not_missing_its_result(open_calls: Any) -> None:
    """S9, row 49: c2 is waiting, so it is neither dangling nor repaired."""
    messages = transcript("U A[c1,c2] r(c1)")
    assert plan_resume(messages, open_calls) == Continue(3, [])
    assert plan_resume(messages) == Continue(3, [(1, 1)])
    assert repair_orphaned_tool_calls(messages, open_calls) == (messages, [])


# What the view looks like, for the rows whose note says so and those that lose something.
VIEWS = [
    ("15", "U A[c1,c2] r(c1) T A[c3]", "U A[c1,c2] r(c1) r*(c2) T A[c3] r*(c3)"),
    ("21", "U empty!stop", "U"),
    ("30", "U A[c1]!error r(c1)", "U A[c1] r(c1)"),
    ("31", "U A[c1,c2] r(c1) T!aborted r(c2)", "U A[c1,c2] r(c1) r(c2)"),
    ("32", "U A[c1,c2,c3] r(c1) T!aborted r(c2)", "U A[c1,c2,c3] r(c1) r(c2) r*(c3)"),
    ("33", "U A[c1] U", "U A[c1] r*(c1) U"),
    ("34", "U A[c1] T!stop", "U A[c1] r*(c1) T"),
    ("35", "U r(c1) A[c1]", "U A[c1] r(c1)"),
    ("36", "U T r(c1) note", "U T note"),
    ("40", "U r(zz)", "U"),
    ("41", "U A[c1] r(c1) A[c1]", "U A[c1] r(c1) A[c1] r*(c1)"),
    ("42", "U A[c1,c1]", "U A[c1,c1] r*(c1)"),
    ("45", "U A[ask,c2] r(ask) note r(c2)", "U A[ask,c2] r(ask) r(c2) note"),
    ("50", "U A[c1] T!stop r(c1)", "U A[c1] r(c1) T"),
    ("two results", "U A[c1] r(c1) r(c1)", "U A[c1] r(c1)"),
    ("results in finish order", "U A[c1,c2] r(c2) r(c1)", "U A[c1,c2] r(c1) r(c2)"),
    ("calls in the middle of nowhere", "A[c1]!aborted T!error U", "A[c1] r*(c1) U"),
]


@pytest.mark.parametrize(
    ("text", "view"), [pytest.param(*case[1:], id=f"row {case[0]}: {case[1]}") for case in VIEWS]
)
def test_the_view_has_one_result_per_call_behind_its_frame(text: str, view: str) -> None:
    """S9: results move up in call order, what is missing is made up, what nobody owns is not shown."""
    repaired, _ = repair_orphaned_tool_calls(transcript(text))
    assert shape(repaired) == view


@pytest.mark.parametrize(
    "text",
    [
        "",
        "U",
        "note",
        "U A[c1] r(c1) T",
        "U A[c1,c2] r(c1) r(c2) note U T!stop checkpoint",
        "U A[c1,c1] r(c1)",
        "U A[c1] r(c1) A[c1] rE(c1) nothing!stop",
        "U A[c1]!error r(c1) T",
    ],
)
def test_a_whole_history_comes_back_as_the_same_object(text: str) -> None:
    """S9: nothing is copied where there is nothing to repair, a tuple included."""
    messages = transcript(text)
    assert repair_orphaned_tool_calls(messages) == (messages, [])
    assert repair_orphaned_tool_calls(messages)[0] is messages
    frozen = tuple(messages)
    assert repair_orphaned_tool_calls(frozen)[0] is frozen


def test_the_synthetic_result_is_an_error_that_leaves_the_decision_to_the_model() -> None:
    """T4: it says that the outcome is unknown, and gives no instruction."""
    view, repaired = repair_orphaned_tool_calls(transcript("U A[c1]"))
    result = view[-1]
    assert repaired == [(1, 0)]
    assert (result["role"], result["id"], result["name"]) == ("tool_result", "c1", "c")
    assert result["error"] is True
    assert result["answered"] is False
    assert "interrupted before a result was recorded" in result["content"]
    assert "outcome is unknown" in result["content"]
    assert not {"retry", "again", "should", "must", "please"} & set(result["content"].lower().split())


def test_a_durable_result_goes_before_a_synthetic_one() -> None:
    """S9: a result that was recorded after a view had been repaired replaces the made-up one."""
    view, _ = repair_orphaned_tool_calls(transcript("U A[c1]"))
    durable = transcript("r(c1)")
    repaired, places = repair_orphaned_tool_calls(view + durable)
    assert shape(repaired) == "U A[c1] r(c1)"
    assert places == []


def frame(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(calls), "stop": None, "error": None}


def result(call_id: str, name: str, content: str) -> dict[str, Any]:
    return {"role": "tool_result", "id": call_id, "name": name, "error": False, "content": content}


def test_one_id_with_different_arguments_is_two_calls() -> None:
    """C06: the second is missing its result while there is only one."""
    messages = [*transcript("U"), frame(call("c1", q="x"), call("c1", q="y")), *transcript("r(c1)")]
    assert plan_resume(messages) == Continue(3, [(1, 1)])
    assert shape(repair_orphaned_tool_calls(messages)[0]) == "U A[c1,c1] r(c1) r*(c1)"


def test_one_and_true_are_different_arguments_but_key_order_is_not() -> None:
    """C05, C06: arguments are compared as JSON."""
    twice = frame(call("c1", n=1), call("c1", n=True))
    assert plan_resume([twice]) == Continue(1, [(0, 0), (0, 1)])
    once = frame(call("c1", a=1, b=2), call("c1", b=2, a=1))
    assert plan_resume([once]) == Continue(1, [(0, 0)])


def test_results_of_one_id_go_to_the_call_of_their_tool() -> None:
    """C06: no result is given to the wrong call, however often the view is repaired."""
    find, save = call("x", q=1) | {"name": "find"}, call("x", q=2) | {"name": "save"}
    messages = [frame(find, save), result("x", "save", "saved")]
    assert plan_resume(messages) == Continue(2, [(0, 0)])
    view, _ = repair_orphaned_tool_calls(messages)
    assert [(m["name"], m["error"]) for m in view[1:]] == [("find", True), ("save", False)]
    assert repair_orphaned_tool_calls(view) == (view, [])
    late, places = repair_orphaned_tool_calls([*view, result("x", "find", "found")])
    assert [m["content"] for m in late[1:]] == ["found", "saved"]
    assert places == []


def test_a_result_whose_name_fits_no_call_goes_to_the_first_unanswered_one() -> None:
    find, save = call("x", q=1) | {"name": "find"}, call("x", q=2) | {"name": "save"}
    messages = [frame(save, find), result("x", "renamed", "?"), result("x", "find", "found")]
    view, places = repair_orphaned_tool_calls(messages)
    assert [m["content"] for m in view[1:]] == ["?", "found"]
    assert places == []


def test_adopted_results_of_a_dropped_frame_are_looked_through() -> None:
    """S9: with its frame gone nobody owns the result, and the user is owed an answer."""
    assert plan_resume(transcript("U r(c1) A[c1]!aborted")) == Continue(2, [])


def test_what_is_looked_through_goes_with_a_dropped_frame_before_it() -> None:
    assert plan_resume(transcript("U note T!aborted note r(zz) empty note")) == Continue(2, [])


def test_a_frame_with_an_open_call_is_never_left_out() -> None:
    """S9: a call with a row in work proves that its frame was saved whole, whatever its stop says."""
    messages = transcript("U A[c1]!error")
    assert plan_resume(messages, [(1, 0)]) == Continue(2, [])
    assert plan_resume(messages) == Continue(1, [])


def test_the_caller_says_which_tools_hand_over() -> None:
    messages = transcript("U A[c1] r(c1)")
    assert plan_resume(messages, hands_over=frozenset({"c"})) == AlreadyComplete(3, [])
    asked = transcript("U A[ask] r(ask)")
    assert plan_resume(asked, hands_over=frozenset()) == Continue(3, [])


def test_a_result_without_a_name_is_of_the_tool_that_was_called() -> None:
    messages = transcript("U A[ask] r(ask)")
    del messages[2]["name"]
    assert plan_resume(messages) == AlreadyComplete(3, [])


@pytest.mark.parametrize("stop", [None, "tool_use", "pause", "refusal", "STOP", 7, ["stop"]])
def test_any_other_stop_counts_only_through_emptiness_or_error_text(stop: Any) -> None:
    said = transcript("U T")
    said[1]["stop"] = stop
    assert plan_resume(said) == AlreadyComplete(2, [])
    said[1]["error"] = "it broke"
    assert plan_resume(said) == Continue(1, [])
    said[1] |= {"error": "  ", "content": []}
    assert plan_resume(said) == Continue(1, [])


@pytest.mark.parametrize("content", [None, 5, {"type": "text", "text": "hi"}, True])
def test_content_of_a_wrong_type_is_empty_unless_the_end_is_natural(content: Any) -> None:
    messages = [*transcript("U"), {"role": "assistant", "content": content, "stop": None, "error": None}]
    assert plan_resume(messages) == Continue(1, [])
    messages[1]["stop"] = "end_turn"
    assert plan_resume(messages) == AlreadyComplete(2, [])
    assert repair_orphaned_tool_calls(messages)[0] is messages


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE

JUNK = [
    None,
    7,
    "text",
    object(),
    [None, 1, "x", [], object()],
    [{}, {"role": None}, {"role": ["user"]}, {"role": "assistant"}, {"role": "tool_result"}],
    [{"role": "assistant", "content": [{"type": "tool_call"}, {"type": ["x"]}, None, "t", {}]}],
    [{"role": "assistant", "content": [{"type": "tool_call", "id": {"a": []}, "name": 3, "args": deep(9)}]}],
    [
        {"role": "assistant", "content": [call("c1", a=deep(100_000)), call("c1", a=deep(100_000))]},
        {"role": "tool_result", "id": "c1", "content": deep(100_000)},
    ],
    [{"role": "assistant", "content": [call("c1", a=CYCLE), call("c1", a={1, 2})], "stop": {}, "error": 5}],
    [{"role": "tool_result", "id": float("nan")}, {"role": "user", "content": object()}],
    [
        {"role": "assistant", "content": [{"type": "tool_call", "id": [1], "name": "f", "args": {}}]},
        {"role": "tool_result", "id": [1]},
    ],
]


@pytest.mark.parametrize("messages", JUNK, ids=range(len(JUNK)))
@pytest.mark.parametrize("open_calls", [(), None, 5, [None, (1,), ("a", "b"), (0, 0)]], ids=range(4))
def test_no_input_makes_it_raise(messages: Any, open_calls: Any) -> None:
    plan = plan_resume(messages, open_calls)
    assert isinstance(plan, Start | Continue | AlreadyComplete)
    view, _ = repair_orphaned_tool_calls(messages, open_calls)
    again, repaired = repair_orphaned_tool_calls(view, ())
    assert isinstance(again, list | tuple)
    assert repair_orphaned_tool_calls(again, ()) == (again, [])
    assert isinstance(repaired, list)


def test_ids_that_are_no_strings_still_pair() -> None:
    messages = JUNK[-1]
    assert plan_resume(messages) == Continue(2, [])
    assert repair_orphaned_tool_calls(messages)[0] is messages


def spread(turns: int, shape_of_turn: str) -> list[dict[str, Any]]:
    return [message for _ in range(turns) for message in transcript(shape_of_turn)]


@pytest.mark.parametrize(
    "text",
    ["U A[c1,c2] r(c1) r(c2)", "U r(zz) A[c1] r(c1) r(c1)", "U A[c1,c1] T!aborted note", "T!aborted empty"],
)
def test_time_grows_with_the_length_of_the_history_and_no_faster(text: str) -> None:
    """C41: eight times the history costs about eight times as much, also where everything has one id."""
    small, large = spread(500, text), spread(4000, text)

    def seconds(messages: list[dict[str, Any]]) -> float:
        best = float("inf")
        for _ in range(3):
            begun = time.process_time()
            plan_resume(messages)
            repair_orphaned_tool_calls(messages)
            best = min(best, time.process_time() - begun)
        return best

    assert seconds(large) < 30 * seconds(small) + 0.05


def test_plans_are_plain_data() -> None:
    """S9: `session_resumed` names the repaired calls, so they have to be storable."""
    plan = plan_resume(transcript("U A[c1]"))
    assert isinstance(plan, Continue)
    assert json.loads(json.dumps(plan.repaired)) == [[1, 0]]
