"""The third-party mock of the providers (aimock, in tests/wire): how it is started and what it answers.

The same answers go out over every protocol. The tool call ids are the same in every turn of every session on
purpose: providers promise no more, and a history full of equal ids has to make valid requests.
"""

import json
from pathlib import Path
from typing import Any

from bench.report import FellShort
from sessions_app.demo.processes import Child, Processes, wait_until
from tests.wire import install

type Json = dict[str, Any]

START_LIMIT = 30.0

_STORY = "A lighthouse keeper counts the ships that pass, writes each into his book and never loses one. " * 4


def _lookup(number: int, key: str) -> Json:
    return {"id": f"call_{number}", "name": "dev_lookup", "arguments": {"key": key}}


ANSWERS: list[tuple[Json, Json]] = [
    ({"userMessage": "steer"}, {"content": "To the left it is."}),
    (
        {"toolResultContains": "the-first-of-two"},
        {
            "content": "Now the line.",
            "toolCalls": [{"id": "call_1", "name": "dev_append", "arguments": {"file": "ledger"}}],
        },
    ),
    ({"hasToolResult": True}, {"content": "That is what the tools say, and all there is to it."}),
    ({"userMessage": "story"}, {"content": _STORY}),
    ({"userMessage": "lookup"}, {"toolCalls": [_lookup(1, "price")]}),
    (
        {"userMessage": "compare"},
        {
            "reasoning": "Two keys to look up, then compare.",
            "content": "I look up both.",
            "toolCalls": [_lookup(1, "left"), _lookup(2, "right")],
        },
    ),
    (
        {"userMessage": "ledger"},
        {"content": "First a look.", "toolCalls": [_lookup(1, "the-first-of-two")]},
    ),
]
"""What a request's end must hold, and the reply; the first match wins."""


def check_installed() -> None:
    """Raises `FellShort` with what to do where the mock is not there."""
    try:
        install.find_node()
    except install.InstallError as error:
        raise FellShort(str(error)) from None
    if not install.CLI.exists():
        raise FellShort("the mock of the model providers (aimock) is not installed: run `make setup`")


def start(processes: Processes, folder: Path) -> tuple[Child, str]:
    """The running mock and its address."""
    script = folder / "answers.json"
    fixtures = [{"match": match, "response": response} for match, response in ANSWERS]
    script.write_text(json.dumps({"fixtures": fixtures}))
    log = folder / "aimock.log"
    program = [
        str(install.find_node().node),
        str(install.ensure_aimock()),
        "--port",
        "0",
        "--journal-max",
        "1",
    ]
    child = processes.start(
        "aimock", [*program, "--fixtures", str(script)], env={"PATH": ""}, cwd=folder, log=log
    )
    wait_until(
        lambda: "listening on " in log.read_text(),
        limit=START_LIMIT,
        otherwise="the mock of the model providers did not start",
        children=[child],
    )
    return child, log.read_text().partition("listening on ")[2].split()[0]


def is_an_answer(content: list[Json]) -> bool:
    """Whether a saved reply's blocks are one of the answers, whole."""
    texts = [block["text"] for block in content if block["type"] == "text"]
    calls = [(block["name"], block["arguments"]) for block in content if block["type"] == "tool_call"]
    return any(
        texts == ([answer["content"]] if "content" in answer else [])
        and calls == [(call["name"], call["arguments"]) for call in answer.get("toolCalls", ())]
        for _, answer in ANSWERS
    )
