"""Which rule decides, in which order, and what stands without one."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools_app.permissions.calls import then, verdict
from tools_app.permissions import Verdict, decide

STRICTNESS = ["allow", "ask", "deny"]
SURE = {"path": {"equals": "/etc/x"}}
DOUBTFUL = {"path": {"under": "/etc"}}
NEVER = {"path": {"equals": "/srv"}}
PATH = {"path": "/ETC/x"}  # may be /etc/x on some file systems


def rule(decision: str, arguments: dict | None = None, tool: str = "*", **more: object) -> dict:
    return {"tool": tool, "then": decision} | ({"arguments": arguments} if arguments else {}) | more


@pytest.mark.parametrize("default", STRICTNESS)
@pytest.mark.parametrize("rules", [[], [rule("allow", tool="other")], [rule("deny", NEVER)]])
def test_without_a_rule_that_matches_the_default_decides(rules, default):
    """T7"""
    found = verdict(rules, "read_file", PATH, default=default)
    assert (found.then, found.rule) == (default, None)
    assert "read_file" in found.why


@pytest.mark.parametrize("first", STRICTNESS)
@pytest.mark.parametrize("second", STRICTNESS)
def test_the_first_rule_that_matches_decides(first, second):
    """T7"""
    rules = [rule("deny", tool="other"), rule("deny", NEVER), rule(first), rule(second)]
    found = verdict(rules, "read_file", PATH)
    assert (found.then, found.rule) == (first, 2)


@pytest.mark.parametrize(
    ("rules", "default", "decision", "index"),
    [
        # An allow that only may match says nothing.
        ([rule("allow", DOUBTFUL)], "ask", "ask", None),
        ([rule("allow", DOUBTFUL)], "allow", "allow", None),
        ([rule("allow", DOUBTFUL), rule("deny")], "allow", "deny", 1),
        ([rule("allow", DOUBTFUL), rule("allow")], "deny", "allow", 1),
        # An ask and a deny that may match hold back what comes behind them, and nothing makes them weaker.
        ([rule("ask", DOUBTFUL)], "allow", "ask", 0),
        ([rule("deny", DOUBTFUL)], "allow", "deny", 0),
        ([rule("ask", DOUBTFUL), rule("allow")], "allow", "ask", 0),
        ([rule("deny", DOUBTFUL), rule("allow")], "allow", "deny", 0),
        ([rule("deny", DOUBTFUL), rule("ask")], "allow", "deny", 0),
        ([rule("ask", DOUBTFUL), rule("deny")], "allow", "deny", 1),
        ([rule("ask", DOUBTFUL), rule("deny", DOUBTFUL), rule("allow")], "allow", "deny", 1),
        ([rule("ask", DOUBTFUL)], "deny", "deny", None),
        ([rule("ask", DOUBTFUL), rule("ask")], "deny", "ask", 0),
        # What comes behind a rule that surely matches is not looked at.
        ([rule("ask", DOUBTFUL), rule("allow"), rule("deny")], "deny", "ask", 0),
    ],
)
def test_of_rules_that_may_match_the_strictest_decides(rules, default, decision, index):
    """T7: up to the first that surely matches."""
    found = verdict(rules, "read_file", PATH, default=default)
    assert (found.then, found.rule) == (decision, index)


def test_all_conditions_of_a_rule_must_hold():
    """T7"""
    rules = [rule("allow", {"a": {"equals": 1}, "b": {"starts_with": "x", "matches": ".*y"}})]
    assert then(rules, "t", {"a": 1, "b": "xy"}) == "allow"
    assert then(rules, "t", {"a": 2, "b": "xy"}) == "ask"
    assert then(rules, "t", {"a": 1, "b": "xz"}) == "ask"
    assert then(rules, "t", {"a": 1, "b": "zy"}) == "ask"
    assert then(rules, "t", {"a": 1, "b": "xy", "c": "more"}) == "allow"


@pytest.mark.parametrize(
    "matcher", [{"equals": None}, {"in": [None]}, {"matches": ".*"}, {"under": "."}, {"starts_with": "x"}]
)
@pytest.mark.parametrize("decision", STRICTNESS)
def test_a_missing_argument_never_matches(matcher, decision):
    """T7: null is a value, absence is none."""
    default = "ask" if decision == "allow" else "allow"
    found = verdict([rule(decision, {"a": matcher})], "t", {"b": "x"}, default=default)
    assert (found.then, found.rule) == (default, None)


def test_arguments_are_named_at_the_top_only():
    """T7: a path into an argument is a name like any other."""
    rules = [rule("allow", {"a.b": {"equals": 1}})]
    assert then(rules, "t", {"a": {"b": 1}}) == "ask"
    assert then(rules, "t", {"a.b": 1}) == "allow"


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("web_fetch", "web_fetch", True),
        ("web_fetch", "web_fetch2", False),
        ("web_fetch", "Web_Fetch", False),
        ("*", "anything", True),
        ("mcp__*", "mcp__linear__get", True),
        ("mcp__*", "mcp_linear", False),
        ("mcp__*__get*", "mcp__linear__get_issue", True),
        ("mcp__*__get*", "mcp__get", False),
        ("*_fetch", "web_fetch", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a**a", "aba", True),
        ("ab*ba", "aba", False),
    ],
)
def test_a_star_in_the_name_of_a_tool_stands_for_any_characters(pattern, name, fits):
    """T7"""
    assert (then([rule("allow", tool=pattern)], name, {}) == "allow") is fits


@given(st.text(alphabet="ab*", min_size=1, max_size=12), st.text(alphabet="ab", max_size=12))
def test_tool_patterns_are_read_as_file_patterns_are(pattern, name):
    """T7"""
    assert (then([rule("allow", tool=pattern)], name, {}) == "allow") is fnmatch.fnmatchcase(name, pattern)


def test_a_tool_pattern_takes_no_time():
    """T7"""
    assert then([rule("allow", tool="a*" * 63 + "b")], "a" * 200, {}) == "ask"


def test_a_rule_that_asks_says_how_long_and_what_then():
    """T7"""
    found = verdict([rule("ask", expires_after="2d", on_expiry="deny")], "t", {})
    assert (found.expires_after, found.on_expiry) == (172800.0, "deny")
    found = verdict([rule("ask")], "t", {})
    assert (found.expires_after, found.on_expiry) == (None, None)
    assert verdict([], "t", {}).expires_after is None


@pytest.mark.parametrize(
    ("rules", "arguments", "pattern"),
    [
        ([rule("ask", SURE)], {"path": "/etc/x"}, SURE),
        ([rule("ask", {"path": {"under": ["/etc"]}})], {"path": "/etc/x"}, {"path": {"under": ["/etc"]}}),
        ([rule("ask", DOUBTFUL)], PATH, None),
        ([rule("ask")], PATH, None),
        ([rule("deny", SURE)], {"path": "/etc/x"}, None),
        ([], PATH, None),
    ],
)
def test_a_pattern_can_only_be_remembered_where_it_surely_matches(rules, arguments, pattern):
    """T7: a compound command or a doubtful path is remembered as it is, or not at all."""
    assert verdict(rules, "t", arguments).pattern == pattern


def test_the_pattern_of_a_compound_command_is_not_remembered():
    """T7"""
    rules = [rule("ask", {"command": {"starts_with": ["git push"]}})]
    assert verdict(rules, "run_command", {"command": "git push origin"}).pattern == rules[0]["arguments"]
    assert verdict(rules, "run_command", {"command": "git push; rm x"}).pattern is None


def test_a_pattern_that_says_nothing_of_the_command_is_not_remembered():
    """T7: one command on a machine does not stand for all of them there."""
    rules = [rule("ask", {"machine": {"equals": "build-1"}})]
    assert verdict(rules, "run_command", {"machine": "build-1", "command": "ls"}).pattern is None
    assert verdict(rules, "inspect_machine", {"machine": "build-1"}).pattern == rules[0]["arguments"]
    both = [rule("ask", {"machine": {"equals": "build-1"}, "command": {"starts_with": ["ls"]}})]
    assert verdict(both, "run_command", {"machine": "build-1", "command": "ls"}).pattern is not None


def test_why_names_the_rule_and_what_did_not_surely_match():
    """T7"""
    rules = [
        rule("allow", {"command": {"starts_with": ["ls"]}}, tool="run_command"),
        rule("ask", tool="run_command"),
    ]
    found = verdict(rules, "run_command", {"command": "ls; rm x"})
    assert found.why.startswith("rule 1 (run_command) matches and asks; rule 0 (run_command {")
    assert "does not surely match, so it does not allow it" in found.why
    long = [rule("deny", {"a": {"in": ["x" * 50] * 100}})]
    assert len(verdict(long, "t", {"a": "x" * 50}).why) < 300


@pytest.mark.parametrize(
    ("wanted", "declared", "sure", "possible"),
    [
        ({"read_only": True}, {"read_only": True}, True, True),
        ({"read_only": True}, {"read_only": False}, False, False),
        ({"read_only": True}, {}, False, False),
        ({"read_only": False}, {"read_only": False}, True, True),
        ({"read_only": False}, {"read_only": True}, False, False),
        ({"read_only": False}, {}, False, True),
        ({"destructive": True}, {"destructive": True}, True, True),
        ({"destructive": True}, {"destructive": False}, False, False),
        ({"destructive": True}, {}, False, True),
        ({"destructive": True}, {"read_only": True}, False, False),
        ({"destructive": True}, {"read_only": False}, False, True),
        ({"destructive": False}, {"destructive": False}, True, True),
        ({"destructive": False}, {"destructive": True}, False, False),
        ({"destructive": False}, {}, False, False),
        ({"destructive": False}, {"read_only": True}, True, True),
        ({"destructive": True}, {"read_only": True, "destructive": True}, True, True),
        ({"read_only": True, "destructive": False}, {"read_only": True, "destructive": True}, False, False),
    ],
)
def test_what_an_mcp_server_does_not_say_of_its_tool_is_never_taken_for_the_better(
    wanted, declared, sure, possible
):
    """T7"""
    allow, deny = [rule("allow", annotations=wanted)], [rule("deny", annotations=wanted)]
    assert (then(allow, "mcp__s__t", {}, annotations=declared) == "allow") is sure
    assert (then(deny, "mcp__s__t", {}, annotations=declared, default="allow") == "deny") is possible


def test_rules_on_annotations_leave_tools_alone_that_have_none():
    """T7"""
    rules = [rule("deny", annotations={"destructive": True})]
    assert then(rules, "ask_user", {}, tool_class="human", default="allow") == "allow"


def test_a_document_without_permissions_has_none():
    """T7"""
    assert decide(None, tool="t", tool_class="outside", arguments={}, default="ask") == Verdict(
        "ask", None, "no rule surely matches; without one t asks"
    )


RULES = st.lists(
    st.builds(rule, st.sampled_from(STRICTNESS), st.sampled_from([None, SURE, DOUBTFUL, NEVER])), max_size=6
)


@given(RULES, st.sampled_from(STRICTNESS))
def test_no_doubt_makes_a_verdict_weaker(rules, default):
    """T7: the verdict is at least as strict as with the doubtful rules matching, and as without them."""
    found = verdict(rules, "t", PATH, default=default)
    matching = [{**one, "arguments": None} if one.get("arguments") == DOUBTFUL else one for one in rules]
    without = [one for one in rules if one.get("arguments") != DOUBTFUL]
    for reading in (matching, without):
        other = verdict(reading, "t", PATH, default=default)
        assert STRICTNESS.index(found.then) >= STRICTNESS.index(other.then)
