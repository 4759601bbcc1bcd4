"""The tools that crash tests count with."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessions_app import ids
from sessions_app.tool_port import Call, ToolContext, ToolOutcome
from tools_app.runtime import Runtime

CONTEXT = ToolContext(ids.new_id(), ids.new_id(), 1, "tcl_token", {})


def call(name: str, **arguments: Any) -> Call:
    return Call(
        id=ids.new_id(),
        session=CONTEXT.session,
        turn=ids.new_id(),
        call_id="c",
        name=name,
        tool_class="outside",
        rerun_safe=name == "dev_lookup",
        arguments=arguments,
        position=0,
        state="running",
    )


async def run(name: str, **arguments: Any) -> ToolOutcome:
    return await Runtime().run_outside(call(name, **arguments), CONTEXT)


async def test_dev_append_leaves_one_byte_for_each_run(dev_root: Path) -> None:
    """T: effects are counted by bytes in a file."""
    await run("dev_append", file="deep/counter")
    outcome = await run("dev_append", file="deep/counter")
    assert (dev_root / "deep" / "counter").read_bytes() == b".."
    assert outcome.content == [{"type": "data", "value": {"file": "deep/counter", "bytes": 2}}]


async def test_dev_append_can_be_stopped_before_and_after_its_effect(dev_root: Path) -> None:
    """T4: a kill in the first delay finds no byte, one in the second finds one."""
    before = asyncio.create_task(run("dev_append", file="counter", delay=30))
    done, _ = await asyncio.wait({before}, timeout=0.05)
    assert not done
    assert not (dev_root / "counter").exists()
    before.cancel()

    after = asyncio.create_task(run("dev_append", file="counter", delay=0.05))
    while not (dev_root / "counter").exists():  # noqa: ASYNC110 - a file tells nobody
        await asyncio.sleep(0.001)
    assert not after.done()
    after.cancel()
    await asyncio.gather(before, after, return_exceptions=True)
    assert (dev_root / "counter").read_bytes() == b"."


@pytest.mark.parametrize("file", ["../out", "/etc/passwd", "a/../../out", ".", "a\x00b", "link/out"])
def test_dev_append_writes_below_its_folder_only(dev_root: Path, tmp_path: Path, file: str) -> None:
    """No path leads out, no link either."""
    dev_root.mkdir()
    (dev_root / "link").symlink_to(tmp_path)
    outcome = asyncio.run(run("dev_append", file=file))
    assert outcome.outcome == "failed"
    assert not (tmp_path / "out").exists()
    assert [path.name for path in dev_root.iterdir()] == ["link"]


async def test_dev_lookup_answers_the_same_each_time_and_counts(dev_root: Path) -> None:
    """T4: it may run again, and tests see how often it did."""
    first = await run("dev_lookup", key="sku-1")
    assert await run("dev_lookup", key="sku-1") == first
    assert await run("dev_lookup", key="sku-2") != first
    assert first.content[0]["value"]["token"] == "tcl_token"
    assert (dev_root / "lookup.sku-1").read_bytes() == b".."
