"""Commands under rules: what a shell might do with a text, against what a rule has looked at."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools_app.permissions.calls import then
from tools_app.permissions import commands

SPECIAL = ";|&$`()<>\n\r\x00\x0b\x0c\x1b\x7f"
ALLOWS = [
    {"starts_with": ["git status", "ls"]},
    {"matches": "(?s)ls.*"},
    {"in": ["ls; rm -rf /", "ls | wc", "ls $HOME", "ls\nrm x"]},
]


def of_command(command: str, matcher: dict, decision: str, *, default: str = "ask") -> str:
    rules = [{"tool": "run_command", "arguments": {"command": matcher}, "then": decision}]
    return then(rules, "run_command", {"command": command}, tool_class="command", default=default)


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git status -s",
        "git  status",
        "\tgit status ",
        'git "status" --short',
        "'git' status",
        "g\\it status",
        "ls",
        "ls -la 'a folder'",
        "ls *.txt",
    ],
)
def test_a_simple_command_is_allowed_by_its_first_words(command):
    """T7: words are compared after shell splitting."""
    assert of_command(command, ALLOWS[0], "allow") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git",
        "git statusx",
        "gitstatus",
        "git stash",
        "lsof",
        "status git",
        "'git status'",
        "env git status",
        "X=1 ls",
        "/srv/ls",
        "LS",
        "",
        " ",
        "ls 'a",
        'ls "a',
        "ls \\",
        "-- ls",
    ],
)
def test_other_words_are_not_allowed(command):
    """T7"""
    assert of_command(command, ALLOWS[0], "allow") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "ls; rm -rf /",
        "ls;rm x",
        "ls && rm x",
        "ls || rm x",
        "ls & rm x",
        "ls | sh",
        "ls $(rm x)",
        "ls `rm x`",
        "ls $HOME",
        "ls ${X}",
        'ls "$(rm x)"',
        "ls 'a; b'",
        "ls > /etc/passwd",
        "ls < x",
        "ls <(rm x)",
        "ls\nrm x",
        "ls\r\nrm x",
        "(ls)",
        "ls 2>&1",
        "git status; ls",
        "ls \\; rm",
    ],
)
@pytest.mark.parametrize("matcher", [*ALLOWS, {"equals": "ls; rm -rf /"}])
def test_a_compound_command_never_matches_an_allow(command, matcher):
    """T7: whatever the condition is."""
    assert of_command(command, matcher, "allow") == "ask"


def test_a_rule_without_conditions_allows_every_command():
    """T7: who writes it looks at nothing, so nothing slips through."""
    rules = [{"tool": "run_command", "then": "allow"}]
    assert then(rules, "run_command", {"command": "ls; rm x"}, tool_class="command", default="ask") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm",
        " rm x",
        "r''m x",
        "r\\m x",
        '"rm" x',
        "/bin/rm x",
        "RM x",
        "ls; rm -rf /",
        "ls;rm x",
        "ls && rm x",
        "ls | rm x",
        "ls\nrm x",
        "ls\r\nrm x",
        "r\\\nm x",
        "(rm x)",
        "{ rm x; }",
        "$(rm x)",
        "`rm x`",
        'echo "$(rm x)"',
        "if true; then rm x; fi",
        "for f in a; do rm $f; done",
        "function f { rm x; }; f",
        "! rm x",
        "X=1 rm x",
        "env rm x",
        "env -i A=b rm x",
        "sudo -u root rm x",
        "nohup rm x &",
        "timeout 5 rm x",
        "xargs rm < files",
        "find . -name x -exec rm {} +",
        "sh -c 'rm x'",
        'bash -lc "cd /; rm x"',
        "eval rm x",
        "busybox rm x",
        ">out rm x",
        "2>/dev/null rm x",
        "2>&1 rm x",
        ">|out rm x",
        "> 'a file; of it' rm x",
        "A='1 2' rm x",
        "A='1; 2' rm x",
        "A=x\\ y rm x",
        "ls && A='x|y' 2>&1 B=1 rm x",
        "time -p rm x",
        "time -p -- rm x",
        "coproc X { rm x; }",
        "setpriv --no-new-privs rm x",
        "toybox rm x",
        "`echo rm` x",
        "r`echo m` x",
        "rm$IFS-rf$IFS/",
        "rm${IFS}x",
        "$X x",
        "'$X' x",
        "r? x",
        "/bin/r[m] x",
        "{rm,-rf,/}",
        "~/rm x",
        "ls 'a; rm x",
        "rm 'x",
    ],
)
@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_a_deny_and_an_ask_see_every_command_that_is_written_down(command, decision):
    """T7: a command can't be hidden behind another, by quotes, or by a name that only the shell knows."""
    assert of_command(command, {"starts_with": "rm"}, decision, default="allow") == decision


@pytest.mark.parametrize(
    "command",
    [
        "git rm x",
        "echo rm",
        "rmdir x",
        "cat rm.txt",
        "ls rm",
        "git commit -m 'rm x'",
        "[ -f rm ]",
        "ls 2>&1",
        "time ls",
        "echo `date`",
    ],
)
def test_a_deny_leaves_commands_alone_that_only_name_it(command):
    """T7"""
    assert of_command(command, {"starts_with": "rm"}, "deny", default="allow") == "allow"


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("git push", True),
        ("git push origin", True),
        ("git -C /srv push", True),
        ("git -c a=b --no-pager push", True),
        ("cd x && git push", True),
        ("git status", False),
        ("git log push", False),
        ("git", False),
        ("git --version", False),
    ],
)
def test_options_between_its_words_do_not_hide_a_command_from_a_deny(command, denied):
    """T7"""
    found = of_command(command, {"starts_with": ["git push"]}, "deny", default="allow")
    assert found == ("deny" if denied else "allow")


@pytest.mark.parametrize(
    ("matcher", "command"),
    [
        ({"equals": "rm -rf /"}, "rm  -rf '/'"),
        ({"equals": "rm -rf /"}, "ls; rm -rf /"),
        ({"in": ["reboot"]}, "ls && reboot"),
        ({"matches": "rm .*"}, "ls; rm x"),
    ],
)
def test_other_conditions_look_at_each_part_of_a_compound_command(matcher, command):
    """T7"""
    assert of_command(command, matcher, "deny", default="allow") == "deny"


def test_an_argument_vector_is_looked_at_as_a_command():
    """T7"""
    rules = [{"tool": "run_command", "arguments": {"command": {"starts_with": "rm"}}, "then": "deny"}]
    for vector in (["rm", "x"], ["sh", "-c", "rm x"]):
        assert then(rules, "run_command", {"command": vector}, default="allow") == "deny"
    allow = [rules[0] | {"then": "allow"}]
    assert then(allow, "run_command", {"command": ["rm", "x"]}, default="ask") == "ask"


def test_what_is_called_a_command_is_one_in_every_tool():
    """T7: an MCP server that runs commands is no way around."""
    rules = [{"tool": "mcp__box__*", "arguments": {"command": {"starts_with": "ls"}}, "then": "allow"}]
    assert then(rules, "mcp__box__exec", {"command": "ls -l"}, default="ask") == "allow"
    assert then(rules, "mcp__box__exec", {"command": "ls; rm x"}, default="ask") == "ask"
    assert then(rules, "mcp__box__exec", {"command": "lsof"}, default="ask") == "ask"


def test_other_arguments_of_a_machine_are_no_commands():
    """T7: but for where they begin, which a shell may read."""
    rules = [{"tool": "run_command", "arguments": {"cwd": {"under": "/srv"}}, "then": "allow"}]
    call = {"command": "ls", "cwd": "/srv/a (1)"}
    assert then(rules, "run_command", call, tool_class="command", default="ask") == "allow"
    rules = [{"tool": "write_process", "arguments": {"input": {"starts_with": "yes"}}, "then": "allow"}]
    for text, decision in (("yes", "allow"), ("yes; rm x", "ask"), ("yes\nrm x", "ask")):
        assert then(rules, "write_process", {"input": text}, tool_class="command", default="ask") == decision


@given(st.text(max_size=20), st.sampled_from(SPECIAL), st.text(max_size=20), st.sampled_from(ALLOWS))
def test_no_command_with_a_special_character_is_allowed(before, special, behind, matcher):
    """T7"""
    assert of_command(f"ls {before}{special}{behind}", matcher, "allow") == "ask"
    assert of_command(f"git status{before}{special}{behind}", matcher, "allow") == "ask"


@given(st.text(max_size=30), st.sampled_from(["; ", "\n", "|", "&&", "$(", "`", "("]))
def test_whatever_stands_in_front_a_deny_sees_the_command_behind_a_separator(before, separator):
    """T7"""
    assert of_command(f"{before}{separator}rm x", {"starts_with": "rm"}, "deny", default="allow") == "deny"


@given(st.text(alphabet="abl =-_/.'\"\\\t;|&$()<>{}*?~![]\n", max_size=40))
def test_what_an_allow_takes_a_deny_of_the_same_words_takes_too(command):
    """T7: a deny is at least as eager."""
    if of_command(command, {"starts_with": "a b"}, "allow", default="ask") == "allow":
        assert of_command(command, {"starts_with": "a b"}, "deny", default="allow") == "deny"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab1-=/.,:é'\"\\ \t", max_size=12), min_size=1, max_size=3).map(" ".join))
def test_a_shell_reads_the_words_of_a_simple_command_as_we_do(command):
    """T7"""
    words = commands.simple_words(command)
    if words is None:
        return
    # A function of its name would do, but not every word can be one; printf shows the words behind it.
    ran = subprocess.run(
        ["/bin/sh", "-fc", f"printf '%s\\0' {command}"], capture_output=True, check=True, timeout=10
    )
    assert tuple(ran.stdout.decode().split("\0")[:-1]) == words


@pytest.mark.parametrize("matcher", [{"starts_with": "rm"}, {"equals": "rm x"}, {"matches": "rm .*"}])
@pytest.mark.parametrize("command", ["ls " + "a" * commands.MAX_READ, "ls" + ";ls" * commands.MAX_READ])
def test_a_command_that_is_too_long_to_be_read_could_be_anything(command, matcher):
    """T7: nobody can make the rules work for minutes."""
    assert of_command(command, matcher, "deny", default="allow") == "deny"
    assert of_command(command, ALLOWS[0], "allow") == "ask"


def test_a_regular_expression_is_tried_on_a_thousand_parts():
    """T7"""
    few, many = (";".join(f"ls {number}" for number in range(count)) for count in (999, 1001))
    assert of_command(few, {"matches": "rm .*"}, "deny", default="allow") == "allow"
    assert of_command(few + ";rm x", {"matches": "rm .*"}, "deny", default="allow") == "deny"
    assert of_command(many, {"matches": "rm .*"}, "deny", default="allow") == "deny"
