"""Markdown of models: readable, and unable to do anything."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.console.markdown import MAX_CHARACTERS, Allowance, to_html

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "![x](javascript:alert(1))",
    '![x" onerror="alert(1)](http://e.example/x.png)',
    '[x](http://e.example/ "a\\" onmouseover=alert(1)")',
    "<a href='javascript:alert(1)'>x</a>",
    "<style>*{display:none}</style>",
    "<form action=//e.example><input name=password></form>",
    '```"><script>alert(1)</script>\nx\n```',
    "|a|\n|-|\n|<script>alert(1)</script>|",
    "<!-- --><script>alert(1)</script>",
    '<http://e.example/"onclick=alert(1)>',
]
ALLOWED = re.compile(
    r"</?(a|blockquote|br|code|del|em|h[3-6]|hr|li|ol|p|pre|s|strong|table|tbody|td|th|thead|tr|ul)\b"
)


def tags(html: str) -> list[str]:
    return re.findall(r"<[^>]*>", html)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_becomes_text(text: str) -> None:
    for tag in tags(to_html(text)):
        assert ALLOWED.match(tag), tag
        # Names of attributes, without what stands in quotes.
        assert not re.search(r"\bon\w+\s*=|style=", re.sub(r'"[^"]*"', '""', tag)), tag
        for address in re.findall(r'(?:href|src)="([^"]*)"', tag):
            assert address.startswith(("http://", "https://", "mailto:")), tag


@given(st.text(alphabet=st.sampled_from("<>\"'&[]()!`*_#|-:=\n \tajsx/"), max_size=200))
def test_no_text_makes_another_element_or_an_event(text: str) -> None:
    for tag in tags(to_html(text)):
        assert ALLOWED.match(tag), tag
        assert not re.search(r"\bon\w+\s*=", re.sub(r'"[^"]*"', '""', tag)), tag


def test_links_leave_nothing_behind() -> None:
    assert (
        to_html("[docs](https://docs.example/a?b=c)")
        == '<p><a href="https://docs.example/a?b=c" rel="noopener noreferrer nofollow">docs</a></p>\n'
    )


def test_images_are_links_so_that_no_request_carries_anything_away() -> None:
    found = to_html("![a **graph**](https://e.example/?secret=42)")
    assert "<img" not in found
    assert 'href="https://e.example/?secret=42"' in found
    assert "[a graph]" in found


def test_what_people_read_is_there() -> None:
    found = to_html(
        "# Title\n\n- a\n- **b**\n\n```python\nx = 1 < 2\n```\n\n| a | b |\n|---|---|\n| 1 | ~~2~~ |\n"
    )
    assert "<h3>Title</h3>" in found
    assert "<li><strong>b</strong></li>" in found
    assert '<code class="language-python">x = 1 &lt; 2' in found
    assert "<td>1</td>" in found
    assert "<s>2</s>" in found


def test_very_long_text_is_shown_as_it_is_and_escaped() -> None:
    found = to_html("<script>" + "*x*" * MAX_CHARACTERS)
    assert found.startswith("<pre>&lt;script")
    assert "<em>" not in found


def test_an_answer_renders_no_more_than_its_allowance() -> None:
    allowance = Allowance(marks=10)
    assert "<em>one</em>" in allowance.to_html("*one*")
    assert allowance.to_html("*two*\n" * 3) == "<pre>*two*\n*two*\n*two*\n</pre>"
    assert "<em>three</em>" in allowance.to_html("*three*")
    assert allowance.to_html("<b>" * 4).startswith("<pre>&lt;b&gt;")


def test_deeply_nested_markdown_ends() -> None:
    assert to_html("> " * 5000 + "x")
    assert to_html("[" * 5000 + "x")
    assert to_html("*a " * 5000)
